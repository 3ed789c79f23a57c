"""Grey pictures of 32 x 32 as sequences of words, for the Long-Range Arena."""

import argparse
from typing import Any

import numpy as np

from fairseq_plugins.data.classification import classification_settings
from fairseq_plugins.options.arguments import add_fields
from fairseq_plugins.system.workers import Workers

SIZE = 32


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a preparation of pictures."""
    parser.add_argument(
        "--shrink",
        type=int,
        choices=(1, 2, 4),
        default=1,
        help="make one position of N x N pixels, their mean; results do not compare with the "
        "benchmark's, which has 1 (default: %(default)s)",
    )
    add_fields(parser, Workers)
    parser.set_defaults(vocab_size=None, sentencepiece_documents=None, max_positions=None)


def settings(args: argparse.Namespace) -> dict[str, Any]:
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
