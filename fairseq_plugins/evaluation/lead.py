"""The first sentences of each document: the baseline that a summarizer has to beat."""

import sys
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.preparation.sentences import (
    join_sentences,
    separate_sentences,
    split_sentences,
)
from fairseq_plugins.preparation.stories import read_ids, read_stories


def lead(document: str, sentences: int) -> str:
    """The first sentences of a document, found by punctuation, as a summary in one line."""
    found: List[str] = []
    for part in separate_sentences(document):
        found += split_sentences(part)
        if len(found) >= sentences:
            break
    return join_sentences(found[:sentences])


def read_pairs(source: Path, target: Path) -> Tuple[List[str], List[str]]:
    """Documents and summaries of two files with one of them a line.

    Raises:
        ConfigurationError: a file cannot be read, or they have different numbers of lines.
    """
    sources, targets = _read_lines(source), _read_lines(target)
    if len(sources) != len(targets):
        raise ConfigurationError(
            f"{source} has {len(sources):,} lines and {target} {len(targets):,}: they must be "
            "aligned line by line"
        )
    return sources, targets


def read_archives(archives: Sequence[Path], ids: Optional[Path]) -> Tuple[List[str], List[str]]:
    """Documents and summaries of CNN/DailyMail's story archives, those of `ids` or all."""
    wanted = None if ids is None else set(read_ids(ids))
    sources, targets, broken = [], [], 0
    for story in read_stories(archives):
        if wanted is not None and story.id not in wanted:
            continue
        if story.problem:
            broken += 1
            continue
        sources.append("\n".join(story.article))
        targets.append(join_sentences(story.highlights))
    if broken:
        print(f"{broken} empty or broken stories are left out", file=sys.stderr)
    return sources, targets


def _read_lines(path: Path) -> List[str]:
    try:
        with open(path, encoding="utf-8", newline="\n") as lines:
            return [line.rstrip("\n") for line in lines]
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {path}: {error}") from None
