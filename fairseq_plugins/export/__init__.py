"""Exports a trained model to a folder that `serving` runs without torch and fairseq."""

import contextlib
import errno
import json
import math
import os
import platform
import random
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch
from fairseq import utils
from fairseq.dataclass.configs import GenerationConfig

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import digest
from fairseq_plugins.prepared_folder import RECORD
from fairseq_plugins.serving import folder as served
from fairseq_plugins.serving.search import Options, Source, search
from fairseq_plugins.text.processing import Processing
from fairseq_plugins.text.subwords import KINDS
from fairseq_plugins.trained_models import find_checkpoint, load_models
from fairseq_plugins.version import __version__

from .prepared import prepared_pairs

BEAM = 5  # of the comparison with torch
SENTENCES = 20  # that the comparison translates
BATCH = 32  # sentences that it translates at once
SAMPLES = 1000  # of the paired bootstrap
LONGEST = 60  # tokens of its hypotheses at most
TIE = 1e-5  # scores this close are a tie: either hypothesis may come first
EXACT = 1e-4  # the largest allowed difference of scores in float32


class Agreement(NamedTuple):
    """How an export's hypotheses compare with torch's."""

    kind: str  # of the graphs
    sentences: int
    equal: int  # hypotheses that are torch's or tie with it
    largest_difference: float  # of the best scores
    hypotheses: List[str]  # subwords, separated by spaces


class Exported(NamedTuple):
    """The comparisons of an export."""

    agreements: List[Agreement]  # the float32 graphs first
    too_long: int  # sentences of the split that the model cannot read, and which are left out
    # if the model translates and a whole split was compared: `Translations.score` of the float32
    # graphs, then `Translations.compare` of each of the others with them
    scores: List[Dict[str, Any]]


def export(
    run: Path,
    out: Path,
    data: Optional[Path] = None,
    int8: bool = False,
    licence: str = "not stated",
    shortlist: bool = False,
    split: Optional[str] = None,
) -> Exported:
    """Write `out`: graphs, dictionaries, the subword model and `config.json`.

    Args:
        run: a checkpoint, or the --save-dir of a training.
        out: a folder that does not exist yet.
        data: the prepared folder; None for the one the model was trained on.
        int8: 8-bit matrix products and files of about a quarter of the size.
        licence: of the model, for `config.json`.
        shortlist: also write a lexical shortlist, from the training data.
        split: compare hypotheses of all sentences of "valid" or "test"; None for 20 sentences.

    Returns:
        The comparisons with torch: of the float32 graphs, with `int8` of the 8-bit graphs, and with
        `shortlist` of the final graphs with the shortlist. With `split`, and if the model
        translates, also BLEU and chrF.

    Raises:
        ConfigurationError: the model cannot be exported, a file is missing, or the float32 graphs
            find other hypotheses than torch.
    """
    out = Path(out)
    _must_be_new(out)
    checkpoint, folder, model, task = _load(run, data)
    longest = limits(model, task)[0] + 1  # with the end symbol
    references: Any = None
    if split is None:
        sources, too_long = some_sources(task, longest), 0
    else:
        references = _references(folder, task, split)
        lines, sources, too_long = all_sources(task, split, longest)
        if references is not None:
            references.keep(lines)
    if shortlist:
        from .shortlist import check_shortlist

        check_shortlist(task)
    with _new_folder(out) as part:
        _copy_text_processing(folder, task, part)
        write_graphs(model, task, part)
        write_config(model, task, part, describe(checkpoint, int8), licence)
        expected = search_with_torch(model, task, sources)
        found = [compare(served.Export(part), expected, sources, "float32")]
        if found[0].equal < found[0].sentences or not found[0].largest_difference <= EXACT:
            raise ConfigurationError(
                f"the exported model disagrees with torch: {found[0].equal} of "
                f"{found[0].sentences} hypotheses are equal, scores differ by up to "
                f"{found[0].largest_difference:.1e}; please report this with the options of the "
                "model and the versions of torch and onnxruntime"
            )
        if int8:
            quantize_graphs(part)
            write_config(model, task, part, describe(checkpoint, int8), licence)
            found.append(compare(served.Export(part), expected, sources, "8-bit"))
        if shortlist:
            write_shortlist_graph(model, task, part, int8)
            write_config(model, task, part, describe(checkpoint, int8), licence)
            exported = served.Export(part, shortlist=True)
            found.append(compare(exported, expected, sources, found[-1].kind + " with shortlist"))
        scores = [] if references is None else _scores(references, found)
    return Exported(found, too_long, scores)


