"""Runs exported models with onnxruntime."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fairseq_plugins.data.prepared_folder import RECORD, Prepared, subword_models
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.options.search import Options
from fairseq_plugins.search.batches import fill_batches
from fairseq_plugins.search.engine import Done, Input, OneProcess, refuse_pickling
from fairseq_plugins.search.text import Output, number_unknown, with_characters

from .beam_search import search
from .folder import (
    DICTIONARY,
    ENCODER,
    END,
    LABELS,
    PROBABILITIES,
    UNKNOWN,
    Dictionary,
    Export,
    Folder,
)

BATCH = 32  # the most sentences in a batch


class ExportedModel:
    """The `Engine` of an exported model, with batches of similar length.

    Args:
        folder: a folder written by `export`.
        threads: threads of a batch.
        max_tokens: subwords in a batch, including padding; a longer source gets its own batch.
        options: the options of the search.

    Raises:
        ConfigurationError: the folder cannot be read, or an option is invalid.
    """

    __reduce__ = refuse_pickling

    def __init__(self, folder: Path, threads: int, max_tokens: int, options: Options) -> None:
        export = self.export = Export(folder, threads)
        if export.copies and options.temperature != 1:
            raise ConfigurationError(
                "--temperature: an exported model that copies has only probabilities, no "
                "logits to divide: remove it"
            )
        if 2 * options.beam > export.most_candidates:
            raise ConfigurationError(
                f"--beam {options.beam}: this model's vocabulary allows up to "
                f"{export.most_candidates // 2}"
            )
        export.check_listed(RECORD)
        languages = export.source_lang, export.target_lang
        self.processor: Any = Prepared(folder).processor(*languages)
        export.check_listed(type(self.processor.subwords).file_name)
        self.name, self.options, self.max_tokens = str(folder), options, max_tokens
        self.max_source, self.max_output = export.max_source, export.max_output
        self.min_len = options.min_len
        self.summarizes = export.config["summarizes"]
        self.copies = export.copies
        self._process = _one_process(threads)

    def search(
        self,
        inputs: Sequence[Input],
        count: int,
        copied: bool,
        done: Done,
        aligned: bool = False,
    ) -> list[list[Output]]:
        """See `Engine.search`."""
        self._process.check()
        export, options, wanted = self.export, replace(self.options, nbest=count), []
        copied = copied and export.copies
        for each in inputs:
            tokens, lacking = self._numbers(each.pieces)
            limit, begin = min(each.limit, self.max_output), export.target.encode(each.prefix)[:-1]
            if lacking:
                vocabulary = len(export.target.words)
                begin, _ = number_unknown(each.prefix, begin, UNKNOWN, vocabulary, lacking)
            wanted.append(each._replace(pieces=tokens, limit=limit, prefix=begin))
        found: dict[int, list[Output]] = {}
        lengths = [len(source.pieces) for source in wanted]
        sizes = [self._bytes(source, aligned) for source in wanted]
        for indices in fill_batches(lengths, self.max_tokens, BATCH, sizes=sizes):
            batch = [wanted[index] for index in indices]
            with export.running():
                searched = list(search(export, batch, options, copied, aligned))
            for index, hypotheses in zip(indices, searched):
                if not hypotheses:
                    raise ConfigurationError(
                        "the options of search allow no output for a text: give a smaller "
                        f"--min-len (it is {options.min_len}), a larger --max-len, or remove "
                        "--no-repeat-ngram-size"
                    )
                source = inputs[index]
                found[index] = [
                    each._replace(pieces=self._written(source, each.pieces)) for each in hypotheses
                ]
            done(len(batch))
        return [found[index] for index in range(len(inputs))]

    def _bytes(self, source: Input, aligned: bool) -> int:
        """The bytes that a source takes in a batch, estimated, if its hypotheses are as long as
        they may be: scores of attention, source keys and values, caches that grow, logits, and
        the attention of each step.
        """
        export, length = self.export, len(source.pieces)
        hypothesis = 3 * export.step_size * source.limit + 3 * len(export.target.words)
        hypothesis += aligned * source.limit * length
        floats = export.source_size * length + self.options.beam * hypothesis
        return export.pair_bytes * length**2 + 4 * floats

    def _written(self, source: Input, hypothesis: Sequence[int]) -> str:
        """The subwords of a hypothesis, separated by spaces."""
        tokens = [token for token in hypothesis if token != END]
        words = self.export.target.words
        lacking: list[str] = []
        if max(tokens, default=0) >= len(words):
            _, lacking = self._numbers(source.pieces)
        if max(tokens, default=0) >= len(words) + len(lacking):
            raise self.export.mismatch(
                f"token {max(tokens)} was written, and dict.{self.export.target_lang}.txt has "
                f"{len(words)}"
            )
        pieces = [words[token if token < len(words) else UNKNOWN] for token in tokens]
        return with_characters(pieces, tokens, len(words), lacking, source.prefix)

    def _numbers(self, pieces: Sequence[str]) -> tuple[list[int], list[str]]:
        """The numbers of a source, and its subwords that have numbers from V on."""
        tokens = self.export.source.encode(pieces)
        if not self.copies:
            return tokens, []
        return number_unknown(pieces, tokens, UNKNOWN, len(self.export.source.words))


class ExportedClassifier(Folder):
    """The `ClassEngine` of an exported classifier.

    Raises:
        ConfigurationError: the folder cannot be read.
    """

    classifies = True

    __reduce__ = refuse_pickling

    def __init__(self, folder: Path, threads: int = 1) -> None:
        super().__init__(folder)
        self.check_listed(ENCODER, DICTIONARY, RECORD)
        self.check_listed(*(path.name for path in subword_models(self.folder)))
        self.name, self.labels = str(folder), self.config[LABELS]
        self.start: int | None = self.config["start"]
        self.max_positions: int = self.config["max_positions"]
        self.numbers = Dictionary(self.folder / DICTIONARY).encode
        self.encoder = self.session(ENCODER, threads)
        self._process = _one_process(threads)

    def probabilities(self, texts: Sequence[Sequence[int]]) -> Any:
        """See `ClassEngine.probabilities`."""
        self._process.check()
        with self.running():
            return self.encoder.run([PROBABILITIES], {"tokens": self.padded(texts)})[0]


def _one_process(threads: int) -> OneProcess:
    return OneProcess(f"threads={threads}" if threads > 1 else "")
