"""What to train, and the plan. Nothing here needs torch or fairseq."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_plugins.train.fairseq_program import words_of
from fairseq_plugins.train.run_folder import Run

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
    eager: bool = False  # launch the kernels of a step on a GPU one by one
    dry_run: bool = False  # only report what would be done
    user_dir: Sequence[Path] = ()  # folders of other packages

    @property
    def name(self) -> str:
        return self.recipe.stem

    @property
    def run(self) -> Run:
        return Run(self.save_dir or Path("runs") / self.name)


class Plan(NamedTuple):
    """The command to run, and the settings it results from."""

    request: TrainingRequest
    words: list[str]  # the arguments of fairseq-train
    launcher: list[str]  # the options of torchrun; empty for a single process
    processes: int  # of this machine
    summary: list[str]
    settings: dict[str, Any]  # everything that affects the result
    end: dict[str, Any]  # what ends the training
    longer: str  # how to train longer, for a message
    given: argparse.Namespace  # options parsed by fairseq-train
    threads: int | None  # per process on a CPU; None leaves the choice to torch

    @property
    def name(self) -> str:
        return self.request.name

    @property
    def nodes(self) -> int:
        return self.request.nodes

    @property
    def save_dir(self) -> Path:
        return self.request.run.folder

    @property
    def command(self) -> list[str]:
        """The command that trains so without this package's `train`."""
        torchrun = ["-m", "torch.distributed.run", *self.launcher] if self.launcher else []
        return [sys.executable, *torchrun, *words_of("train"), *self.words]
