"""Average the parameters of several checkpoints."""

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils
from omegaconf import OmegaConf

from fairseq_plugins.compat.checkpoints import stored_words
from fairseq_plugins.data.prepared_folder import differing
from fairseq_plugins.errors import ConfigurationError, counted
from fairseq_plugins.files import write_bytes

PATTERNS = {
    "epoch": r"checkpoint(\d+)\.pt",
    "update": r"checkpoint_\d+_(\d+)\.pt",
    "best": r"checkpoint\.best_.+_(-?\d+\.?\d*)\.pt",
}
WRITTEN_BY = {
    "epoch": "one per epoch, without --no-epoch-checkpoints",
    "update": "one every --save-interval-updates",
    "best": "as many as --keep-best-checkpoints allows",
}


def choose(
    inputs: list[Path], last: int | None, best: int | None, by: str | None = None
) -> list[Path]:
    """Choose the checkpoints to average.

    Args:
        inputs: checkpoints, or one folder with `last` or `best`.
        last: the number of the newest checkpoints to choose.
        best: the number of the best checkpoints to choose, by their validation score.
        by: for `last`, "epoch" or "update": the kind of checkpoint; None as `kind_of`.

    Returns:
        the checkpoints; the newest is the last one with `last`, the best with `best`.

    Raises:
        ConfigurationError: a path is missing, the arguments conflict, or there are too few.
    """
    for path in inputs:
        if not path.exists():
            raise ConfigurationError(f"--inputs {path}: no such file or folder")
    folders = [path for path in inputs if path.is_dir()]
    if last is None and best is None:
        if folders:
            raise ConfigurationError(
                f"--inputs {folders[0]} is a folder: choose checkpoints with --last K or --best K"
            )
        return inputs
    if len(inputs) != 1 or not folders:
        raise ConfigurationError("--last and --best choose from one folder: give it to --inputs")
    option, count = ("--last", last) if last is not None else ("--best", best)
    kind = "best" if last is None else by or kind_of(folders[0])
    assert count is not None
    found = find(folders[0], kind)
    if count > len(found):
        raise ConfigurationError(
            f"{option} {count}: {folders[0]} has {counted(len(found), 'checkpoints')} of this kind "
            f"(training writes {WRITTEN_BY[kind]}): give a smaller number, or train longer"
        )
    ordered = sorted(found, key=lambda path: found[path])
    if kind == "best":  # the option of the training says which scores are better
        options = load(ordered[0])["cfg"]["checkpoint"]
        ordered = ordered if options["maximize_best_checkpoint_metric"] else ordered[::-1]
    return ordered[-count:]


def find(folder: Path, kind: str) -> dict[Path, float]:
    """The checkpoints of a kind in a folder, each with its epoch, update or validation score."""
    return {
        path: float(match.group(1))
        for path in folder.iterdir()
        for match in [re.fullmatch(PATTERNS[kind], path.name)]
        if match
    }


def kind_of(folder: Path) -> str:
    """The kind of a folder's newest checkpoints: of epochs, or of updates if it has no others.

    Returns:
        "epoch" or "update".
    """
    return "update" if find(folder, "update") and not find(folder, "epoch") else "epoch"


def load(path: Path) -> dict[str, Any]:
    """Load a checkpoint onto the CPU, with the safety checks of `compat.checkpoints`."""
    return checkpoint_utils.load_checkpoint_to_cpu(str(path))


def save(state: dict[str, Any], output: Path) -> None:
    """Write a checkpoint atomically: a killed process or a power cut leaves no partial file."""
    content = io.BytesIO()  # torch's own writer hides why a file cannot be written
    torch.save(state, content)
    write_bytes(output, content.getbuffer())


def average(paths: Sequence[Path], say: Callable[[str], None] = print) -> dict[str, Any]:
    """Average the parameters, accumulated in float64.

    Args:
        paths: the checkpoints.
        say: called with each line of progress.

    Returns:
        the state of the last checkpoint with averaged parameters in float32 (float64 for float64),
            as float16 would round again, without the optimizer's state. Integer tensors keep the
            last checkpoint's values.

    Raises:
        ConfigurationError: the models have different parameters or dictionaries.
    """
    sums: dict[str, torch.Tensor] = {}
    shapes: dict[str, Any] = {}
    words: dict[str, str] = {}  # of `first`, the first checkpoint that stores them
    first = paths[0]
    state: dict[str, Any] = {}
    for number, path in enumerate(paths, 1):
        say(f"{number}/{len(paths)} {path}")
        state = {}  # free the previous checkpoint before loading the next
        state = load(path)
        here = {name: tuple(value.shape) for name, value in state["model"].items()}
        shapes = shapes or here
        for name in [*shapes, *here]:
            if shapes.get(name) != here.get(name):
                raise ConfigurationError(
                    f"the parameter {name} is {shapes.get(name, 'missing')} in {paths[0]} and "
                    f"{here.get(name, 'missing')} in {path}: average checkpoints of one training"
                )
        for name in differing(words, stored_words(state)):
            raise ConfigurationError(
                f"{name} of {first} is not that of {path}: average checkpoints of one training"
            )
        if not words:
            words, first = stored_words(state), path
        for name, value in state["model"].items():
            sums[name] = sums.get(name, 0) + value.double()
    replaced: dict[Any, torch.Tensor] = {}
    for name, value in state["model"].items():
        if value.is_floating_point():
            # a shared parameter has several names: keep one tensor in memory and in the file
            place = (value.data_ptr(), value.shape, value.stride())
            mean = (sums[name] / len(paths)).to(torch.promote_types(value.dtype, torch.float32))
            state["model"][name] = replaced.setdefault(place, mean)
    state.pop("last_optimizer_state", None)
    state["cfg"] = OmegaConf.to_container(state["cfg"], resolve=True, enum_to_str=True)
    return state
