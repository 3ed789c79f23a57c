"""Extractive baselines for summarization: lead, random sentences, and the oracle."""

import random
import re
import sys
from collections import Counter
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
    """The lead baseline: the first sentences of a document, in one line.

    Punctuation marks the ends of sentences.
    """
    return join_sentences(_split(document, sentences)[:sentences])


def draw(document: str, sentences: int, generator: random.Random) -> str:
    """The random baseline: up to `sentences` random sentences, in the document's order."""
    found = _split(document)
    chosen = generator.sample(range(len(found)), min(sentences, len(found)))
    return join_sentences(found[n] for n in sorted(chosen))


def oracle(document: str, summary: str, sentences: int) -> str:
    """The greedy oracle: up to `sentences` sentences that match the reference summary best.

    Each step adds the sentence that increases ROUGE-1 + ROUGE-2 (F1, without stemming) of the
    selection most, and stops if none increases it (Nallapati et al. 2017). The result, in the
    document's order, is an approximate upper bound for extractive summarizers.
    """
    found = _split(document)
    counts, reference = [_ngrams(s) for s in found], _ngrams(*separate_sentences(summary))
    taken: List[int] = []
    best = 0.0
    while len(taken) < sentences:
        scores = {
            n: sum(
                _f1(sum((counts[m][size] for m in (*taken, n)), Counter()), reference[size])
                for size in range(2)
            )
            for n in range(len(found))
            if n not in taken
        }
        choice = max(scores, key=lambda n: scores[n], default=None)
        if choice is None or scores[choice] <= best:
            break
        best = scores[choice]
        taken.append(choice)
    return join_sentences(found[n] for n in sorted(taken))


def _split(document: str, enough: Optional[int] = None) -> List[str]:
    """All sentences of a document, or at least the first `enough`."""
    found: List[str] = []
    for part in separate_sentences(document):
        found += split_sentences(part)
        if enough is not None and len(found) >= enough:
            break
    return found


def _ngrams(*sentences: str) -> List[Counter]:
    """Counts of unigrams and of bigrams."""
    words: Counter = Counter()
    pairs: Counter = Counter()
    for sentence in sentences:
        some = re.findall(r"[a-z0-9]+", sentence.lower())
        words.update(some)
        pairs.update(zip(some, some[1:]))
    return [words, pairs]


def _f1(found: Counter, reference: Counter) -> float:
    total = sum(found.values()) + sum(reference.values())
    return 2 * sum((found & reference).values()) / total if total else 0.0


def read_pairs(source: Path, target: Path) -> Tuple[List[str], List[str]]:
    """Documents and summaries from two files with one per line.

    Raises:
        ConfigurationError: a file cannot be read, or the numbers of lines differ.
    """
    sources, targets = _read_lines(source), _read_lines(target)
    if len(sources) != len(targets):
        raise ConfigurationError(
            f"{source} has {len(sources):,} lines and {target} {len(targets):,}: they must be "
            "aligned line by line"
        )
    return sources, targets


def read_archives(archives: Sequence[Path], ids: Optional[Path]) -> Tuple[List[str], List[str]]:
    """Documents and summaries from CNN/DailyMail's story archives.

    Args:
        archives: the archives.
        ids: a file of story ids to read; None for all stories.

    Raises:
        ConfigurationError: an archive or `ids` cannot be read.
    """
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
