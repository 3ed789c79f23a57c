"""Prepare MIND for recommendation.

The prepared folder holds

- `text/titles/{train,test}`: titles as words in lower case, and what news they are of (`.id`): all
  news of train, then those that only test has;
- `input0/`: the dictionary of the words of train, and binary titles;
- `impressions/`: impressions as `impressions.py` stores them, and the names they have (`.id`);
- `removed.txt`: every line that could not be used, and why.
"""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fairseq_plugins.data import report
from fairseq_plugins.data.binary import binarise_words
from fairseq_plugins.data.preparation import Preparation
from fairseq_plugins.data.readers import SPLITS
from fairseq_plugins.data.report import (
    NORMALISED,
    REMOVED,
    Removed,
    removed_lines,
    show,
    table,
    unknown_tokens,
)
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import digest, read_lines, write_lines, written_whole
from fairseq_plugins.lab.corpora import mind, rows
from fairseq_plugins.lab.recommendation.impressions import pack
from fairseq_plugins.system.progress import progress_bar
from fairseq_plugins.text.processing import NFC, normalise

TITLES, IMPRESSIONS = "text/titles", "impressions"
COUNTED = ("impressions", "no history", "clicked before", "shown", "clicks")
WORD = re.compile(r"\w+|[^\w\s]")


def prepare(destination: Path, train: Path, test: Path, valid_every: int, workers: int) -> None:
    """Make the folder and print its report.

    Args:
        destination: the folder.
        train, test: folders with news.tsv and behaviors.tsv.
        valid_every: every n-th impression of train goes to valid.
        workers: number of processes.

    Raises:
        ConfigurationError: a file cannot be read, or a split has no impression.
    """
    names = [folder / name for folder in (train, test) for name in (mind.NEWS, mind.BEHAVIORS)]
    settings: dict[str, Any] = {"task": "news_recommendation", "valid_every": valid_every}
    settings.update(inputs=[digest(path) for path in names], normalization=NFC)
    with Preparation(destination, settings) as preparation:
        if not preparation.finished:
            folder = preparation.folder
            results = _read(folder, train, test, valid_every)
            texts = {
                part: folder / TITLES / part for part, count in results["news"].items() if count
            }
            (folder / "input0").mkdir()
            how = str(folder / "input0/{split}"), folder / "input0/dict.txt"
            results["unknown"] = binarise_words(texts, *how)
            report.write(folder, _report(results))
            preparation.finish(results)
    show(destination)


def _read(folder: Path, train: Path, test: Path, valid_every: int) -> dict[str, Any]:
    """Write titles and impressions; returns how many there are, and what was left out."""
    with written_whole(folder / REMOVED) as file:
        bad = Removed(file)
        results = _read_news(folder, train, test, bad)
        counts = _read_impressions(folder, train, test, valid_every, bad)
    return {**results, "counts": counts, "removed": bad.reasons}


def _read_news(folder: Path, train: Path, test: Path, bad: Removed) -> dict[str, Any]:
    """Write titles and IDs; returns the numbers of news and of words."""
    known: set[str] = set()
    counted: dict[str, Any] = {"news": {}, "words": {}}
    for part, source in (("train", train), ("test", test)):
        titles, ids = [], []
        for row in mind.read_news(source / mind.NEWS, known):
            if row.problem:
                bad.add(part, row.place, row.problem)
                continue
            ids.append(row.columns[0])
            titles.append(" ".join(WORD.findall(normalise(row.columns[3]).lower())))
        write_lines(folder / TITLES / part, titles)
        write_lines(folder / TITLES / f"{part}.id", ids)
        counted["news"][part] = len(ids)
        counted["words"][part] = sum(len(title.split()) for title in titles)
    return counted


def _read_impressions(
    folder: Path, train: Path, test: Path, valid_every: int, bad: Removed
) -> dict[str, dict[str, int]]:
    """Write impressions; returns the numbers of each split."""
    import numpy as np
    import torch
    from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

    parts = [read_lines(folder / TITLES / f"{part}.id") for part in ("train", "test")]
    numbers = {name: number for number, name in enumerate(itertools.chain(*parts))}
    (folder / IMPRESSIONS).mkdir(exist_ok=True)
    prefixes = {split: str(folder / IMPRESSIONS / split) for split in SPLITS}
    files = {
        split: MMapIndexedDatasetBuilder(f"{prefix}.bin", dtype=np.int32)
        for split, prefix in prefixes.items()
    }
    counts = {split: dict.fromkeys(COUNTED, 0) for split in SPLITS}
    ids: dict[str, list[str]] = {split: [] for split in SPLITS}
    for split, name, (history, shown, clicked) in _usable(train, test, valid_every, numbers, bad):
        sizes = (1, not history, len(history), len(shown), sum(clicked))
        for counted, size in zip(COUNTED, sizes):
            counts[split][counted] += size
        ids[split].append(name)
        if split == "train":  # one for each click
            others = [news for news, click in zip(shown, clicked) if not click]
            marks = [True, *[False] * len(others)]
            for news in itertools.compress(shown, clicked):
                files[split].add_item(torch.tensor(pack(history, [news, *others], marks)))
        else:
            files[split].add_item(torch.tensor(pack(history, shown, clicked)))
    for split in SPLITS:
        files[split].finalize(f"{prefixes[split]}.idx")
        write_lines(folder / IMPRESSIONS / f"{split}.id", ids[split])
        if not counts[split]["impressions"]:
            source = (test if split == "test" else train) / mind.BEHAVIORS
            raise ConfigurationError(
                f"no impression of {split} can be used (from {source}): "
                + bad.first.get(split, "there is none")
            )
    return counts


def _usable(
    train: Path, test: Path, valid_every: int, numbers: dict[str, int], bad: Removed
) -> Iterator[tuple[str, str, mind.Impression]]:
    """Split, number and content of each impression that can be used."""
    for part, source in (("train", train), ("test", test)):
        lines = rows(source / mind.BEHAVIORS, mind.BEHAVIOR_COLUMNS)
        bar = progress_bar(lines, description=f"impressions of {part}", unit=" lines")
        for number, row in enumerate(bar, 1):
            split = "valid" if part == "train" and number % valid_every == 0 else part
            try:
                impression = mind.read_impression(row, numbers)
            except ValueError as problem:
                bad.add(split, row.place, str(problem))
            else:
                yield split, row.columns[0], impression


def _report(results: dict[str, Any]) -> list[str]:
    texts = {
        part: {"unknown": unknown, "tokens": results["words"][part]}
        for part, unknown in results["unknown"].items()
    }
    lines = [["split", *COUNTED]]
    for split, count in results["counts"].items():
        lines.append([split, *(f"{count[counted]:,}" for counted in COUNTED)])
    return [
        *table(lines),
        "",
        "Clicked before and shown are sums. Titles are in lower case, cut into words and signs.",
        "{train:,} news in train, and {test:,} more in test.".format(**results["news"]),
        *unknown_tokens(texts, "words"),
        "",
        *removed_lines(results["removed"], "lines"),
        NORMALISED,
    ]
