"""Beam search over real sentences of a prepared folder, contenders side by side.

    fairseq-plugins benchmark generate DATA \\
        --contender "transformer_iwslt_de_en --plain" \\
        --contender "transformer_ftc_iwslt_de_en --encoder-blocks 6,6 --decoder-layers 1"
    fairseq-plugins benchmark generate DATA --contender plain/checkpoint_best.pt \\
        --contender "plain/checkpoint_best.pt --int8"

A contender is an architecture with options (its weights are random), a checkpoint, `export:DIR`
(what the command `export` wrote) or `ctranslate2:DIR`. Among its words, --int8 quantises a model,
--plain takes fairseq's own decoding where the plugin has a faster one, --captured replays steps as
CUDA graphs, and --beam N gives a folder its own beam. All contenders take the same batches in turn;
the first one, not a folder, is the baseline. So that models can be compared that end sentences
differently, each batch is searched up to the length of its longest reference and not ended before,
unless --free-length lets trained models end themselves. --bleu translates the whole subset as well;
the plot then shows time against BLEU.
"""

import os
import shlex
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from fairseq import utils
from fairseq.dataclass.configs import GenerationConfig
from fairseq.tasks import FairseqTask

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluate import TOKENISED_BLEU
from fairseq_plugins.evaluate.translation import Translations
from fairseq_plugins.options.fields import REQUIRED, argument, option, with_default
from fairseq_plugins.options.search import Options
from fairseq_plugins.pretrained import find_checkpoint
from fairseq_plugins.search.checkpoints import load_models
from fairseq_plugins.search.engine import Input
from fairseq_plugins.search.onnx_backend.beam_search import search
from fairseq_plugins.search.onnx_backend.folder import Export
from fairseq_plugins.search.torch_backend.int8 import quantize
from fairseq_plugins.system import cpu

from . import contenders, harness, plots
from .harness import Report, Timed

INT8, PLAIN, CAPTURED = "--int8", "--plain", "--captured"
BEAM = "--beam"
KINDS = ("export:", "ctranslate2:")
SUBSET = "test"  # of the data


@dataclass
class Generate(Timed):
    """The options of the subcommand."""

    data: Path = argument("the prepared folder", "DATA")
    contender: Sequence[str] = option(
        REQUIRED, "an architecture, a checkpoint, export:DIR or ctranslate2:DIR, with its options "
        "in one word; repeatable", metavar="WORDS", repeatable=True,
    )  # fmt: skip
    options: str = option("", "options that all architectures get", metavar="WORDS")
    beam: int = option(5, "the number of hypotheses of each sentence", least=1)
    batch_size: int = option(32, "the number of sentences in a batch", least=1)
    batches: int = option(4, "the number of different batches", least=1)
    free_length: bool = option(False, "let models end sentences themselves")
    bleu: bool = option(False, "also score translations of the subset")
    rounds: int = with_default(Timed, "rounds", 3)


def run(args: Generate) -> Report:
    """Time beam search of all contenders; the module's docstring describes the measurement.

    Raises:
        ConfigurationError: arguments, checkpoints or data are invalid.
    """
    device = harness.choose_device(args)
    if is_folder(args.contender[0]):
        raise ConfigurationError(
            f"--contender {args.contender[0]}: the first must be an architecture or a checkpoint"
        )
    built = {words: load(words, args, device) for words in args.contender if not is_folder(words)}
    first = built[args.contender[0]]
    batches = load_batches(*first, args, device)
    works = [searcher_of(words, built, first, args, batches) for words in args.contender]
    rows = harness.compare(
        args.contender, works, range(len(batches)), args, device, "beam search",
        lambda words: words in built and INT8 not in shlex.split(words),
    )  # fmt: skip
    sentences = sum(batch["nsentences"] for batch in batches) * args.rounds
    for row in rows:
        row["speed"] = 1 / row["time_ratio"]
        row["speed_quartiles"] = [1 / value for value in row["time_ratio_quartiles"][::-1]]
        row["sentences_a_second"] = sentences / sum(row["seconds"])
        if row["contender"] in built:
            row["parameters"] = contenders.count_parameters(built[row["contender"]][1])
    if args.bleu:
        for row, scored in zip(rows, scores(args, built, device)):
            row["scores"] = scored
            row["bleu"] = (scored.get(TOKENISED_BLEU) or scored["BLEU"])["score"]
    ends = "models end sentences" if args.free_length else "length of the longest reference"
    title = f"Beam {args.beam}, batch {args.batch_size}: time"
    return Report(
        rows,
        [
            ("contender", harness.code("contender")),
            ("speed, ratio", harness.number("speed")),
            ("quartiles", harness.quartiles("speed_quartiles")),
            ("time, ratio", harness.number("time_ratio")),
            ("operations, ratio", harness.number("flop_ratio")),
            ("time over operations", harness.number("ratio_to_flop_limit")),
            ("sentences a second", harness.number("sentences_a_second", ".2f")),
            *([("tokenised BLEU", harness.number("bleu", ".2f"))] if args.bleu else []),
        ],
        [
            f"{SUBSET}, beam {args.beam}, {len(batches)} batches of at most {args.batch_size} "
            f"sentences x {args.rounds} rounds, {args.dtype}, {ends}; operations of 8-bit products "
            "are not counted"
        ],
        partial(plots.time_and_bleu if args.bleu else plots.bars, rows=rows, title=title),
    )


