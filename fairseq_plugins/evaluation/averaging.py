"""The mean of the parameters of several checkpoints."""

import os
import re
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch
from fairseq import checkpoint_utils
from omegaconf import OmegaConf

from fairseq_plugins.errors import ConfigurationError

PATTERNS = {
    "epoch": r"checkpoint(\d+)\.pt",
    "update": r"checkpoint_\d+_(\d+)\.pt",
    "best": r"checkpoint\.best_.+_(-?\d+\.?\d*)\.pt",
}
WRITTEN_BY = {
    "epoch": "training without --no-epoch-checkpoints",
    "update": "--save-interval-updates",
    "best": "--keep-best-checkpoints",
}


def choose(inputs: List[Path], last: Optional[int], best: Optional[int], by: str) -> List[Path]:
    """The checkpoints to average, the newest last; ConfigurationError if there are too few."""
    for path in inputs:
        if not path.exists():
            raise ConfigurationError(f"--inputs {path}: there is no such file or folder")
    folders = [path for path in inputs if path.is_dir()]
    if last is None and best is None:
        if folders:
            raise ConfigurationError(
                f"--inputs {folders[0]} is a folder: say how many of its checkpoints with "
                "--last K or --best K"
            )
        return inputs
    if len(inputs) != 1 or not folders:
        raise ConfigurationError("--last and --best choose from one folder: give it to --inputs")
    option, count = ("--last", last) if last is not None else ("--best", best)
    kind = by if last is not None else "best"
    assert count is not None
    if count < 1:
        raise ConfigurationError(f"{option} {count}: at least 1 is needed")
    found = {
        path: float(match.group(1))
        for path in folders[0].iterdir()
        for match in [re.fullmatch(PATTERNS[kind], path.name)]
        if match
    }
    if count > len(found):
        raise ConfigurationError(
            f"{option} {count}: {folders[0]} has {len(found)} checkpoints of this kind "
            f"({PATTERNS[kind]}), which come from {WRITTEN_BY[kind]}"
        )
    ordered = sorted(found, key=lambda path: found[path])
    if kind == "best" and count < len(found) and not bigger_is_better(ordered[0]):
        ordered.reverse()
    return ordered[-count:]


def bigger_is_better(path: Path) -> bool:
    """Whether the training that wrote the checkpoint chose the best by a maximum."""
    return bool(load(path)["cfg"]["checkpoint"]["maximize_best_checkpoint_metric"])


def load(path: Path) -> Dict[str, Any]:
    """A checkpoint on the CPU, read as safely as `compat.checkpoints` allows."""
    return checkpoint_utils.load_checkpoint_to_cpu(str(path))


def save(state: Dict[str, Any], output: Path) -> None:
    """Write a checkpoint; a process that is killed leaves no half of one."""
    temporary = output.with_name(output.name + ".tmp")
    torch.save(state, str(temporary))
    os.replace(temporary, output)


def average(paths: Sequence[Path], say: Callable[[str], None] = print) -> Dict[str, Any]:
    """The state of the last checkpoint with the mean of all parameters.

    Raises ConfigurationError if the models have different parameters. Whatever is no floating
    point number (a count) is the last checkpoint's.
    """
    sums: Dict[str, torch.Tensor] = {}
    state: Dict[str, Any] = {}
    for number, path in enumerate(paths, 1):
        say(f"{number}/{len(paths)} {path}")
        state = {}  # lets go of the one before, before the next is read
        state = load(path)
        if number > 1:
            check_same_parameters(path, state["model"], paths[0], sums)
        for name, value in state["model"].items():
            if number == 1:
                sums[name] = torch.zeros_like(value, dtype=torch.float64)
            sums[name] += value
    replaced: Dict[Any, torch.Tensor] = {}
    for name, value in state["model"].items():
        if value.is_floating_point():
            # a parameter that is shared has several names: once in memory, once in the file
            place = (value.data_ptr(), value.shape, value.stride())
            mean = (sums[name] / len(paths)).to(value.dtype)
            state["model"][name] = replaced.setdefault(place, mean)
    state.pop("last_optimizer_state", None)
    state["cfg"] = OmegaConf.to_container(state["cfg"], resolve=True, enum_to_str=True)
    return state


def check_same_parameters(
    path: Path, model: Dict[str, torch.Tensor], first: Path, sums: Dict[str, torch.Tensor]
) -> None:
    """ConfigurationError that names the first parameter in which two models differ."""
    for name in [*sums, *model]:
        for one, other, have, lack in ((sums, model, first, path), (model, sums, path, first)):
            if name in one and name not in other:
                raise ConfigurationError(f"{have} has the parameter {name} and {lack} has not")
        if sums[name].shape != model[name].shape:
            raise ConfigurationError(
                f"the parameter {name} is {tuple(sums[name].shape)} in {first} and "
                f"{tuple(model[name].shape)} in {path}"
            )