class _Checkpoint(NamedTuple):
    name: str
    digest: str


def _load(run: Path, data: Optional[Path]) -> Tuple[_Checkpoint, Path, Any, Any]:
    """The checkpoint, the prepared folder, the model and the task.

    Raises:
        ConfigurationError: a file is missing, or a parameter is not a number.
    """
    path = find_checkpoint(run, "RUN")
    # a training that goes on may replace the file during the export
    checkpoint = _Checkpoint(path.name, digest(path))
    folder, models, _, task = load_models([str(path)], data, option="RUN")
    return checkpoint, folder, models[0].eval(), task


def _references(folder: Path, task: Any, split: str) -> Any:
    """The `Translations` of a split, for scores; None if the model does not translate."""
    from fairseq.tasks.translation import TranslationTask

    from fairseq_plugins.evaluation.translation import Translations
    from fairseq_plugins.tasks.summarization import SummarizationTask

    if not isinstance(task, TranslationTask) or isinstance(task, SummarizationTask):
        return None
    return Translations(folder, split, task.cfg.target_lang, f"--compare {split}")


def _scores(references: Any, found: List[Agreement]) -> List[Dict[str, Any]]:
    baseline, *others = (references.text(agreement.hypotheses) for agreement in found)
    compared = [references.compare(ours, baseline, SAMPLES) for ours in others]
    return [references.score(baseline), *compared]


def export_to_ctranslate2(run: Path, out: Path, data: Optional[Path], int8: bool) -> float:
    """Write a CTranslate2 model of an ordinary Transformer; arguments are those of `export`.

    Returns:
        the largest difference between the scores of torch's hypotheses by CTranslate2 and by torch.

    Raises:
        ConfigurationError: CTranslate2 does not support the model, or scores torch's hypotheses
            differently in float32.
    """
    from .ctranslate2 import largest_difference, write_ctranslate2

    _must_be_new(out)
    _, _, model, task = _load(run, data)
    with _new_folder(out) as part:
        write_ctranslate2(model, task, part, int8=False)
        sources = some_sources(task, limits(model, task)[0] + 1)
        expected = search_with_torch(model, task, sources)
        difference = largest_difference(part, task, sources, expected)
        if not difference <= EXACT:
            raise ConfigurationError(
                f"--format ctranslate2: scores differ from torch's by up to {difference:.1e}; use "
                "--format onnx, and please report this with the options of the model and the "
                "versions of torch and ctranslate2"
            )
        if int8:
            write_ctranslate2(model, task, part, int8)
            difference = largest_difference(part, task, sources, expected, "int8")
    return difference


def _must_be_new(out: Path) -> None:
    if out.exists():
        raise ConfigurationError(f"--out {out} exists already: name a new folder")