def searcher_of(
    words: str, built: dict[str, Any], first: Any, args: Generate, batches: list[Any]
) -> Callable[[int], Any]:
    """The function to time of a contender: a folder, or one of the models that were built."""
    if words in built:
        task, model = built[words]
        return searcher(task, model, args, batches, shlex.split(words))
    return folder_searcher(words, first[0], args, batches)


def load(words: str, args: Generate, device: torch.device) -> tuple[Any, Any]:
    """The task and the model of a contender, prepared for generation on the device.

    Raises:
        ConfigurationError: the words name no architecture, and no checkpoint that can be loaded.
    """
    own = shlex.split(words)
    int8 = INT8 in own
    own = [word for word in own if word not in (INT8, PLAIN, CAPTURED)]
    if own and own[0].endswith(".pt"):
        if len(own) > 1:
            raise ConfigurationError(
                f"`{words}`: a checkpoint takes {INT8}, {PLAIN} and {CAPTURED} only"
            )
        path = str(find_checkpoint(Path(own[0]), "--contender"))
        _, (model,), task = load_models([path], args.data, option="--contender")
    else:
        rest = shlex.join(own)
        built = contenders.build_on_data(rest, args.options, args.data, "fp32", True)
        task, model = built.task, built.model
    model = model.to(device, harness.DTYPES[args.dtype]).eval()
    model.prepare_for_inference_(SimpleNamespace(generation=_generation_configuration(args)))
    if int8:
        model = quantize(model)
    return task, model


def load_batches(
    task: Any, model: Any, args: Generate, device: torch.device, whole: bool = False
) -> list[dict[str, Any]]:
    """Full batches of sentences of similar length, shuffled so that all lengths occur.

    fairseq-generate forms batches in the same way. With `whole`, all batches of the subset.

    Raises:
        ConfigurationError: the folder lacks the subset, or the subset has too few full batches.
    """
    task.load_dataset(SUBSET)
    iterator = task.get_batch_iterator(
        task.dataset(SUBSET),
        max_sentences=args.batch_size,
        max_positions=utils.resolve_max_positions(task.max_positions(), model.max_positions()),
        ignore_invalid_inputs=True,
        seed=1,
    )
    batches = list(iterator.next_epoch_itr(shuffle=not whole))
    if not whole:
        full = [batch for batch in batches if batch["nsentences"] == args.batch_size]
        batches = full[: args.batches]
    if not whole and len(full) < args.batches:
        raise ConfigurationError(
            f"--batches {args.batches}: {SUBSET} has {len(full)} of --batch-size {args.batch_size}"
        )
    return utils.move_to_cuda(batches) if device.type == "cuda" else batches


