"""What to train, and the plan. Nothing here needs torch or fairseq."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_plugins.run_folder import Run

PLUGIN = Path(__file__).resolve().parent.parent


class TrainingRequest(NamedTuple):
    """What to train, and where."""

    recipe: Path
    data: Path
    save_dir: Path | None = None  # None: runs/NAME in the current folder
    settings: Sequence[Path] = ()
    words: Sequence[str] = ()  # more options for fairseq-train
    processes: int | None = None  # None: one per GPU
    tokens_per_process: int | None = None
    nodes: int = 1
    rendezvous: str | None = None
    precision: str = "auto"
    cpu: bool = False
    threads: int | None = None  # per process on a CPU; None: the processes share the cores
    user_dir: Path = PLUGIN
    eager: bool = False  # launch the kernels of a step on a GPU one by one
    dry_run: bool = False  # only report what would be done

    @property
    def name(self) -> str:
        return self.recipe.stem

    @property
    def run(self) -> Run:
        return Run(self.save_dir or Path("runs") / self.name)


class Plan(NamedTuple):
    """The command to run, and the settings it results from."""

    name: str
    command: list[str]
    save_dir: Path
    summary: list[str]
    settings: dict[str, Any]  # everything that affects the result
    end: dict[str, Any]  # what ends the training
    longer: str  # how to train longer, for a message
    saves: bool  # whether it writes checkpoints
    given: argparse.Namespace  # options parsed by fairseq-train; not sent by `process`
    threads: int | None  # per process; None leaves the choice to torch
    nodes: int

    @property
    def alone(self) -> bool:
        """Whether one process trains, directly as fairseq-train."""
        return "torch.distributed.run" not in self.command
