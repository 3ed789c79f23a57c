"""Summarize raw documents with a trained or an exported model.

Summarizer("runs/fastformer_copy_cnn_dm").summarize(["A long document."])[0].summary
"""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from fairseq_plugins.errors import ConfigurationError, check_number
from fairseq_plugins.search.choose_engine import open_engine
from fairseq_plugins.search.engine import Engine, Input, Place, Progress, search
from fairseq_plugins.search.text import LONGEST, Output, Summary, encode, listed, sentences_of

__all__ = ["LONGEST", "Summarizer", "Summary"]
FOR_TRANSLATION = "the model's data was prepared for translation: if it translates, use "


class Summarizer:
    """Summarizes documents with beam search. Several threads may share one.

    It warns if the model's data was prepared for translation.

    Args:
        models, data: see `search.choose_engine.open_engine`.
        min_length, max_length: limits of a summary's length in subwords; None for `LONGEST`, or the
            model's limit if smaller.
        no_repeat_ngram: no n-gram of this many subwords occurs twice in a summary; 0: no limit.
        progress: show a bar on stderr; or a function that is called with the number of texts of
            each finished batch.
        options: options of `search.choose_engine.open_engine`, and of the search, such as nbest=1
            (see `search.options`).

    Attributes:
        engine: runs the model.
        max_source: the model reads this many subwords of a document, as in preparation and
            training.
        max_length: maps the tokens of a source to the maximum subwords of its summary.
        wants_copied: whether summaries have `copied`, if the engine supports it; in an ensemble,
            from the first model.

    Raises:
        ConfigurationError: as `open_engine`, or the model cannot write summaries of these
            lengths.
    """

    wants_copied = False

    def __init__(
        self,
        models: Engine | Place | Sequence[Place],
        data: Place | None = None,
        *,
        min_length: int = 1,
        max_length: int | None = None,
        no_repeat_ngram: int = 3,
        progress: Progress = False,
        **options: Any,
    ) -> None:
        for name in options.keys() & {"min_len", "max_len"}:
            raise ConfigurationError(f"Summarizer takes {name}gth, not {name}: give {name}gth")
        limits: dict[str, Any] = {"min_len": min_length, "no_repeat_ngram": no_repeat_ngram}
        if isinstance(models, Engine) and limits == {"min_len": 1, "no_repeat_ngram": 3}:
            limits = {}  # a loaded engine has its own
        engine = self.engine = open_engine(models, data, **limits, **options)
        self.processor, self.max_source = engine.processor, engine.max_source
        if not self.processor.for_summaries:
            warnings.warn(FOR_TRANSLATION + "Translator", stacklevel=2)
        prepared = self.processor.settings.max_source
        if prepared is not None:
            self.max_source = min(self.max_source, prepared - 1)
        longest = min(LONGEST, engine.max_output) if max_length is None else max_length
        check_number("max_len", longest, 1)
        if longest > engine.max_output:
            raise ConfigurationError(
                f"--max-len {longest}: the model writes at most {engine.max_output:,} subwords"
            )
        if min_length > longest:
            raise ConfigurationError(f"--min-len {min_length} is above --max-len {longest}")
        self.max_length: Callable[[int], int] = lambda source_length: longest
        self._progress, self._nbest = progress, options.get("nbest", 1)

    def summarize(self, documents: Iterable[str], first: int = 0) -> list[Summary]:
        """One summary per document, in order; a document without words has an empty summary.

        Args:
            documents: raw text.
            first: the number (from 0) of the first document, for the draws of sampling.
        """
        return [best for (best,) in self._summaries(documents, 1, first)]

    def hypotheses(self, documents: Iterable[str], first: int = 0) -> list[list[Summary]]:
        """`nbest` summaries per document with scores, the best first; otherwise as `summarize`."""
        return list(self._summaries(documents, self._nbest, first))

    def _summaries(
        self, documents: Iterable[str], count: int, first: int
    ) -> Iterator[list[Summary]]:
        for whole, part, outputs in self.candidates(documents, count, first):
            summaries = []
            for output in outputs:
                sentences = map(self.processor.decode, sentences_of(output.pieces))
                kept, copied = [sentence for sentence in sentences if sentence], None
                if self.wants_copied and self.engine.copies:
                    copied = list(zip(output.pieces.split(), output.copied))
                summaries.append(Summary(kept, whole, part, output.complete, copied, output.score))
            yield summaries

    def candidates(
        self, documents: Iterable[str], count: int, first: int = 0
    ) -> Iterator[tuple[int, int, list[Output]]]:
        """For each document: its number of subwords, how many are read, and the best outputs."""
        lengths, kept = [], []
        for document in listed(documents):
            pieces = encode(self.processor, document)  # subwords that are not read take much memory
            lengths.append(len(pieces))
            kept.append(pieces[: self.max_source])
        real = [
            Input(part, min(self.max_length(len(part) + 1), self.engine.max_output), (), number)
            for number, part in enumerate(kept, first)
            if part
        ]
        outputs = iter(search(self.engine, real, count, self._progress, self.wants_copied))
        for whole, part in zip(lengths, kept):
            yield whole, len(part), next(outputs) if part else [Output("", True)]
