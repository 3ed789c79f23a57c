"""Options that several commands share."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fairseq_plugins.options.arguments import Command
from fairseq_plugins.options.fields import option


@dataclass
class UserDirs:
    """Of commands that load models."""

    user_dir: Sequence[Path] = option(
        (), "a folder with your own parts, models and tasks, which is imported as fairseq does; "
        "repeatable", metavar="DIR", repeatable=True,
    )  # fmt: skip


@dataclass
class Device(UserDirs):
    """Of commands that run models."""

    cpu: bool = option(False, "do not use a GPU")


@dataclass
class Precision:
    """Of commands that generate text."""

    fp16: bool = option(False, "compute in half precision on a GPU")
    int8: bool = option(False, "compute 8-bit matrix products, which are much faster on a CPU")


@dataclass
class Averaging(Command):
    """Of commands that choose among the checkpoints of a training."""

    last: int | None = option(
        None, "average the newest K checkpoints", least=1, metavar="K", group="checkpoints"
    )
    best: int | None = option(
        None, "average the best K checkpoints, which --keep-best-checkpoints kept", least=1,
        metavar="K", group="checkpoints",
    )  # fmt: skip
    by: str | None = option(
        None, "what --last counts (default: epochs, where training kept their checkpoints)",
        choices=("epoch", "update"), needs="last",
    )  # fmt: skip
