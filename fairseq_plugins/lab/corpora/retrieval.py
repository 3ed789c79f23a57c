"""Retrieval of the Long-Range Arena: does one paper cite the other?

Source: the ACL Anthology Network (Radev et al. 2013) in the pairs of Tay et al. (2020),
`lra_release/tsv_data/new_aan_pairs.{train,eval,test}.tsv`. Format: label (0.0 or 1.0), two IDs and
two texts, which tabs separate, without a header. A model reads 4,000 bytes of each text.
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

from fairseq_plugins.data.readers import SPLITS, Example
from fairseq_plugins.files import write_lines
from fairseq_plugins.lab.corpora import rows

NAME = "new_aan_pairs.{}.tsv"
NAMES = dict(zip(SPLITS, map(NAME.format, ("train", "eval", "test"))))
FIELDS, SYLLABLES = 40, 6  # of made-up texts


def pairs(folder: Path) -> Iterator[Example]:
    """The pairs of all splits; a tab separates their texts.

    Raises:
        ConfigurationError: a file cannot be read, or is damaged.
    """
    for split, name in NAMES.items():
        for row in rows(folder / name, 5):
            label, text, problem = "", "", row.problem
            if not problem:
                label = {"0": "0", "0.0": "0", "1": "1", "1.0": "1"}.get(row.columns[0].strip(), "")
                sides = [" ".join(side.split()) for side in row.columns[3:]]
                text = "\t".join(sides)
                problem = "" if all(sides) else "no text"
                problem = problem if label else "the label is neither 0 nor 1"
            yield Example(split, row.place, "" if problem else text, label, problem)


def write_made_up(folder: Path, sizes: dict[str, int], words: int, seed: int) -> None:
    """Write pairs in this format whose label is whether both texts are of one field.

    Each of `FIELDS` fields has its own syllables, which form the words of its texts. Fields
    share most of them.

    Args:
        folder: gets the three files, each written whole.
        sizes: the number of pairs of each split.
        words: of each text.
        seed: another seed gives other fields and texts.
    """
    known = [first + vowel for first in "bdfgklmnprst" for vowel in "aeiou"]
    draw = random.Random(f"fields {seed}").random
    fields = [[known[int(draw() * len(known))] for _ in range(SYLLABLES)] for _ in range(FIELDS)]
    for split, size in sizes.items():
        uniform = random.Random(f"{seed} {split}").random
        lines = (_made_up(uniform, fields, number, words) for number in range(size))
        write_lines(folder / NAMES[split], lines)


def _made_up(uniform: Callable[[], float], fields: list[list[str]], number: int, words: int) -> str:
    """A line whose label is 1 where `number` is odd."""
    same, one = number % 2, int(uniform() * FIELDS)
    other = one if same else (one + 1 + int(uniform() * (FIELDS - 1))) % FIELDS
    texts = [
        " ".join("".join(of[int(uniform() * SYLLABLES)] for _ in range(2)) for _ in range(words))
        for of in (fields[one], fields[other])
    ]
    return "\t".join([f"{same}.0", f"{number}a", f"{number}b", *texts])
