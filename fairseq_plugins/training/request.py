"""What to train, and the plan. Nothing here needs torch or fairseq."""

import argparse
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

from fairseq_plugins.run_folder import Run

PLUGIN = Path(__file__).resolve().parent.parent


class Request(NamedTuple):
    """What to train, and where."""

    recipe: Path
    data: Path
    save_dir: Optional[Path] = None  # None: runs/NAME in the current folder
    settings: Sequence[Path] = ()
    words: Sequence[str] = ()  # more options for fairseq-train
    processes: Optional[int] = None  # None: one per GPU
    tokens_per_process: Optional[int] = None
    nodes: int = 1
    rendezvous: Optional[str] = None
    precision: str = "auto"
    cpu: bool = False
    threads: Optional[int] = None  # per process on a CPU; None: the processes share the cores
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
    command: List[str]
    save_dir: Path
    summary: List[str]
    settings: Dict[str, Any]  # everything that affects the result
    end: Dict[str, Any]  # what ends the training
    longer: str  # how to train longer, for a message
    saves: bool  # whether it writes checkpoints
    given: argparse.Namespace  # options parsed by fairseq-train; not sent by `process`
    threads: Optional[int]  # per process; None leaves the choice to torch
    nodes: int

    @property
    def alone(self) -> bool:
        """Whether one process trains, directly as fairseq-train."""
        return "torch.distributed.run" not in self.command
