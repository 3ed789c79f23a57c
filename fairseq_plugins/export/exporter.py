"""Export a trained model, and compare it with torch before renaming the folder to `out`."""

from pathlib import Path
from typing import Any

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import digest
from fairseq_plugins.pretrained import find_checkpoint
from fairseq_plugins.search.checkpoints import limits, load_models

from .comparison import Comparison, search_with_torch, sources_of
from .folder import (
    check_new_folder,
    copy_text_processing,
    describe,
    new_folder,
    quantize_graphs,
    write_config,
    write_graphs,
)

EXACT = 1e-4  # the largest allowed difference of scores in float32


def export(
    run: Path,
    out: Path,
    data: Path | None = None,
    int8: bool = False,
    licence: str = "not stated",
    split: str | None = None,
) -> Comparison:
    """Write `out`: graphs, dictionaries, the subword model and `config.json`.

    Args:
        run: a checkpoint, or the --save-dir of a training.
        out: a folder that does not exist yet.
        data: the prepared folder; None for the one the model was trained on.
        int8: 8-bit matrix products, and files of about a quarter of the size.
        licence: the licence of the model, for `config.json`.
        split: compare the output for all texts of "valid" or "test"; None for 20 texts.

    Returns:
        The comparison with torch: of the float32 graphs, and with `int8` of the 8-bit graphs.

    Raises:
        ConfigurationError: the model cannot be exported, a file is missing, or the float32 graphs
            write something else than torch.
    """
    out = Path(out)
    check_new_folder(out)
    checkpoint, folder, model, task = _load(run, data)
    comparison = Comparison(folder, model, task, split)
    with new_folder(out) as part:

        def finish() -> None:
            write_config(model, task, part, describe(checkpoint, int8), licence)

        copy_text_processing(folder, task, part)
        write_graphs(model, part)
        finish()
        found = comparison.agree(part, "float32")
        if found.equal < found.total or not found.largest_difference <= EXACT:
            output, texts, scores = found.words
            raise ConfigurationError(
                f"the exported model disagrees with torch: {output} equal for {found.equal} of "
                f"{found.total} {texts}, {scores} differ by up to {found.largest_difference:.1e}; "
                "please report this with the options of the model and the versions of torch and "
                "onnxruntime"
            )
        if int8:
            quantize_graphs(part)
            finish()
            comparison.agree(part, "8-bit")
    return comparison


def export_to_ctranslate2(run: Path, out: Path, data: Path | None, int8: bool) -> float:
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
        sources, _ = sources_of(task, None, limits([model], task)[0] + 1)
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


def _load(run: Path, data: Path | None) -> tuple[dict[str, str], Path, Any, Any]:
    """The checkpoint (see `describe`), the prepared folder, the model and the task.

    Raises:
        ConfigurationError: a file is missing, or a parameter is not a number.
    """
    path = find_checkpoint(run, "RUN", "give a checkpoint, or the --save-dir of a training")
    # a running training may replace the file during the export
    checkpoint = {"checkpoint": path.name, "checkpoint_sha256": digest(path)}
    folder, models, task = load_models([str(path)], data, None, option="RUN")
    return checkpoint, folder, models[0].eval(), task
