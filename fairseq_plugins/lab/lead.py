"""Extractive baselines for summarization: lead, random sentences, TextRank, and the oracle."""

import random
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.data.readers import Unusable
from fairseq_plugins.data.stories import parse_story, read_ids, read_story_files
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.text.sentences import join_sentences, separate_sentences, split_sentences


def first_sentences(document: str, enough: int | None = None) -> list[str]:
    """The first `enough` sentences of a document, which may have `BOUNDARY`; None: all."""
    sentences: list[str] = []
    for part in separate_sentences(document):
        sentences += split_sentences(part)
        if enough is not None and len(sentences) >= enough:
            break
    return sentences[:enough]


def lead(document: str, sentences: int) -> str:
    """The lead baseline: the first sentences of a document, in one line.

    Punctuation marks the ends of sentences.
    """
    return join_sentences(first_sentences(document, sentences))


def draw(document: str, sentences: int, generator: random.Random) -> str:
    """The random baseline: up to `sentences` random sentences, in the document's order."""
    candidates = first_sentences(document)
    chosen = generator.sample(range(len(candidates)), min(sentences, len(candidates)))
    return join_sentences(candidates[n] for n in sorted(chosen))


def oracle(
    document: str, summary: str, sentences: int, stemmer: bool = False, unicode: bool = False
) -> str:
    """The greedy oracle: up to `sentences` sentences that match the reference summary best.

    Each step adds the sentence that increases ROUGE-1 F1 of the selection most, and stops if none
    increases it. The result is in the document's order. With one sentence no choice of a sentence
    has a higher ROUGE-1; with more it is an approximate upper bound for extractive summarizers.

    Args:
        document: in one line.
        summary: the reference.
        sentences: how many to take at most.
        stemmer, unicode: as in the ROUGE that scores the result.
    """
    from fairseq_plugins.scoring.rouge import tokenizer_of  # slow: the help comes before

    tokenizer = tokenizer_of(stemmer, unicode)
    candidates = first_sentences(document)
    counts = [Counter(tokenizer.tokenize(sentence)) for sentence in candidates]
    reference = Counter(tokenizer.tokenize(" ".join(separate_sentences(summary))))
    taken: list[int] = []
    selection: Counter = Counter()
    best = 0.0
    while len(taken) < sentences:
        scores = {
            n: _f1(selection + counts[n], reference)
            for n in range(len(candidates))
            if n not in taken
        }
        choice = max(scores, key=lambda n: scores[n], default=None)
        if choice is None or scores[choice] <= best:
            break
        best = scores[choice]
        taken.append(choice)
        selection += counts[choice]
    return join_sentences(candidates[n] for n in sorted(taken))


class TextRank:
    """The TextRank baseline (Mihalcea & Tarau 2004): the most central sentences of a document.

    sumy computes PageRank on the graph of sentences, with its stop words and stemmer for English.
    Sentences are those of the other baselines.

    Raises:
        ConfigurationError: sumy is not installed.
    """

    def __init__(self) -> None:
        try:
            from sumy.models import dom
            from sumy.nlp.stemmers import Stemmer
            from sumy.summarizers.text_rank import TextRankSummarizer
            from sumy.utils import get_stop_words
        except ImportError:
            raise ConfigurationError("--all needs sumy for TextRank: pip install sumy") from None
        self._dom = dom
        self._rank: Any = TextRankSummarizer(Stemmer("english"))
        self._rank.stop_words = get_stop_words("english")

    def __call__(self, document: str, sentences: int) -> str:
        """Up to `sentences` sentences, in the document's order."""
        parts = [self._dom.Sentence(text, self) for text in first_sentences(document)]
        whole = self._dom.ObjectDocumentModel([self._dom.Paragraph(parts)])
        return join_sentences(str(part) for part in self._rank(whole, sentences))

    def to_words(self, sentence: str) -> tuple[str, ...]:
        """The words of a sentence; sumy calls this."""
        return tuple(re.findall(r"\w+", sentence.lower()))


def _f1(selection: Counter, reference: Counter) -> float:
    total = sum(selection.values()) + sum(reference.values())
    return 2 * sum((selection & reference).values()) / total if total else 0.0


def read_archives(archives: Sequence[Path], ids: Path | None) -> tuple[list[str], list[str]]:
    """Documents and summaries from CNN/DailyMail's story archives, each story once.

    Args:
        archives: the archives.
        ids: a file of story ids to read; None for all stories.

    Raises:
        ConfigurationError: an archive or `ids` cannot be read, or the archives lack a story of
            `ids`.
    """
    wanted = None if ids is None else set(read_ids(ids))
    sources, targets, broken, seen = [], [], 0, set()
    for name, content in read_story_files(archives):
        if name in seen or (wanted is not None and name not in wanted):
            continue
        seen.add(name)
        try:
            article, highlights = parse_story(content)
        except Unusable:
            broken += 1
            continue
        sources.append("\n".join(article))
        targets.append(join_sentences(highlights))
    missing = sorted((wanted or set()) - seen)
    if missing:
        raise ConfigurationError(
            f"{ids}: {len(missing):,} of its stories are not in the archives, such as "
            f"{missing[0]}: give all archives"
        )
    if broken:
        print(f"{broken} empty or broken stories are skipped", file=sys.stderr)
    return sources, targets
