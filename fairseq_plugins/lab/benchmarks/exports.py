"""Contenders of `generate` that are exported folders: `export:DIR` and `ctranslate2:DIR`."""

import argparse
import os
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq_plugins import cpu
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.serving.folder import Export
from fairseq_plugins.serving.search import Options, Source, search

from . import contenders

BEAM = "--beam"
KINDS = ("export:", "ctranslate2:")


def is_folder(words: str) -> bool:
    """Whether a contender is an exported folder."""
    return words.startswith(KINDS)


def write_untrained(contender: str, words: str, data: Path) -> None:
    """Write the folder of a contender, or replace it: 8 bits, with random weights.

    Args:
        contender: `export:DIR` or `ctranslate2:DIR`.
        words: an architecture and its options.
        data: the prepared folder, which has the dictionaries.

    Raises:
        ConfigurationError: a package is missing, the model cannot be exported, or the folder holds
            checkpoints.
    """
    from fairseq_plugins.export import ctranslate2
    from fairseq_plugins.export import folder as files

    kind, folder = contender.split(":", 1)
    out = Path(*shlex.split(folder))
    if any(out.glob("*.pt")):
        raise ConfigurationError(f"{out} holds checkpoints, which are kept: choose another --out")
    found = contenders.build_on_data(words, "", data, "fp32", True)
    task, model = found.task, found.model.eval()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    if kind == "ctranslate2":
        ctranslate2.write_ctranslate2(model, task, out, int8=True)
        return
    files.write_graphs(model, task, out)
    files.quantize_graphs(out)
    files.write_dictionaries(task, out)
    files.write_config(model, task, out, {"int8": True}, "random weights")


def searcher(
    words: str, task: Any, args: argparse.Namespace, batches: list[dict[str, Any]]
) -> Callable[[int], Any]:
    """Return the function to time, which runs beam search on the batch of a given number.

    Output lengths are those of the other contenders of `generate`.

    Args:
        words: the contender.
        task: the baseline's task; its dictionaries convert indices to words.
        args: the arguments of `generate`.
        batches: fairseq's batches.

    Raises:
        ConfigurationError: the folder cannot be read, or a package is missing.
    """
    kind, folder = words.split(":", 1)
    folder, *options = shlex.split(folder)
    if len(options) > 1 and options[-2] == BEAM and options[-1].isdecimal():
        beam = int(options.pop())
        args = argparse.Namespace(**{**vars(args), "beam": beam})
        del options[-1]
    if options or args.beam < 1:
        raise ConfigurationError(f"`{words}`: the only option is {BEAM} N")
    pad = task.source_dictionary.pad()
    tokens = [batch["net_input"]["src_tokens"].tolist() for batch in batches]
    sources = [[[token for token in row if token != pad] for row in rows] for rows in tokens]
    lengths = [batch["target"].size(1) for batch in batches]
    if kind == "export":
        export = Export(Path(folder), args.threads)
        return _search_export(export, args, sources, lengths)
    return _search_ctranslate2(folder, task, args, sources, lengths)


def _search_export(
    export: Export, args: argparse.Namespace, sources: list[list[list[int]]], lengths: list[int]
) -> Callable[[int], Any]:
    def run(number: int) -> Any:
        words = max(1, lengths[number] - 1)  # without the end symbol
        limit = min(200, export.max_output) if args.free_length else words
        options = Options(beam=args.beam, min_len=1 if args.free_length else words)
        return search(export, [Source(tokens, limit) for tokens in sources[number]], options)

    return run


def _search_ctranslate2(
    folder: str,
    task: Any,
    args: argparse.Namespace,
    sources: list[list[list[int]]],
    lengths: list[int],
) -> Callable[[int], Any]:
    if cpu.overflows_in_8_bits():
        # on AMD's processors CTranslate2 takes oneDNN, whose sums of 8-bit products overflow here
        os.environ.setdefault("CT2_USE_MKL", "1")
    try:
        import ctranslate2
    except ImportError:
        raise ConfigurationError(
            f"`ctranslate2:{folder}` needs ctranslate2: pip install ctranslate2"
        ) from None
    try:
        translator = ctranslate2.Translator(folder, intra_threads=args.threads, inter_threads=1)
    except RuntimeError as error:
        raise ConfigurationError(f"`ctranslate2:{folder}`: {error}") from None
    symbols = task.source_dictionary.symbols
    # CTranslate2 adds the end symbol itself
    lines = [[[symbols[token] for token in row[:-1]] for row in batch] for batch in sources]

    def run(number: int) -> Any:
        limits = {"max_decoding_length": 200}
        if not args.free_length:
            limits = dict.fromkeys(("max_decoding_length", "min_decoding_length"), lengths[number])
        return translator.translate_batch(
            lines[number], beam_size=args.beam, max_batch_size=0, **limits
        )

    return run
