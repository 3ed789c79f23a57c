"""The search with an exported model, for lines and for documents."""

from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Union

from fairseq_plugins.errors import ConfigurationError, check_range
from fairseq_plugins.prepared_folder import RECORD
from fairseq_plugins.text.processing import Processor

from .batches import fill_batches
from .folder import END, UNKNOWN, Export
from .search import Hypothesis, Options, Source, search
from .text import Output, with_characters

BATCH = 32  # the most sentences in a batch


class ExportedModel:
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
        self.export.check_listed(RECORD)
        self.processor: Any = Processor(
            Path(model), self.export.source_lang, self.export.target_lang
        )
        self.export.check_listed(type(self.processor.subwords).file_name)

    def max_length(self, source_length: int) -> int:
        raise NotImplementedError

    def generate(self, sources: Sequence[List[str]]) -> List[Output]:
        """The best output for each list of subwords; see `best`."""
        return [outputs[0] for outputs in self.best(sources, 1)]

    def best(self, sources: Sequence[List[str]], count: int) -> List[List[Output]]:
        """Up to `count` outputs for each list of subwords, the best first.

        Raises:
            ConfigurationError: the options allow none.
        """
        found = []
        for pieces, hypotheses in zip(sources, self.search(sources, nbest=count)):
            if not hypotheses:
                raise ConfigurationError(
                    "the options of search allow no output for a text: give a smaller --min-len "
                    f"(it is {self.options.min_len}), a larger --max-len, or leave out "
                    "--no-repeat-ngram-size"
                )
            found.append(
                [Output(self._written(h, pieces), self._is_complete(h, pieces)) for h in hypotheses]
            )
        return found

    def _written(
        self, hypothesis: Hypothesis, pieces: Sequence[str], prefix: Sequence[str] = ()
    ) -> str:
        """The subwords of a hypothesis for a source of these subwords, separated by spaces."""
        tokens = [token for token in hypothesis.tokens if token != END]
        copies = UNKNOWN in tokens and UNKNOWN in self.export.source.encode(pieces)
        return with_characters(
            [self.export.target.words[token] for token in tokens],
            [token == UNKNOWN for token in tokens],
            hypothesis.unknown_from if copies else (),
            pieces,
            prefix,
        )

    def _is_complete(self, hypothesis: Hypothesis, pieces: List[str]) -> bool:
        return len(hypothesis.tokens) <= self._limit(len(pieces) + 1)

    def search(
        self,
        sources: Sequence[List[str]],
        prefixes: Optional[Sequence[List[str]]] = None,
        numbers: Optional[Sequence[int]] = None,
        nbest: Optional[int] = None,
    ) -> List[List[Hypothesis]]:
        """Hypotheses for each list of subwords, the best first.

        Args:
            prefixes: for each source, the subwords that its hypotheses must begin with.
            numbers: the number of each source, from 0, in messages and for sampling.
            nbest: how many hypotheses at most; None for that of the options.

        Raises:
            ConfigurationError: a prefix, or `min_len`, is longer than a hypothesis may be.
        """
        export, options, wanted = self.export, self.options, []
        if nbest is not None:
            options = options._replace(nbest=nbest)
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
            for source, hypotheses in zip(batch, search(export, batch, options)):
                found[source.number] = hypotheses
        return [found[number] for number in numbers]

    def _limit(self, source_length: int) -> int:
        return min(self.max_length(source_length), self.max_output)
