"""Corpora of the papers' tables, read in the formats in which they are released.

Each becomes the folder that prepare-classification makes. What cannot be used is skipped, counted
in the report, and named in removed.txt with its file and line.
"""

import os
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_plugins.data.classification import Labelled
from fairseq_plugins.data.pipeline import prepare_folder
from fairseq_plugins.data.readers import (
    SPLITS,
    Corpus,
    Example,
    Unusable,
    numbered_lines,
    text_of,
)
from fairseq_plugins.data.report import show
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.options.arguments import Command
from fairseq_plugins.options.fields import REQUIRED, option


class Row(NamedTuple):
    """A line of a table as its columns, with its place (FILE:LINE), or the problem with it."""

    place: str
    columns: list[str]
    problem: str = ""


def rows(path: Path, columns: int) -> Iterator[Row]:
    """The lines of a file with this many columns, separated by tabs.

    Raises:
        ConfigurationError: as `numbered_lines`.
    """
    for number, line in numbered_lines(path):
        if line == b"":
            continue
        place = f"{path.name}:{number}"
        try:
            cells = text_of(line).rstrip("\r").split("\t")
            problem = "" if len(cells) == columns else f"not {columns} columns: {len(cells)}"
            yield Row(place, cells, problem)
        except Unusable as error:
            yield Row(place, [], str(error))


def sampled(documents: Iterable[Example], sizes: dict[str, int], seed: int) -> Iterator[Example]:
    """Yield the documents with a problem as they come, then a random sample, split by split.

    If fewer can be used, the splits share them in the proportions of `sizes`. The first document of
    each label goes to the first split, so that no other split has a label of its own.

    Args:
        documents: read once; no more than the sample are held in memory.
        sizes: the number of documents of each split, train first.
        seed: another seed gives another sample.
    """
    # Python guarantees a stable stream across versions for random() only
    uniform = random.Random(f"sample {seed}").random
    total, seen = sum(sizes.values()), 0
    kept: list[Example] = []
    for document in documents:
        if document.problem:
            yield document
            continue
        seen += 1
        if len(kept) < total:
            kept.append(document)
        elif (place := int(uniform() * seen)) < total:
            kept[place] = document
    keys = [uniform() for _ in kept]
    labels: dict[str, int] = {}
    for number in sorted(range(len(kept)), key=keys.__getitem__):
        labels.setdefault(kept[number].target, number)
    firsts = set(labels.values())
    order = sorted(range(len(kept)), key=lambda number: (number not in firsts, keys[number]))
    start = end = 0
    for split, size in sizes.items():
        end += size
        last = len(kept) * end // total
        yield from (kept[number]._replace(split=split) for number in order[start:last])
        start = last


@dataclass
class Seeded(Command):
    """The option of commands that draw at random."""

    seed: int = option(1, "the random seed; another one gives other data")


@dataclass
class Sample(Seeded):
    """The options of a random sample; commands have the sizes of a paper as defaults."""

    train: int = option(REQUIRED, "the number of training texts", least=1)
    held_out: int = option(REQUIRED, "the number of validation texts, and of test texts", least=1)


def sizes_of(args: Any) -> dict[str, int]:
    """The size of each split by the options --train and --held-out."""
    return dict(zip(SPLITS, (args.train, args.held_out, args.held_out)))


class Corpora(Labelled):
    """Labelled texts, with a line in the report if a sample is smaller than asked for."""

    def notes(self, folder: Path, results: dict[str, Any]) -> list[str]:
        asked = self.settings.get("sizes", {})
        told = " / ".join(f"{size:,}" for size in asked.values())
        if sum(results["examples"].values()) < sum(asked.values()):
            self.more_notes.append(
                f"Fewer than {told} texts can be used: the splits share them in that proportion."
            )
        return super().notes(folder, results)


def prepare_sample(
    args: Any,
    settings: dict[str, Any],
    documents: Callable[[], Iterable[Example]],
    **how: Any,
) -> None:
    """As `prepare_corpus`, of a random sample by the options of `Sample`."""
    sizes = sizes_of(args)
    settings.update(sizes=sizes, seed=args.seed)
    prepare_corpus(args, settings, lambda: sampled(documents(), sizes, args.seed), **how)


def prepare_corpus(
    args: Any,
    settings: dict[str, Any],
    documents: Callable[[], Iterable[Example]],
    read: Callable[[Example], Example] = lambda document: document,
    notes: Iterable[str] = (),
) -> None:
    """Make the folder of a corpus and print its report.

    Args:
        args: of the command: `destination` and `workers`.
        settings: of the preparation; "sizes" are those asked for of a sample.
        documents: called for the documents of the corpus.
        read: reads a document where `documents` only says where it is.
        notes: lines for the report.
    """
    task = Corpora(settings, SPLITS, notes)
    prepare_folder(args.destination, task, lambda _: Corpus(documents(), read), args.workers)
    show(args.destination)


def check_new(folder: Path, names: Iterable[str]) -> None:
    """Refuse to replace files.

    Raises:
        ConfigurationError: the folder has one of these names.
    """
    for name in names:
        if os.path.lexists(folder / name):
            raise ConfigurationError(
                f"{folder / name} exists: give another folder, or delete the file to write it again"
            )
