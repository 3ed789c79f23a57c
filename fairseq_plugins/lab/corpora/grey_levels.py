"""Grey pictures of 32 x 32 as sequences of words, for the Long-Range Arena."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from fairseq_plugins.data.classification import classification_settings
from fairseq_plugins.options.arguments import Command
from fairseq_plugins.options.fields import option
from fairseq_plugins.system.workers import Workers

SIZE = 32


@dataclass
class Pictures(Workers, Command):
    """The options of a preparation of pictures."""

    shrink: int = option(
        1, "make one position of N x N pixels, their mean; results do not compare with the "
        "benchmark's, which has 1", choices=(1, 2, 4),
    )  # fmt: skip


def settings(args: Any) -> dict[str, Any]:
    """The settings of a preparation with these options."""
    shrunk = {} if args.shrink == 1 else {"shrink": args.shrink}
    return {**classification_settings(args, "pixels"), **shrunk}


def as_text(levels: np.ndarray, shrink: int = 1) -> str:
    """The rows of a picture, one behind the other, as numbers from 0 to 255 with spaces between.

    Args:
        levels: SIZE x SIZE.
        shrink: a divisor of SIZE; each number is the mean of shrink x shrink levels, rounded.
    """
    side = SIZE // shrink
    means = levels.reshape(side, shrink, side, shrink).mean(axis=(1, 3))
    return " ".join(map(str, np.floor(means + 0.5).astype(int).ravel()))
