"""What to train, and the plan. Nothing here needs torch or fairseq."""

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.options import recipes
from fairseq_plugins.options.arguments import Command
from fairseq_plugins.options.fields import MOST, argument, option
from fairseq_plugins.options.groups import Device
from fairseq_plugins.train import precision
from fairseq_plugins.train.fairseq_program import words_of
from fairseq_plugins.train.run_folder import Run

PLUGIN = Path(__file__).resolve().parent.parent


@dataclass
class TrainingRequest(Device, Command):
    """What to train, and where: the options of the command."""

    recipe: Path = argument(f"a YAML file, or one of {', '.join(recipes.names())}", "RECIPE")
    data: Path = argument("the prepared folder", "DATA")
    save_dir: Path | None = option(
        None, "the folder of the run (default: runs/RECIPE in the current folder)", metavar="DIR"
    )
    settings: Sequence[Path] = option(
        (), "more settings: a YAML file like a recipe, a file of command-line options, or a name "
        "from the recipe's folder, such as reduced_cpu; repeatable, and later files win",
        metavar="FILE", repeatable=True,
    )  # fmt: skip
    words: Sequence[str] = option((), "more options for fairseq-train", rest=True)
    processes: int | None = option(
        None, "the number of processes on this machine (default: one per GPU, or 1 without a GPU)",
        least=1, most=MOST,
    )  # fmt: skip
    tokens_per_process: int | None = option(
        None, "the limit of tokens per batch, to save memory; each update then accumulates more "
        "batches", least=1,
    )  # fmt: skip
    nodes: str = option(
        "1", "the number of machines; run the same command on each, with --rendezvous; with "
        "LEAST:MOST, such as 1:4, the others continue if one is lost", metavar="N",
    )  # fmt: skip
    rendezvous: str | None = option(
        None, "the name of one of the machines, and a free port on it", metavar="HOST:PORT"
    )
    precision: str = option("auto", precision.HELP, choices=precision.PRECISIONS)
    threads: int | None = option(
        None, "the number of processor threads of each process on a CPU (default: "
        "OMP_NUM_THREADS, or the processes share the cores)", least=1, most=MOST,
    )  # fmt: skip
    eager: bool = option(
        False, "on one GPU, launch the kernels of a step one by one (default: translators and "
        "summarizers in half precision capture whole steps in CUDA graphs: --cuda-graphs)",
    )  # fmt: skip
    dry_run: bool = option(
        False, "write nothing: make some updates, and report the time, the number of parameters "
        "and the command",
    )  # fmt: skip

    @property
    def name(self) -> str:
        return self.recipe.stem

    @property
    def machines(self) -> tuple[int, int]:
        """The least and the most of --nodes.

        Raises:
            ConfigurationError: it gives no such numbers.
        """
        found = re.fullmatch(r"(?:([0-9]+):)?([0-9]+)", self.nodes)
        least, most = map(int, (found[1] or found[2], found[2])) if found else (0, 0)
        if not 1 <= least <= most <= MOST:
            raise ConfigurationError(
                f"--nodes {self.nodes}: give a number of machines from 1 to {MOST}, or the least "
                "and the most, such as 1:4"
            )
        return least, most

    @property
    def run(self) -> Run:
        return Run(self.save_dir or Path("runs") / self.name)


class Plan(NamedTuple):
    """The command to run, and the settings it results from."""

    request: TrainingRequest
    words: list[str]  # the arguments of fairseq-train
    launcher: list[str]  # the options of torchrun; empty for a single process
    shares: dict[int, list[str]]  # a line and options for each number of processes that may train
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
        return self.request.machines[1]

    @property
    def save_dir(self) -> Path:
        return self.request.run.folder

    @property
    def command(self) -> list[str]:
        """The command that trains so without this package's `train`."""
        torchrun = ["-m", "torch.distributed.run", *self.launcher] if self.launcher else []
        return [sys.executable, *torchrun, *words_of("train"), *self.words]
