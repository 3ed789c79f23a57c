"""ROUGE of summaries, for `fairseq-generate --scoring rouge` and `--eval-rouge`.

The `rouge-score` package scores each summary against its reference. This module prepares the texts,
scores documents in several processes, and computes bootstrap intervals. A signature lists
everything that changes the figures.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from fairseq.dataclass import FairseqDataclass
from fairseq.scoring import BaseScorer, register_scorer

from fairseq_plugins.errors import ConfigurationError, counted
from fairseq_plugins.options.fields import option
from fairseq_plugins.scoring.bootstrap import SAMPLES, SEED, interval, resampled
from fairseq_plugins.system.workers import default_workers, map_lines
from fairseq_plugins.text.languages import main_script, words
from fairseq_plugins.text.sentences import BOUNDARY, separate_sentences

METRICS = ("rouge1", "rouge2", "rougeL", "rougeLsum")
NAMES = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L", "rougeLsum": "ROUGE-Lsum"}
VALUES = ("fmeasure", "precision", "recall")
DOCUMENTS_A_TASK = 32
ENOUGH_FOR_PROCESSES = 256  # documents; for fewer, starting processes takes longer than scoring

WITHOUT_SPACES = ("THAI", "LAO", "KHMER", "MYANMAR")  # scripts, as Unicode names them
UNICODE = "tok:unicode-2"  # in signatures: the second version of `words`

# fairseq writes an unknown word as <unk> in a hypothesis and as <<unk>> in a reference. rouge-score
# would read the word "unk" in both and count a match.
UNKNOWN = (("<<unk>>", " unknownwordofreference "), ("<unk>", " unknownwordofsummary "))


def tokenizer_of(stemmer: bool, unicode: bool) -> Any:
    """The tokenizer that these options of ROUGE choose; it has `tokenize(text)`.

    Raises:
        ConfigurationError: both are given.
    """
    from rouge_score.tokenizers import DefaultTokenizer

    if stemmer and unicode:
        raise ConfigurationError(
            "ROUGE with a stemmer and with words of any script: Porter's stemmer is only for "
            "English: give one of the two options"
        )
    # rouge-score's own tokenizer supports only the letters a to z
    return SimpleNamespace(tokenize=words) if unicode else DefaultTokenizer(stemmer)


OTHER_SCRIPTS = (
    "for other scripts count words of any script (--rouge-unicode, --eval-rouge-unicode, or "
    "--unicode of evaluate and lead-baseline)"
)


def prepare(text: str) -> str:
    """Convert a text to the form that rouge-score expects: one sentence per line.

    Unknown words are replaced, so that those of a summary never match those of a reference.

    Args:
        text: a summary, with `BOUNDARY` or newlines between sentences.
    """
    for symbol, word in UNKNOWN:
        text = text.replace(symbol, word)
    return "\n".join(separate_sentences(text))


def score_documents(
    references: Sequence[str],
    summaries: Sequence[str],
    stemmer: bool = False,
    unicode: bool = False,
    workers: int | None = None,
) -> np.ndarray:
    """ROUGE of each document.

    Args:
        references: texts from `prepare`, one per document.
        summaries: texts from `prepare`, one per document.
        stemmer: strip suffixes with Porter's stemmer, as the papers' ROUGE-1.5.5 does with `-m`.
        unicode: words of any script (`languages.words`), not only of letters a to z.
        workers: number of processes; None: for many documents one per core.

    Returns:
        float64, documents x 4 (`METRICS`) x 3 (`VALUES`), 0 to 1, in the order of the documents.

    Raises:
        ConfigurationError: the numbers of references and summaries differ, both `stemmer` and
            `unicode` are given, or a process was killed.
    """
    tokenizer_of(stemmer, unicode)  # refuses both
    count = len(references)
    if count != len(summaries):
        raise ConfigurationError(
            f"{len(summaries)} summaries for {count} references: ROUGE needs one for each"
        )
    many = count >= ENOUGH_FOR_PROCESSES
    workers = (workers or default_workers()) if many else 1
    scores = map_lines(
        partial(_score, stemmer, unicode), zip(references, summaries), workers, "ROUGE", count,
        most=DOCUMENTS_A_TASK, show=many, option="",
    )  # fmt: skip
    return np.array(list(scores)).reshape(count, len(METRICS), len(VALUES))


@cache
def _scorer(stemmer: bool, unicode: bool) -> Any:
    from rouge_score import rouge_scorer

    return rouge_scorer.RougeScorer(list(METRICS), tokenizer=tokenizer_of(stemmer, unicode))


def _score(stemmer: bool, unicode: bool, texts: tuple[str, str]) -> list[list[float]]:
    """`METRICS` x `VALUES` of a summary; `texts` are the reference and the summary."""
    scores = _scorer(stemmer, unicode).score(*texts)
    return [[getattr(scores[metric], value) for value in VALUES] for metric in METRICS]


class Rouge(NamedTuple):
    """ROUGE of a set of summaries.

    Attributes:
        scores: see `score_documents`.
        signature: everything that changes the figures.
        warnings: problems that affect the meaning of the figures.
    """

    scores: np.ndarray
    signature: str
    warnings: list[str]

    def f1(self, metric: str) -> float:
        """The F1 of one of `METRICS`, 0 to 100."""
        return float((100 * self.scores[:, METRICS.index(metric), 0]).mean())

    def intervals(self) -> np.ndarray:
        """The ends of the 95 % bootstrap intervals of means over documents, 0 to 100.

        Returns:
            2 x 4 (`METRICS`) x 3 (`VALUES`).
        """
        flat = 100 * self.scores.reshape(len(self.scores), -1)
        ends = interval(resampled(lambda sums: sums / len(flat), flat))
        return ends.reshape(2, *self.scores.shape[1:])

    def table(self) -> str:
        """All figures as text, one line per metric, with the signature and warnings."""
        lines = [
            "ROUGE-1/2/L/Lsum F1 = " + "/".join(f"{self.f1(m):.2f}" for m in METRICS),
            f"  {'':<11}{'F1':>7}  {'95 % interval':<16}{'precision':>9}{'recall':>8}",
        ]
        means, (low, high) = (100 * self.scores).mean(axis=0), self.intervals()
        for n, metric in enumerate(METRICS):
            f1, precision, recall = means[n]
            ends = f"[{low[n, 0]:.2f}, {high[n, 0]:.2f}]"
            lines.append(
                f"  {NAMES[metric]:<11}{f1:>7.2f}  {ends:<16}{precision:>9.2f}{recall:>8.2f}"
            )
        lines.append("  signature  " + self.signature)
        lines += ["  warning: " + warning for warning in self.warnings]
        return "\n".join(lines)


def rouge(
    references: Sequence[str],
    summaries: Sequence[str],
    stemmer: bool = False,
    unicode: bool = False,
    workers: int | None = None,
) -> Rouge:
    """ROUGE-1, 2, L and Lsum of summaries against one reference each.

    Args:
        references, summaries: raw texts, one per document.
        stemmer, unicode, workers: see `score_documents`.

    Raises:
        ConfigurationError: the numbers of texts differ, there are no texts, or both `stemmer` and
            `unicode` are given.
    """
    if not references:
        raise ConfigurationError("no document to score: ROUGE needs at least one")
    unknown = sum(UNKNOWN[0][0] in text for text in references)
    references = [prepare(text) for text in references]
    summaries = [prepare(text) for text in summaries]
    scores = score_documents(references, summaries, stemmer, unicode, workers)
    warnings = _warnings(references, summaries, unknown, unicode)
    return Rouge(scores, _signature(stemmer, unicode), warnings)


def _warnings(
    references: Sequence[str], summaries: Sequence[str], unknown: int, unicode: bool
) -> list[str]:
    """Warnings about scores that are low or equal whatever the summaries contain.

    Args:
        references, summaries: texts from `prepare`.
        unknown: number of references with subwords that the dictionary lacks.
        unicode: as for `rouge`.
    """
    warnings = []
    for texts, name in ((references, "reference"), (summaries, "summary")):
        empty = sum(not text for text in texts)
        if empty:
            warnings.append(f"{counted(empty, 'documents')} with an empty {name}: the score is 0")
    if unknown:
        warnings.append(
            f"{counted(unknown, 'documents')} had a reference with subwords that the "
            "dictionary lacks, which no summary can match: prepare the data with one "
            "dictionary for both sides"
        )
    warnings += filter(None, [lost_words(references, unicode)])
    if not any("\n" in text for text in references):
        warnings.append(
            "no reference has a second sentence, so ROUGE-Lsum is ROUGE-L: summaries of several "
            f"sentences need '{BOUNDARY}' or new lines between them"
        )
    return warnings


def lost_words(references: Sequence[str], unicode: bool) -> str:
    """Which words of references ROUGE misses, and what to do; empty if it finds all."""
    tokenizer = tokenizer_of(False, unicode)
    count = sum(bool(text.strip()) and not tokenizer.tokenize(text) for text in references)
    if count:
        letter, how = ("letter", "") if unicode else ("letter a to z", f": {OTHER_SCRIPTS}")
        told = f"documents had a reference without a {letter} or a digit, which scores 0"
        return counted(count, told + how)
    if unicode and main_script(references) in WITHOUT_SPACES:
        return (
            "Thai, Lao, Khmer and Burmese need spaces between words; without them ROUGE compares "
            "whole phrases"
        )
    return ""


def _signature(stemmer: bool, unicode: bool) -> str:
    kind = f"{UNICODE}|stem:no" if unicode else "stem:" + ("porter" if stemmer else "no")
    return (
        f"nrefs:1|case:lc|{kind}|sent:{BOUNDARY}|mean:documents|bs:{SAMPLES}|seed:{SEED}|"
        f"version:rouge-score-{version('rouge-score')}"
    )


@dataclass
class RougeConfig(FairseqDataclass):
    """Options of `--scoring rouge`."""

    rouge_stemmer: bool = option(False, "strip suffixes with Porter's stemmer before comparing")
    rouge_unicode: bool = option(
        False,
        "count words of any script, and each Chinese or Japanese character; without it only "
        "letters a to z and digits make words, as in published figures",
    )


@register_scorer("rouge", dataclass=RougeConfig)
class RougeScorer(BaseScorer):
    """fairseq's interface: collects references and summaries, and scores them on request.

    Raises:
        ConfigurationError: both options are given.
    """

    def __init__(self, cfg: RougeConfig) -> None:
        super().__init__(cfg)
        tokenizer_of(cfg.rouge_stemmer, cfg.rouge_unicode)

    def result(self) -> Rouge:
        """All figures of the documents added so far."""
        return rouge(self.ref, self.pred, self.cfg.rouge_stemmer, self.cfg.rouge_unicode)

    def score(self) -> float:
        """F1 of ROUGE-Lsum, 0 to 100."""
        return self.result().f1("rougeLsum")

    def result_string(self) -> str:
        return self.result().table()
