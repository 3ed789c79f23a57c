#!/usr/bin/env python3
"""Average the parameters of several checkpoints into one, for fairseq-generate.

    python scripts/average_checkpoints.py --inputs a.pt b.pt c.pt --output average.pt
    python scripts/average_checkpoints.py --inputs SAVE_DIR --last 5 --output average.pt
    python scripts/average_checkpoints.py --inputs SAVE_DIR --best 5 --output average.pt

`--last` takes the newest checkpoints of whole epochs, or with `--by update` those that
`--save-interval-updates` wrote; `--best` takes those that `--keep-best-checkpoints` kept.

One checkpoint is in memory at a time. The result has everything of the newest one but its
parameters, which are the mean, and its optimizer's state, which would not belong to them.
Checkpoints are read as safely as fairseq_plugins.compat has it.
"""

import argparse
import os
import re
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from fairseq import checkpoint_utils  # noqa: E402
from omegaconf import OmegaConf  # noqa: E402

import fairseq_plugins  # noqa: E402, F401  (lets torch read fairseq's checkpoints, and no others)
from fairseq_plugins.errors import ConfigurationError  # noqa: E402

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


def main(arguments: Optional[Sequence[str]] = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--inputs", nargs="+", type=Path, required=True, metavar="PATH",
        help="checkpoints, or one folder of checkpoints with --last or --best",
    )  # fmt: skip
    parser.add_argument("--output", type=Path, required=True, help="where to write the average")
    how_many = parser.add_mutually_exclusive_group()
    how_many.add_argument("--last", type=int, metavar="K", help="the newest K of the folder")
    how_many.add_argument("--best", type=int, metavar="K", help="the best K of the folder")
    parser.add_argument(
        "--by", choices=["epoch", "update"], default="epoch",
        help="what --last counts: checkpoints of epochs (default) or of updates",
    )  # fmt: skip
    args = parser.parse_args(arguments)
    paths = choose(args.inputs, args.last, args.best, args.by)
    state = average(paths)
    temporary = args.output.with_name(args.output.name + ".tmp")
    torch.save(state, str(temporary))
    os.replace(temporary, args.output)
    print(f"wrote the average of {len(paths)} checkpoints to {args.output}")


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
    return checkpoint_utils.load_checkpoint_to_cpu(str(path))


def average(paths: Sequence[Path]) -> Dict[str, Any]:
    """The state of the last checkpoint with the mean of all parameters.

    Raises ConfigurationError if the models have different parameters. Whatever is no floating
    point number (a count) is the last checkpoint's.
    """
    sums: Dict[str, torch.Tensor] = {}
    state: Dict[str, Any] = {}
    for number, path in enumerate(paths, 1):
        print(f"{number}/{len(paths)} {path}", flush=True)
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


if __name__ == "__main__":
    main()
