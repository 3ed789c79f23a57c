"""ListOps of the Long-Range Arena: nested operations on digits, and their value as the label.

    9 <TAB> [MAX 2 9 [MIN 4 7 ] 0 ]

Nangia & Bowman 2018; drawn as the Long-Range Arena's generator does (Tay et al. 2020).
"""

import hashlib
import random
from pathlib import Path
from typing import Callable, Dict, List, NamedTuple, Optional, Set, Tuple

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.preparation.files import write_lines
from fairseq_plugins.preparation.progress import progress_bar

OPERATORS: Dict[str, Callable[[List[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    # the mean of the two in the middle is rounded down
    "[MED": lambda values: (
        sum(sorted(values)[(len(values) - 1) // 2 : len(values) // 2 + 1]) // (2 - len(values) % 2)
    ),
    "[SM": lambda values: sum(values) % 10,
}
NAMES = tuple(OPERATORS)
END = "]"
TRIES = 100000  # for one expression


class Shape(NamedTuple):
    """How expressions are drawn.

    Attributes:
        operator_share: probability that a node is an operation; else it is a digit. The published
            code gives operations 0.25, in a constant that it calls VALUE_P.
        max_args: arguments of an operation, from 2.
        max_depth: nodes at this depth are digits; the root has depth 1.
        min_length, max_length: words of an expression, brackets among them, are more than the first
            and fewer than the second.
    """

    operator_share: float = 0.25
    max_args: int = 10
    max_depth: int = 10
    min_length: int = 500
    max_length: int = 2000


def draw(uniform: Callable[[], float], shape: Shape) -> Optional[Tuple[List[str], int]]:
    """The words of an expression and its value, or None for one of another length.

    Args:
        uniform: gives numbers from [0, 1).
        shape: the distribution.
    """
    words: List[str] = []
    # one for each operation that is open: its name, the values so far, how many are to come
    stack: List[Tuple[str, List[int], int]] = []
    while True:
        if len(words) + len(stack) >= shape.max_length:
            return None
        if len(stack) < shape.max_depth - 1 and uniform() < shape.operator_share:
            # the number of arguments before the operator, as the published code draws them
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


def draw_new(uniform: Callable[[], float], shape: Shape, seen: Set[bytes]) -> Tuple[List[str], int]:
    """The same, but of a length that fits, and not drawn before; adds it to `seen`.

    Raises:
        ConfigurationError: there is none, or none that can be found.
    """
    for _ in range(TRIES):
        found = draw(uniform, shape)
        if found is None:
            continue
        name = hashlib.blake2b(" ".join(found[0]).encode(), digest_size=16).digest()
        if name not in seen:
            seen.add(name)
            return found
    raise ConfigurationError(
        f"none of {TRIES:,} expressions is new and has more than {shape.min_length} and fewer than "
        f"{shape.max_length} words: change --min-length, --max-length, --max-depth or --max-args"
    )


def write(folder: Path, seed: int, sizes: Dict[str, int], shape: Shape) -> None:
    """Write `train.tsv` and so on, each whole or not at all.

    No expression occurs twice, in one split or two. The same arguments give the same bytes with
    every Python, and the size of train changes nothing in the other splits.

    Raises:
        ConfigurationError: there are not enough expressions of such lengths.
    """
    seen: Set[bytes] = set()
    for split in sorted(sizes, key=lambda name: (name == "train", name)):
        uniform = random.Random(f"{seed} {split}").random  # only random() is promised to stay
        numbers = progress_bar(range(sizes[split]), description=split, unit=" lines")
        drawn = (draw_new(uniform, shape, seen) for _ in numbers)
        write_lines(
            folder / f"{split}.tsv", (f"{value}\t{' '.join(words)}" for words, value in drawn)
        )
