"""ROUGE of summaries."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fairseq_plugins.data.readers import RAW
from fairseq_plugins.evaluate.bootstrap import SEED, paired
from fairseq_plugins.evaluate.test_sets import Generated, files_of_pair, read_output
from fairseq_plugins.files import read_lines, write_lines
from fairseq_plugins.prepared_folder import Prepared
from fairseq_plugins.scoring.rouge import (
    METRICS,
    NAMES,
    UNICODE,
    prepare,
    resampled_means,
    rouge,
    score_documents,
)
from fairseq_plugins.text.sentences import BOUNDARY, separate_sentences
from fairseq_plugins.text.subwords import KINDS

logger = logging.getLogger(__name__)


class Text(NamedTuple):
    """Summaries and their references, one line per document."""

    summaries: list[str]
    references: list[str]


class Summaries(Generated):
    """The documents of a split, with the functions that `evaluate` needs.

    ROUGE uses Porter's stemmer, as published figures do. The published ROUGE-L is the summary-level
    variant, called ROUGE-Lsum here.

    Args:
        data: a prepared folder.
        split: test, valid or train.
        target: not used; summaries have no language.

    Attributes:
        unicode: count words of any script, without the stemmer.

    Raises:
        ConfigurationError: the folder was not prepared by this package, or lacks the split.
    """

    has_rouge = True

    def __init__(self, data: Path | Prepared, split: str, target: str | None = None):
        prepared = Prepared.of(data)
        data, settings = prepared.folder, prepared.processing
        self.split, self.unicode = split, False
        joined_by = KINDS[settings.subword].fairseq_name
        self.words = ["--task", "summarization", "--remove-bpe", joined_by]
        raw = data / RAW / f"{split}.{settings.source_lang}"
        summaries = data / RAW / f"{split}.{settings.target_lang}"
        self.text_files = [raw, summaries]
        self.files = files_of_pair(prepared, split, self.text_files)
        self.references = [
            f"{BOUNDARY} ".join(separate_sentences(line.lower() if settings.lowercase else line))
            for line in read_lines(summaries)
        ]
        self.total = len(self.references)

    def read(self, log: Path) -> Text:
        """Summaries from the output of `evaluation.hypotheses`, and the references.

        Raises:
            ConfigurationError: documents are missing.
        """
        return Text(read_output(log, self.total), self.references)

    def write(self, text: Text, folder: Path) -> None:
        """Write hypotheses.txt and references.txt, one document per line."""
        write_lines(folder / "hypotheses.txt", text.summaries)
        write_lines(folder / "references.txt", text.references)

    def columns(self, found: Text) -> dict[str, Sequence[str]]:
        return {"reference": found.references, "summary": found.summaries}

    def score(self, text: Text) -> dict[str, dict[str, Any]]:
        """F1 (0 to 100), 95 % bootstrap interval and signature of each ROUGE metric."""
        result = rouge(text.references, text.summaries, not self.unicode, self.unicode)
        for warning in result.warnings:
            logger.warning(warning)
        scores = {}
        for metric in METRICS:
            estimate = result.estimates[metric]["fmeasure"]
            scores[NAMES[metric]] = {
                "score": estimate.mean,
                "interval": [estimate.low, estimate.high],
                "signature": result.signature,
            }
        return scores

    def compare(self, ours: Text, baseline: Text, samples: int) -> dict[str, Any]:
        """Compare two systems on the same references by each metric (see `bootstrap.paired`)."""
        sides = [_f1(text, self.unicode) for text in (ours, baseline)]
        figures = np.concatenate(sides, axis=1)  # documents x 8
        seen, means = figures.mean(axis=0), resampled_means(figures, samples, SEED)
        words = f"{UNICODE}|stem:no" if self.unicode else "stem:porter"
        signature = f"case:lc|{words}|bs:{samples}|seed:{SEED}"
        count = len(METRICS)
        return {
            NAMES[metric]: paired(
                (seen[number], seen[number + count]),
                (means[:, number], means[:, number + count]),
                signature,
            )
            for number, metric in enumerate(METRICS)
        }


def _f1(text: Text, unicode: bool) -> np.ndarray:
    """F1 of each document and metric: float, documents x `METRICS`, 0 to 100."""
    references, summaries = ([prepare(line) for line in side] for side in text[::-1])
    scores = score_documents(references, summaries, not unicode, unicode)
    return 100 * scores[:, :, 0]
