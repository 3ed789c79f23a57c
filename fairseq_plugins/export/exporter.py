"""Export a trained model, and compare it with torch before renaming the folder to `out`."""

from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import digest
from fairseq_plugins.serving.folder import Export
from fairseq_plugins.serving.text import LONGEST, longest_translation
from fairseq_plugins.trained_models import find_checkpoint, load_models

from .architecture import limits
from .comparison import Agreement, all_sources, compare, few, sample_sources, search_with_torch
from .folder import (
    Checkpoint,
    check_new_folder,
    copy_text_processing,
    describe,
    new_folder,
    quantize_graphs,
    write_config,
    write_graphs,
    write_shortlist_graph,
)

SAMPLES = 1000  # of the paired bootstrap
EXACT = 1e-4  # the largest allowed difference of scores in float32


class Comparisons(NamedTuple):
    """The comparisons of an export."""

    agreements: List[Agreement]  # the float32 graphs first
    too_long: int  # sentences of the split over the model's limit, which are skipped
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
) -> Comparisons:
    """Write `out`: graphs, dictionaries, the subword model and `config.json`.

    Args:
        run: a checkpoint, or the --save-dir of a training.
        out: a folder that does not exist yet.
        data: the prepared folder; None for the one the model was trained on.
        int8: 8-bit matrix products, and files of about a quarter of the size.
        licence: the licence of the model, for `config.json`.
        shortlist: also write a lexical shortlist, made from the training data.
        split: compare hypotheses of all sentences of "valid" or "test"; None for 20 sentences.

    Returns:
        The comparisons with torch: of the float32 graphs; with `int8`, of the 8-bit graphs; with
            `shortlist`, of the final graphs with the shortlist. With `split`, and if the model
            translates, also BLEU and chrF.

    Raises:
        ConfigurationError: the model cannot be exported, a file is missing, or the float32 graphs
            find different hypotheses than torch.
    """
    out = Path(out)
    check_new_folder(out)
    checkpoint, folder, model, task = _load(run, data)
    longest = limits(model, task)[0] + 1  # with the end symbol
    references: Any = None
    most: Callable[[int], int] = few
    if split is None:
        sources, too_long = sample_sources(task, longest), 0
    else:
        references = _references(folder, task, split)
        lines, sources, too_long = all_sources(task, split, longest)
        if references is not None:
            references.keep(lines)
            most = longest_translation
        else:
            most = _longest_summary
    if shortlist:
        from .shortlist import check_shortlist

        check_shortlist(task)
    with new_folder(out) as part:
        copy_text_processing(folder, task, part)
        write_graphs(model, task, part)
        write_config(model, task, part, describe(checkpoint, int8), licence)
        expected = search_with_torch(model, task, sources, most)
        found = [compare(Export(part), expected, sources, "float32", most)]
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
            found.append(compare(Export(part), expected, sources, "8-bit", most))
        if shortlist:
            write_shortlist_graph(model, task, part, int8)
            write_config(model, task, part, describe(checkpoint, int8), licence)
            exported = Export(part, shortlist=True)
            kind = found[-1].kind + " with shortlist"
            found.append(compare(exported, expected, sources, kind, most))
        scores = [] if references is None else _scores(references, found)
    return Comparisons(found, too_long, scores)


def export_to_ctranslate2(run: Path, out: Path, data: Optional[Path], int8: bool) -> float:
    """Write a CTranslate2 model of an ordinary Transformer; arguments are those of `export`.

    Returns:
        the largest score difference between CTranslate2 and torch, for torch's hypotheses.

    Raises:
        ConfigurationError: CTranslate2 does not support the model, or its float32 scores of
            torch's hypotheses differ.
    """
    from .ctranslate2 import largest_difference, write_ctranslate2

    check_new_folder(out)
    _, _, model, task = _load(run, data)
    with new_folder(out) as part:
        write_ctranslate2(model, task, part, int8=False)
        sources = sample_sources(task, limits(model, task)[0] + 1)
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


def _load(run: Path, data: Optional[Path]) -> Tuple[Checkpoint, Path, Any, Any]:
    """The checkpoint, the prepared folder, the model and the task.

    Raises:
        ConfigurationError: a file is missing, or a parameter is not a number.
    """
    path = find_checkpoint(run, "RUN")
    # a running training may replace the file during the export
    checkpoint = Checkpoint(path.name, digest(path))
    folder, models, _, task = load_models([str(path)], data, option="RUN")
    return checkpoint, folder, models[0].eval(), task


def _longest_summary(source_length: int) -> int:
    return LONGEST


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
