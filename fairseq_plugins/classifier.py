"""Classify raw text with a trained or an exported model.

Classifier("runs/imdb").classify(["What a film!"])
"""

import functools
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from fairseq_plugins.errors import check_number
from fairseq_plugins.search.batches import fill_batches
from fairseq_plugins.search.choose_engine import open_classifier
from fairseq_plugins.search.engine import ClassEngine, Place
from fairseq_plugins.search.text import listed
from fairseq_plugins.system.progress import progress_bar
from fairseq_plugins.text.units import Cut, load_cut


class Prediction(NamedTuple):
    """The label of a text and its probability."""

    label: str
    probability: float


class Classifier:
    """Classifies texts.

    Args:
        model: a checkpoint, a folder of them, or a folder that `export` wrote.
        data: for a checkpoint, the prepared folder; None for the one that it was trained on.
        cpu: do not use a GPU; an exported model never does.
        max_tokens: tokens in a batch, including padding; a longer text gets its own batch.
        progress: show a bar on stderr.
        threads: for an exported model, its threads.

    Attributes:
        engine: runs the model.
        labels: the classes, in the order of the model's scores.
        cut: numbers (from 1) of the texts given to `classify` that were truncated.
        empty: numbers of the texts without a token; no model was trained on these. A service that
            runs for long should clear `cut` and `empty`, which grow.

    Raises:
        ConfigurationError: a folder or file is missing, the model is not a classifier, or model and
            data do not match.
    """

    def __init__(
        self,
        model: ClassEngine | Place,
        data: Place | None = None,
        cpu: bool = False,
        max_tokens: int = 16384,
        progress: bool = False,
        threads: int = 1,
    ):
        check_number("max_tokens", max_tokens, 1)
        self.engine = open_classifier(model, data, cpu, threads)
        self.labels = self.engine.labels
        self.max_tokens, self.progress = max_tokens, progress
        self.cut: list[int] = []
        self.empty: list[int] = []
        self._texts = 0

    def classify(self, texts: Iterable[str]) -> list[Prediction]:
        """Classify raw texts; one prediction per text, in the order of the texts.

        Raises:
            ConfigurationError: the prepared folder lacks the settings or the subword model, or
                holds images.
        """
        (cut, longest), kept = self._reading, []
        for text in listed(texts):
            self._texts += 1
            pieces = cut(text)
            if not pieces:
                self.empty.append(self._texts)
            if len(pieces) > longest:
                self.cut.append(self._texts)
            kept.append(pieces[:longest])
        return self.classify_pieces(kept)

    @property
    def max_tokens_of_text(self) -> int:
        """The maximum number of tokens read per text, as in training.

        Raises:
            ConfigurationError: as `classify`.
        """
        return self._reading[1]

    @functools.cached_property
    def _reading(self) -> tuple[Cut, int]:
        """The function that converts a text to tokens, and how many tokens are read."""
        cut, kept = load_cut(self.engine.folder)
        longest = self.engine.max_source
        return cut, longest if kept is None else min(longest, kept)

    def classify_pieces(self, texts: Iterable[Sequence[str]]) -> list[Prediction]:
        """Classify texts that are tokens already; one prediction per text, in their order."""
        engine = self.engine
        start = [] if engine.start is None else [engine.start]
        tokens = [(start + engine.numbers(text))[: engine.max_positions] for text in texts]
        found: list[Prediction] = [Prediction("", 0.0)] * len(tokens)
        lengths = [len(text) for text in tokens]
        sizes = [engine.pair_bytes * length**2 for length in lengths]
        batches = fill_batches(lengths, self.max_tokens, sizes=sizes)
        for batch in progress_bar(batches, description="batches", show=self.progress):
            rows = engine.probabilities([tokens[index] for index in batch])
            for index, best, row in zip(batch, rows.argmax(axis=1).tolist(), rows):
                found[index] = Prediction(self.labels[best], float(row[best]))
        return found
