"""Runs exported models with onnxruntime."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairseq_plugins.data.prepared_folder import RECORD, Prepared, subword_models
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.options.search import Options
from fairseq_plugins.search.batches import fill_batches
from fairseq_plugins.search.engine import Done, Input
from fairseq_plugins.search.text import Output, number_unknown, write

from .beam_search import search
from .folder import (
    DICTIONARY,
    ENCODER,
    LABELS,
    PROBABILITIES,
    UNKNOWN,
    Dictionary,
    Export,
    Folder,
)

BATCH = 32  # the most sentences in a batch


class ExportedModel(Export):
    """The `Engine` of an exported model, with batches of similar length.

    Args:
        folder: a folder written by `export`.
        threads: threads of a batch.
        max_tokens: subwords in a batch, including padding; a longer source gets its own batch.
        options: the options of the search.

    Raises:
        ConfigurationError: the folder cannot be read, or an option is invalid.
    """

    def __init__(self, folder: Path, threads: int, max_tokens: int, options: Options) -> None:
        super().__init__(folder, threads)
        if self.copies and options.temperature != 1:
            raise ConfigurationError(
                "--temperature: an exported model that copies has only probabilities, no "
                "logits to divide: remove it"
            )
        if 2 * options.beam > self.most_candidates:
            raise ConfigurationError(
                f"--beam {options.beam}: this model's vocabulary allows up to "
                f"{self.most_candidates // 2}"
            )
        self.check_listed(RECORD)
        languages = self.source_lang, self.target_lang
        self.processor: Any = Prepared(folder).processor(*languages)
        self.check_listed(type(self.processor.subwords).file_name)
        self.name, self.options, self.max_tokens = str(folder), options, max_tokens
        self.min_len, self.summarizes = options.min_len, self.config["summarizes"]

    def search(
        self,
        inputs: Sequence[Input],
        count: int,
        copied: bool,
        done: Done,
        aligned: bool = False,
    ) -> list[list[Output]]:
        """See `Engine.search`."""
        self.check_process()
        options, copied = replace(self.options, nbest=count), copied and self.copies
        numbered = [self._numbered(each) for each in inputs]
        wanted = [source for source, _ in numbered]
        found: list[list[Output]] = [[] for _ in inputs]
        lengths = [len(source.pieces) for source in wanted]
        sizes = [self._bytes(source, aligned) for source in wanted]
        for batch in fill_batches(lengths, self.max_tokens, BATCH, sizes=sizes):
            with self.running():
                searched = search(self, [wanted[n] for n in batch], options, copied, aligned)
            for n, hypotheses in zip(batch, searched):
                if not hypotheses:
                    raise ConfigurationError(
                        "the options of search allow no output for a text: give a smaller "
                        f"--min-len (it is {options.min_len}), a larger --max-len, or remove "
                        "--no-repeat-ngram-size"
                    )
                found[n] = [
                    each._replace(
                        pieces=self._written(each.pieces, numbered[n][1], inputs[n].prefix)
                    )
                    for each in hypotheses
                ]
            done(len(batch))
        return found

    def _numbered(self, source: Input) -> tuple[Input, list[str]]:
        """A source with numbers in place of subwords, and the subwords with numbers from V on."""
        tokens, begin = self.source.encode(source.pieces), self.target.encode(source.prefix)[:-1]
        lacking: list[str] = []
        if self.copies:
            words = len(self.target.words)
            tokens, lacking = number_unknown(source.pieces, tokens, UNKNOWN, words)
            begin, _ = number_unknown(source.prefix, begin, UNKNOWN, words, lacking)
        limit = min(source.limit, self.max_output)
        return source._replace(pieces=tokens, limit=limit, prefix=begin), lacking

    def _bytes(self, source: Input, aligned: bool) -> int:
        """The bytes that a source takes in a batch, estimated, if its hypotheses are as long as
        they may be: scores of attention, source keys and values, caches that grow, logits, and
        the attention of each step.
        """
        length = len(source.pieces)
        hypothesis = 3 * self.step_size * source.limit + 3 * len(self.target.words)
        hypothesis += aligned * source.limit * length
        floats = self.source_size * length + self.options.beam * hypothesis
        return self.pair_bytes * length**2 + 4 * floats

    def _written(self, tokens: Sequence[int], lacking: list[str], prefix: Sequence[str]) -> str:
        try:
            return write(tokens, self.target.words, lacking, prefix)
        except IndexError:
            raise self.mismatch(
                f"token {max(tokens)} was written, and dict.{self.target_lang}.txt has "
                f"{len(self.target.words)}"
            ) from None


class ExportedClassifier(Folder):
    """The `ClassEngine` of an exported classifier.

    Raises:
        ConfigurationError: the folder cannot be read.
    """

    classifies = True

    def __init__(self, folder: Path, threads: int = 1) -> None:
        super().__init__(folder, threads)
        self.check_listed(ENCODER, DICTIONARY, RECORD)
        self.check_listed(*(path.name for path in subword_models(self.folder)))
        self.name, self.labels = str(folder), self.config[LABELS]
        self.start: int | None = self.config["start"]
        self.max_positions: int = self.config["max_positions"]
        self.numbers = Dictionary(self.folder / DICTIONARY).encode
        self.encoder = self.session(ENCODER)

    def probabilities(self, texts: Sequence[Sequence[int]]) -> Any:
        """See `ClassEngine.probabilities`."""
        self.check_process()
        with self.running():
            return self.encoder.run([PROBABILITIES], {"tokens": self.padded(texts)})[0]
