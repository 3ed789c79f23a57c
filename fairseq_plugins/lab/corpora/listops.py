"""Generate ListOps: nested operations on digits; the label is the value of the expression.

    9 <TAB> [MAX 2 9 [MIN 4 7 ] 0 ]

The task is by Nangia & Bowman 2018. Expressions are sampled as in the generator of the Long-Range
Arena (Tay et al. 2020).
"""

import hashlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import write_lines
from fairseq_plugins.system.progress import progress_bar

OPERATORS: dict[str, Callable[[list[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    # for an even number of values: the mean of the middle two, rounded down
    "[MED": lambda values: (
        sum(sorted(values)[(len(values) - 1) // 2 : len(values) // 2 + 1]) // (2 - len(values) % 2)
    ),
    "[SM": lambda values: sum(values) % 10,
}
NAMES = tuple(OPERATORS)
END = "]"
TRIES = 100000  # to sample one expression that fits


class Shape(NamedTuple):
    """The distribution of expressions.

    Attributes:
        operator_share: probability that a node is an operation instead of a digit. The published
            code uses 0.25, in a constant with the name VALUE_P.
        max_args: the largest number of arguments of an operation; the smallest is 2.
        max_depth: nodes at this depth are digits; the root has depth 1.
        min_length, max_length: exclusive limits of the number of words, brackets included.
    """

    operator_share: float = 0.25
    max_args: int = 10
    max_depth: int = 10
    min_length: int = 500
    max_length: int = 2000


def draw(uniform: Callable[[], float], shape: Shape) -> tuple[list[str], int] | None:
    """Sample an expression; returns its words and value, or None if its length does not fit.

    Args:
        uniform: returns random numbers from [0, 1).
        shape: the distribution.
    """
    words: list[str] = []
    # for each open operation: its name, the values so far, and its number of arguments
    stack: list[tuple[str, list[int], int]] = []
    while True:
        if len(words) + len(stack) >= shape.max_length:
            return None
        if len(stack) < shape.max_depth - 1 and uniform() < shape.operator_share:
            count = 2 + int(uniform() * (shape.max_args - 1))
            name = NAMES[int(uniform() * len(NAMES))]
            words.append(name)
            stack.append((name, [], count))
            continue
        value = int(uniform() * 10)
        words.append(str(value))
        while stack:
            name, values, count = stack[-1]
            values.append(value)
            if len(values) < count:
                break
            value = OPERATORS[name](values)
            words.append(END)
            stack.pop()
        if not stack:
            fits = shape.min_length < len(words) < shape.max_length
            return (words, value) if fits else None


def draw_new(uniform: Callable[[], float], shape: Shape, seen: set[bytes]) -> tuple[list[str], int]:
    """Sample an expression that fits and is not in `seen`, and add it to `seen`.

    Returns:
        its words and its value.

    Raises:
        ConfigurationError: no such expression in `TRIES` samples.
    """
    for _ in range(TRIES):
        drawn = draw(uniform, shape)
        if drawn is None:
            continue
        name = hashlib.blake2b(" ".join(drawn[0]).encode(), digest_size=16).digest()
        if name not in seen:
            seen.add(name)
            return drawn
    raise ConfigurationError(
        f"none of {TRIES:,} expressions is new and has more than {shape.min_length} and fewer than "
        f"{shape.max_length} words: change --min-length, --max-length, --max-depth or --max-args"
    )


def write(folder: Path, seed: int, sizes: dict[str, int], shape: Shape) -> None:
    """Write `train.tsv` and the other splits, each atomically.

    No expression occurs twice, in the same split or in different ones. The same arguments give the
    same bytes with every version of Python. The size of train does not affect the other splits.

    Args:
        folder: the folder to write.
        seed: the seed of the samples.
        sizes: the number of expressions of each split.
        shape: the distribution.

    Raises:
        ConfigurationError: there are not enough expressions of these lengths.
    """
    seen: set[bytes] = set()
    for split in sorted(sizes, key=lambda name: (name == "train", name)):
        # Python guarantees a stable stream across versions for random() only
        uniform = random.Random(f"{seed} {split}").random
        numbers = progress_bar(range(sizes[split]), description=split, unit=" lines")
        drawn = (draw_new(uniform, shape, seen) for _ in numbers)
        write_lines(
            folder / f"{split}.tsv", (f"{value}\t{' '.join(words)}" for words, value in drawn)
        )
