"""Translates and summarizes with an exported model, without torch and fairseq.

from fairseq_plugins.serving import Translator
Translator("exported").translate(["Guten Morgen!"])
"""

from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Union

from fairseq_plugins.errors import ConfigurationError, check_range
from fairseq_plugins.text.processing import Processor

from .batches import fill_batches
from .folder import Export, is_export
from .search import Hypothesis, Options, Source, search
from .text import DocumentSummarizer, LineTranslator, Output, Summary, listed

__all__ = ["Scored", "Summarizer", "Summary", "Translator", "is_export"]

BATCH = 32  # the most sentences in a batch


class Scored(NamedTuple):
    """One of several translations of a line."""

    text: str
    score: float  # as in fairseq: sum of log-probabilities over length to the power of lenpen
    complete: bool = True  # False if it was stopped at the length limit


class _Served:
    """Searches for lists of subwords with an exported model, in batches of similar length.

    Calls from several threads at once are safe.

    Args:
        model: the exported folder.
        threads: threads of a batch.
        max_tokens: subwords in a batch, padding included; a longer source is a batch by itself.
        shortlist: whether to choose among likely words only: faster, and not exact.
        options: see `search.Options`.
    """

    tells_copied = False

    def __init__(
        self,
        model: Union[str, Path],
        threads: int,
        max_tokens: int,
        shortlist: bool,
        options: Options,
    ) -> None:
        options.check()
        check_range("--threads", threads, 1)
        check_range("--max-tokens", max_tokens, 1)
        if shortlist and options.sampling:
            raise ConfigurationError("--shortlist is for beam search: leave out --sampling")
        self.export = Export(Path(model), threads, shortlist)
        if self.export.copies and options.temperature != 1:
            raise ConfigurationError(
                "--temperature: an exported model that copies has probabilities alone, and no "
                "logits to divide: leave it out"
            )
        self.options, self.max_tokens = options, max_tokens
        if 2 * options.beam > self.export.most_candidates:
            raise ConfigurationError(
                f"--beam {options.beam}: this model's vocabulary allows up to "
                f"{self.export.most_candidates // 2}"
            )
        self.max_source, self.max_output = self.export.max_source, self.export.max_output
        self.processor: Any = Processor(
            Path(model), self.export.source_lang, self.export.target_lang
        )

    def max_length(self, source_length: int) -> int:
        raise NotImplementedError

    def generate(self, sources: Sequence[List[str]]) -> List[Output]:
        """The best hypothesis for each list of subwords.

        Raises:
            ConfigurationError: the options allow none.
        """
        found = []
        for pieces, hypotheses in zip(sources, self.search(sources)):
            if not hypotheses:
                raise ConfigurationError(
                    "the options of search allow no output for a text: give a smaller --min-len "
                    f"(it is {self.options.min_len}), a larger --max-len, or leave out "
                    "--no-repeat-ngram-size"
                )
            best = hypotheses[0]
            complete = self._is_complete(best, pieces)
            found.append(Output(self.export.target.decode(best.tokens), complete))
        return found

    def _is_complete(self, hypothesis: Hypothesis, pieces: List[str]) -> bool:
        return len(hypothesis.tokens) <= self._limit(len(pieces) + 1)

    def search(
        self,
        sources: Sequence[List[str]],
        prefixes: Optional[Sequence[List[str]]] = None,
        numbers: Optional[Sequence[int]] = None,
    ) -> List[List[Hypothesis]]:
        """All hypotheses for each list of subwords, the best first.

        Args:
            prefixes: for each source, the subwords that its hypotheses must begin with.
            numbers: the number of each source, from 0, in messages and for sampling.

        Raises:
            ConfigurationError: a prefix, or `min_len`, is longer than a hypothesis may be.
        """
        export, wanted = self.export, []
        numbers = range(len(sources)) if numbers is None else numbers
        for place, (number, pieces) in enumerate(zip(numbers, sources)):
            tokens = export.source.encode(pieces)
            prefix = export.target.encode(prefixes[place])[:-1] if prefixes else []
            limit = self._limit(len(tokens))
            if self.options.min_len > limit:
                raise ConfigurationError(
                    f"min_len {self.options.min_len:,}: {len(pieces):,} subwords become at most "
                    f"{limit:,}: give a smaller one"
                )
            if len(prefix) > limit:
                raise ConfigurationError(
                    f"prefix {number + 1} has {len(prefix):,} subwords, but the limit is "
                    f"{limit:,}: give a shorter one"
                )
            wanted.append(Source(tokens, limit, prefix, number))
        found: Dict[int, List[Hypothesis]] = {}
        for indices in fill_batches([len(s.tokens) for s in wanted], self.max_tokens, BATCH):
            batch = [wanted[index] for index in indices]
            for source, hypotheses in zip(batch, search(export, batch, self.options)):
                found[source.number] = hypotheses
        return [found[number] for number in numbers]

    def _limit(self, source_length: int) -> int:
        return min(self.max_length(source_length), self.max_output)


class Translator(LineTranslator, _Served):
    """Translates lines; see `_Served` and `LineTranslator`.

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
        _Served.__init__(self, model, threads, max_tokens, shortlist, wanted)
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
        sources = [self.processor.encode(line).split() for line in lines]
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
                    self.processor.decode(self.export.target.decode(h.tokens)),
                    h.score,
                    self._is_complete(h, sources[number]),
                )
                for h in hypotheses
            ]
        return scored


class Summarizer(DocumentSummarizer, _Served):
    """Summarizes documents; see `_Served` and `DocumentSummarizer`.

    Args:
        model: the exported folder.
        threads: threads of a batch.
        max_tokens: subwords in a batch, padding included.
        shortlist: whether to choose among likely words only: faster, and not exact.
        min_length, max_length: subwords of a summary. A max_length of None is `LONGEST`, or the
            model's limit if that is lower.
        options: options of the search, see `search.Options`.

    Raises:
        ConfigurationError: the folder cannot be read, or an option cannot work.
    """

    def __init__(
        self,
        model: Union[str, Path],
        threads: int = 1,
        max_tokens: int = 4000,
        shortlist: bool = False,
        min_length: int = 1,
        max_length: Optional[int] = None,
        no_repeat_ngram: int = 3,
        **options: Any,
    ) -> None:
        wanted = Options(min_len=min_length, no_repeat_ngram=no_repeat_ngram, **options)
        _Served.__init__(self, model, threads, max_tokens, shortlist, wanted)
        self.set_lengths(min_length, max_length)
