"""Translates lines of raw text with an exported model."""

from pathlib import Path
from typing import Any, List, NamedTuple, Optional, Sequence, Union

from fairseq_plugins.errors import ConfigurationError

from .exported_model import ExportedModel
from .search import Options
from .text import LineTranslator, encode, listed


class Scored(NamedTuple):
    """One of several translations of a line."""

    text: str
    score: float  # as in fairseq: sum of log-probabilities over length to the power of lenpen
    complete: bool = True  # False if it was stopped at the length limit


class Translator(LineTranslator, ExportedModel):
    """Translates lines; see `ExportedModel` and `LineTranslator`.

    Args:
        model: the exported folder.
        threads: threads of a batch.
        max_tokens: subwords in a batch, padding included.
        shortlist: whether to choose among likely words only: faster, and not exact.
        options: options of the search, such as beam=5, nbest=1, lenpen=1.0, sampling=True, seed=1;
            see `search.Options`.

    Raises:
        ConfigurationError: the folder cannot be read, or an option cannot work.
    """

    def __init__(
        self,
        model: Union[str, Path],
        threads: int = 1,
        max_tokens: int = 4000,
        shortlist: bool = False,
        **options: Any,
    ) -> None:
        wanted = Options(**options)
        ExportedModel.__init__(self, model, threads, max_tokens, shortlist, wanted)
        LineTranslator.__init__(self)
        if self.export.config.get("summarizes"):  # earlier releases do not tell
            raise ConfigurationError(
                f"--model {model} was trained with --task summarization: it is for the command "
                "summarize"
            )
        if wanted.min_len > self.max_output:
            raise ConfigurationError(
                f"min_len {wanted.min_len}: this model writes at most {self.max_output:,} subwords"
            )

    def hypotheses(
        self, lines: Sequence[str], prefixes: Optional[Sequence[str]] = None
    ) -> List[List[Scored]]:
        """`nbest` translations per line with scores, the best first; "" for a line without words.

        Args:
            lines: raw text.
            prefixes: for each line, raw text that its translations must begin with.

        Raises:
            ConfigurationError: a line or a prefix is too long, or there are not as many prefixes as
                lines.
        """
        lines = listed(lines)
        prefixes = [""] * len(lines) if prefixes is None else listed(prefixes)
        if len(prefixes) != len(lines):
            raise ConfigurationError(
                f"prefixes: there are {len(prefixes):,} for {len(lines):,} lines: give one for "
                'each line, "" for none'
            )
        sources = [encode(self.processor, line) for line in lines]
        for number, pieces in enumerate(sources, 1):
            if len(pieces) > self.max_source:
                raise ConfigurationError(
                    f"line {number} has {len(pieces):,} subwords, but the model reads at most "
                    f"{self.max_source:,}: split it, or use translate(), which does"
                )
        begin = [self.processor.encode_target(prefix).split() for prefix in prefixes]
        real = [number for number, pieces in enumerate(sources) if pieces]
        found = self.search([sources[n] for n in real], [begin[n] for n in real], real)
        scored = [[Scored("", 0.0)] for _ in lines]
        for number, hypotheses in zip(real, found):
            scored[number] = [
                Scored(
                    self.processor.decode(self._written(h, sources[number], begin[number])),
                    h.score,
                    self._is_complete(h, sources[number]),
                )
                for h in hypotheses
            ]
        return scored