@contextlib.contextmanager
def _new_folder(out: Path) -> Iterator[Path]:
    """An empty folder that becomes `out` at the end, and is removed after an error.

    Raises:
        ConfigurationError: the disk is full.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=out.name + ".") as scratch:
            part = Path(scratch) / out.name  # unlike `scratch`, not only for its owner
            part.mkdir()
            yield part
            os.replace(part, out)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise ConfigurationError(f"--out {out} cannot be written: {error.strerror}") from None


def write_graphs(model: Any, task: Any, out: Path) -> None:
    """Write the graphs of the encoder and of one decoder step, in float32.

    Raises:
        ConfigurationError: a package is missing, or a part of the model cannot be exported.
    """
    try:
        import onnx
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        advice = "run bash scripts/install.sh --extras onnx in the checkout"
        if sys.version_info < (3, 10):
            advice = "its releases need Python 3.10 or newer, and the export torch 2.8 or newer"
        raise ConfigurationError(f"export needs {error.name}: {advice}") from None
    from . import architecture, decoder, encoder

    architecture.check(model)
    activation = decoder.activation_name(model)
    decoder.check(model.decoder, activation)
    encoder.check(model)
    _, max_output = limits(model, task)
    onnx.save(encoder.build(model), out / served.ENCODER)
    onnx.save(decoder.build(model.decoder, activation, max_output + 1), out / served.DECODER)


def quantize_graphs(folder: Path) -> None:
    """Replace the graphs of a folder by 8-bit ones, with one copy of the embeddings."""
    import onnx

    from .quantization import quantize
    from .shared_table import share_table

    graphs = served.ENCODER, served.DECODER
    for name in graphs:
        with tempfile.TemporaryDirectory() as scratch:
            onnx.save(quantize(onnx.load(folder / name), Path(scratch)), folder / name)
    share_table(folder, graphs)


def write_shortlist_graph(model: Any, task: Any, folder: Path, int8: bool) -> None:
    """Add the words of the shortlist, and the decoder's graph that reads them."""
    import onnx

    from . import decoder
    from .quantization import quantize
    from .shared_table import share_table
    from .shortlist import write_shortlist

    write_shortlist(model, task, folder, int8)
    _, max_output = limits(model, task)
    kind = "int8" if int8 else "float32"
    graph = decoder.build(model.decoder, decoder.activation_name(model), max_output + 1, kind)
    if int8:
        with tempfile.TemporaryDirectory() as scratch:
            graph = quantize(graph, Path(scratch))
    onnx.save(graph, folder / served.SHORTLIST_DECODER)
    if int8:
        share_table(folder, [served.SHORTLIST_DECODER])


def limits(model: Any, task: Any) -> Tuple[int, int]:
    """The most tokens of a source and of a hypothesis, without the end symbol."""
    longest = utils.resolve_max_positions(task.max_positions(), model.max_positions())
    return int(longest[0]) - 1, int(longest[1]) - 1


def describe(checkpoint: _Checkpoint, int8: bool) -> Dict[str, Any]:
    """The origin of an export, for `config.json`."""
    import onnx
    import onnxruntime

    return {
        "checkpoint": checkpoint.name,
        "checkpoint_sha256": checkpoint.digest,
        "int8": int8,
        "fairseq_plugins": __version__,
        "torch": torch.__version__,
        "onnx": onnx.__version__,
        "onnxruntime": onnxruntime.__version__,
        "python": platform.python_version(),
    }


def write_config(model: Any, task: Any, out: Path, made: Dict[str, Any], licence: str) -> None:
    """Write `config.json`, with the SHA-256 of all other files."""
    from fairseq_plugins.tasks.summarization import SummarizationTask

    from .decoder import grouping
    from .encoder import length_multiple

    max_source, max_output = limits(model, task)
    config = {
        "format": served.FORMAT,
        "licence": licence,
        "summarizes": isinstance(task, SummarizationTask),
        "source_lang": task.cfg.source_lang,
        "target_lang": task.cfg.target_lang,
        "max_source": max_source,
        "max_output": max_output,
        "length_multiple": length_multiple(model),
        "most_candidates": grouping(len(task.target_dictionary))[1],
        "made": made,
        "files": {
            path.name: digest(path) for path in sorted(out.iterdir()) if path.name != served.CONFIG
        },
    }
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    (out / served.CONFIG).write_text(text, encoding="utf-8")


def _copy_text_processing(folder: Path, task: Any, out: Path) -> None:
    """Copy what raw text needs: settings, subword model and dictionaries of the prepared folder."""
    settings = Processing.load(folder)
    for name in (RECORD, KINDS[settings.subword].file_name):
        try:
            shutil.copyfile(folder / name, out / name)
        except OSError as error:
            raise ConfigurationError(
                f"{folder / name} cannot be read ({error.strerror}): copy it from the folder that "
                "was prepared"
            ) from None
    write_dictionaries(task, out)


def write_dictionaries(task: Any, out: Path) -> None:
    task.source_dictionary.save(str(out / f"dict.{task.cfg.source_lang}.txt"))
    task.target_dictionary.save(str(out / f"dict.{task.cfg.target_lang}.txt"))