def scores(
    args: Generate, built: dict[str, Any], device: torch.device
) -> list[dict[str, dict[str, Any]]]:
    """BLEU and chrF of each contender on the whole subset; models end their sentences.

    Raises:
        ConfigurationError: the folder was not prepared by this package.
    """
    first = built[args.contender[0]]
    task, model = first
    test = Translations(args.data, SUBSET, task.cfg.target_lang)
    free = replace(args, free_length=True)
    batches = load_batches(task, model, args, device, whole=True)
    figures = []
    for words in args.contender:
        search = searcher_of(words, built, first, free, batches)
        lines = [""] * test.total
        for number, batch in enumerate(batches):
            for index, result in zip(batch["id"].tolist(), search(number)):
                lines[index] = _subwords(result, task.target_dictionary)
        figures.append(test.score(test.text(lines)))
    return figures


def _subwords(result: Any, dictionary: Any) -> str:
    """The best hypothesis of fairseq, of an export or of CTranslate2."""
    if hasattr(result, "hypotheses"):
        return " ".join(result.hypotheses[0])
    best = result[0]
    return str(dictionary.string(best.pieces if hasattr(best, "pieces") else best["tokens"]))


def _generation_configuration(args: Generate, length: int = 0) -> Any:
    if args.free_length:
        return GenerationConfig(beam=args.beam)
    words = max(1, length - 1)  # fairseq's limits do not count </s>
    return GenerationConfig(beam=args.beam, max_len_a=0, max_len_b=words, min_len=words)


def searcher(
    task: Any,
    model: Any,
    args: Generate,
    batches: list[dict[str, Any]],
    words: Sequence[str],
) -> Callable[[int], Any]:
    """Return the function to time, which runs beam search on the batch of a given number.

    The generators are built in advance, so that the time contains the search only.
    """
    build = FairseqTask.build_generator
    if PLAIN in words:
        build = getattr(build, "__wrapped__", build)
    lengths = [batch["target"].size(1) for batch in batches]
    generators = {
        length: build(task, [model], _generation_configuration(args, length))
        for length in sorted(set(lengths))
    }
    for generator in generators.values():
        generator.captures = CAPTURED in words

    def search(number: int) -> Any:
        generator = generators[lengths[number]]
        return task.inference_step(generator, [model], batches[number])

    return search


# ---- exported folders


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
    out = Path(folder)
    if any(out.glob("*.pt")):
        raise ConfigurationError(f"{out} holds checkpoints, which are kept: choose another --out")
    built = contenders.build_on_data(words, "", data, "fp32", True)
    task, model = built.task, built.model.eval()
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    if kind == "ctranslate2":
        ctranslate2.write_ctranslate2(model, task, out, int8=True)
        return
    files.write_graphs(model, out)
    files.quantize_graphs(out)
    files.write_dictionaries(task, out)
    files.write_config(model, task, out, {"int8": True}, "random weights")


def folder_searcher(
    words: str, task: Any, args: Generate, batches: list[dict[str, Any]]
) -> Callable[[int], Any]:
    """Return the function to time, which runs beam search on the batch of a given number.

    Output lengths are those of the other contenders.

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
    if len(options) == 2 and options[0] == BEAM and options[1].isdecimal() and int(options[1]):
        args = replace(args, beam=int(options[1]))
    elif options:
        raise ConfigurationError(f"`{words}`: the only option is {BEAM} N")
    pad = task.source_dictionary.pad()
    tokens = [batch["net_input"]["src_tokens"].tolist() for batch in batches]
    sources = [[[token for token in row if token != pad] for row in rows] for rows in tokens]
    lengths = [batch["target"].size(1) for batch in batches]
    if kind == "export":
        return _search_export(Export(Path(folder), args.threads), args, sources, lengths)
    return _search_ctranslate2(folder, task, args, sources, lengths)


def _search_export(
    export: Export, args: Generate, sources: list[list[list[int]]], lengths: list[int]
) -> Callable[[int], Any]:
    def run(number: int) -> Any:
        words = max(1, lengths[number] - 1)  # without the end symbol
        limit = min(200, export.max_output) if args.free_length else words
        options = Options(beam=args.beam, min_len=1 if args.free_length else words)
        return search(export, [Input(tokens, limit) for tokens in sources[number]], options)

    return run


def _search_ctranslate2(
    folder: str,
    task: Any,
    args: Generate,
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


COMMANDS = {"generate": (Generate, run)}