def some_sources(task: Any, longest: int, count: int = SENTENCES) -> List[List[int]]:
    """Sentences of the prepared folder, or random ones if it has none that is short enough.

    Args:
        task: the task.
        longest: the most tokens of a sentence, with the end symbol.
        count: the most sentences.
    """
    for split in ("valid", "test", "train"):
        try:
            dataset = prepared_pairs(task, split).src
        except FileNotFoundError:
            continue
        step = max(1, len(dataset) // count)
        found = [dataset[index].tolist() for index in range(0, len(dataset), step)[:count]]
        found = [tokens for tokens in found if len(tokens) <= longest]
        if found:
            return found
    dictionary, draw = task.source_dictionary, random.Random(1)
    return [
        [draw.randrange(dictionary.nspecial, len(dictionary)) for _ in range(length)]
        + [dictionary.eos()]
        for length in (min(number, longest - 1) for number in range(1, count + 1))
    ]


def all_sources(task: Any, split: str, longest: int) -> Tuple[List[int], List[List[int]], int]:
    """All sentences of a split that have at most `longest` tokens.

    Returns:
        Their indices, the sentences, and the number of longer ones.

    Raises:
        ConfigurationError: the prepared folder lacks the split, or no sentence is left.
    """
    try:
        dataset = prepared_pairs(task, split).src
    except FileNotFoundError as error:
        raise ConfigurationError(f"--compare {split}: {error}") from None
    found = {index: dataset[index].tolist() for index in range(len(dataset))}
    short = {index: tokens for index, tokens in found.items() if len(tokens) <= longest}
    if not short:
        raise ConfigurationError(
            f"--compare {split}: none of its {len(found)} sentences has at most {longest - 1} "
            "subwords, the most that the model reads"
        )
    return list(short), list(short.values()), len(found) - len(short)


def _beam(vocabulary: int) -> int:
    """`BEAM`, lowered as fairseq does for a small vocabulary."""
    return min(BEAM, vocabulary - 1)


def search_with_torch(
    model: Any, task: Any, sources: List[List[int]]
) -> List[Tuple[List[int], float]]:
    """Tokens and score of the best hypothesis for each source, searched one by one."""
    longest = min(LONGEST, limits(model, task)[1])
    beam = _beam(len(task.target_dictionary))
    generator = task.build_generator(
        [model], GenerationConfig(beam=beam, max_len_a=0, max_len_b=longest)
    )
    found = []
    for tokens in sources:
        net_input = {
            "src_tokens": torch.tensor([tokens]),
            "src_lengths": torch.tensor([len(tokens)]),
        }
        with torch.no_grad():
            best = generator.generate([model], {"net_input": net_input})[0][0]
        found.append((best["tokens"].tolist(), float(best["score"])))
    return found


def compare(
    exported: served.Export,
    expected: List[Tuple[List[int], float]],
    sources: List[List[int]],
    kind: str = "float32",
) -> Agreement:
    """Search for `sources` with the export, in batches, and compare with torch's hypotheses."""
    options = Options(beam=_beam(len(exported.target.words)), min_len=1)
    longest = min(LONGEST, exported.max_output)
    equal, largest, written = 0, 0.0, []
    for start in range(0, len(sources), BATCH):
        batch = [Source(tokens, longest) for tokens in sources[start : start + BATCH]]
        try:
            ours = [hypotheses[0] for hypotheses in search(exported, batch, options)]
        except RuntimeError as error:  # onnxruntime's, if tracing has fixed a length
            reason = str(error).splitlines()[0]
            raise ConfigurationError(
                f"the model cannot be exported: its graphs fail on other lengths: {reason}"
            ) from error
        for hypothesis, (tokens, score) in zip(ours, expected[start:]):
            difference = abs(score - hypothesis.score)
            equal += tokens == hypothesis.tokens or difference <= TIE
            largest = max(largest, math.inf if math.isnan(difference) else difference)
            written.append(exported.target.decode(hypothesis.tokens))
    return Agreement(kind, len(sources), equal, largest, written)
