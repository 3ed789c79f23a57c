"""The classes of Python users, for trained and exported models.

Translator("runs/transformer_ftc").translate(["Guten Morgen!"])
Summarizer("runs/fastformer_copy_cnn_dm").summarize(["A long document."])[0].summary
Classifier("runs/imdb").classify(["What a film!"])
"""

import functools
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from fairseq_plugins.data.prepared_folder import load_cut
from fairseq_plugins.errors import ConfigurationError, check_number
from fairseq_plugins.options.user_dirs import UserDirs
from fairseq_plugins.search.batches import fill_batches
from fairseq_plugins.search.choose_engine import open_classifier, open_engine
from fairseq_plugins.search.engine import ClassEngine, Engine, Input, Place, Progress, search
from fairseq_plugins.search.text import (
    LONGEST,
    Output,
    Summary,
    encode,
    listed,
    sentences_of,
)
from fairseq_plugins.system.progress import progress_bar
from fairseq_plugins.text.processing import MORE, LengthLimit
from fairseq_plugins.text.protection import Protection, mismatch
from fairseq_plugins.text.terms import read_terms
from fairseq_plugins.text.units import Cut

PART_OF_WORD = 100  # subwords; long parts would be slow to translate, and have no sense
FULL_STOPS = ("\u3002", "\uff01", "\uff1f")  # full stops of Chinese and Japanese
FOR_TRANSLATION = "the model's data was prepared for translation: if it translates, use "


class Scored(NamedTuple):
    """One of several translations of a line."""

    text: str
    score: float  # as in fairseq: sum of log-probabilities over length to the power of lenpen
    complete: bool = True  # False if it was stopped at the length limit
    tokens: tuple[str, ...] = ()  # the subwords of the text
    repaired: tuple[str, ...] | None = None  # see `text.protection.Restored`
    token_scores: tuple[float, ...] = ()  # log-probabilities of the tokens and the end symbol
    attention: tuple[Any, ...] | None = None  # of each part of the line, see `Output`

    @property
    def alignment(self) -> tuple[int, ...] | None:
        """For each token, the index (from 0) of the line's subword that it attends to most."""
        if self.attention is None:
            return None
        found, begin = [], 0
        for weights in self.attention:
            found += (begin + weights[:-1, :-1].argmax(axis=1)).tolist()
            begin += weights.shape[1] - 1
        return tuple(found)


class Translator:
    """Translates lines with beam search. Several threads may share one.

    Args:
        models, data: see `search.choose_engine.open_engine`.
        progress: show a bar on stderr; or a function that is called with the number of texts of
            each finished batch.
        terms: a file of target terms that translations must have, see `read_terms`. It needs a
            model whose data was prepared with terms, or beam search with torch.
        options: options of `open_engine`, such as cpu=True, int8=True or threads=2, and of the
            search, such as beam=5, nbest=1, lenpen=1.0, sampling=True; see `options.search`.

    Attributes:
        engine: runs the model.
        max_length: maps the tokens of a source to the maximum subwords of its translation; at first
            the `LengthLimit` of the model's data, which a longer `min_len` or prefix raises.
        split: numbers (from 1) of the lines of the last call that were too long for the model and
            translated in parts.
        cut_off: numbers of those whose translation was stopped at the length limit. If threads
            share a translator, see `Scored.complete`.

    Raises:
        ConfigurationError: as `search.choose_engine.open_engine`, or the model summarizes.
    """

    def __init__(
        self,
        models: Engine | Place | Sequence[Place],
        data: Place | None = None,
        *,
        progress: Progress = False,
        terms: Place | None = None,
        **options: Any,
    ) -> None:
        of_terms = None if terms is None else read_terms(terms)
        self.engine = open_engine(models, data, **options)
        if self.engine.summarizes:
            raise ConfigurationError(
                f"--model {self.engine.name} was trained with --task summarization: it is for the "
                "command summarize"
            )
        least = self._least = self.engine.min_len
        if least > self.engine.max_output:
            raise ConfigurationError(
                f"--min-len {least}: this model writes at most {self.engine.max_output:,} subwords"
            )
        self.processor, self.max_source = self.engine.processor, self.engine.max_source
        self.terms: Protection | None = None
        if of_terms is not None:
            with_terms = self.processor.with_terms(of_terms)
            self.terms = with_terms.protection
            if self.processor.settings.terms is not None:
                self.processor = with_terms
            elif not getattr(self.engine, "takes_terms", False):
                raise ConfigurationError(
                    f"--terms {terms} needs a model of data that was prepared with --terms, or the "
                    "beam search of a checkpoint: remove it"
                )
        self.max_length: Callable[[int], int] = self.processor.length_limit
        self.split: list[int] = []
        self.cut_off: list[int] = []
        self._progress, self._nbest = progress, options.get("nbest", 1)

    def translate(self, lines: Iterable[str]) -> list[str]:
        """One translation per line, in the order of `lines`; a line without words stays empty."""
        lines = listed(lines)
        return [self.processor.restored(*found).text for found in zip(self.pieces(lines), lines)]

    def pieces(self, lines: Iterable[str]) -> list[str]:
        """As `translate`, in the subwords of the model, separated by spaces."""
        return [best.repaired or best.pieces for best, *_ in self.candidates(lines, 1)]

    def candidates(
        self,
        lines: Iterable[str],
        count: int,
        prefixes: Iterable[str] | None = None,
        first: int = 0,
        aligned: bool = False,
    ) -> list[list[Output]]:
        """Up to `count` translations per line in subwords, the best first; for a line without
        words,
        one empty translation. A line in parts joins the best of each part, the next best, ...

        Args:
            lines: raw text.
            count: at least 1; at most the beam size is returned.
            prefixes: for each line, raw text with which its translations must begin.
            first: the number (from 0) of the first line, for the draws of sampling and messages.

        Raises:
            ConfigurationError: a prefix or min_len is too long, or the number of prefixes is
                wrong.
        """
        lines = listed(lines)
        inputs: list[Input] = []
        protects = self.processor.protection is not None
        hard = None if self.terms is self.processor.protection else self.terms
        begin = self._prefixes(lines, prefixes)
        split = []
        for number, line in enumerate(lines):
            pieces = encode(self.processor, line)
            if len(pieces) > self.max_source:
                split.append(number + 1)
            for place, part in enumerate(self._within_limit(pieces)):
                prefix, begin[number] = begin[number], []  # the prefix of the first part
                limit = self.max_length(len(part) + 1)
                if isinstance(self.max_length, LengthLimit):
                    limit = max(limit, self._least, len(prefix) + MORE)
                limit = min(limit, self.engine.max_output)
                if self._least > limit:
                    raise ConfigurationError(
                        f"--min-len {self._least}: line {first + number + 1} has {len(part):,} "
                        f"subwords, which become at most {limit:,}: give a smaller number, or a "
                        "larger length limit"
                    )
                if len(prefix) > limit:
                    raise ConfigurationError(
                        f"prefix {first + number + 1} has {len(prefix):,} subwords, but the "
                        f"limit is {limit:,}: give a shorter one"
                    )
                terms: list[list[str]] = []
                if hard is not None and not prefix and len(part) == len(pieces):
                    encode_target = self.processor.encode_target
                    terms = [encode_target(term).split() for term in hard.wanted(line)]
                inputs.append(Input(part, limit, prefix, first + number, place, terms))
        found: list[list[list[Output]]] = [[] for _ in lines]
        most = sys.maxsize if protects else count
        searched = search(self.engine, inputs, most, self._progress, aligned=aligned)
        for each, outputs in zip(inputs, self._keep_symbols(inputs, searched, count)):
            found[each.number - first].append(outputs)
        joined = [
            [
                Output(
                    " ".join(o.pieces for o in each),
                    all(o.complete for o in each),
                    score=sum(o.score for o in each),
                    token_scores=tuple(score for o in each for score in o.token_scores),
                    repaired=" ".join(o.repaired or o.pieces for o in each)
                    if any(o.repaired for o in each)
                    else "",
                    attention=tuple(o.attention for o in each)
                    if aligned and all(o.attention is not None for o in each)
                    else None,
                )
                for each in (zip(*outputs) if outputs else [()])
            ]
            for outputs in found
        ]
        self.split = split
        self.cut_off = [number for number, (best, *_) in enumerate(joined, 1) if not best.complete]
        return joined

    def _keep_symbols(
        self, inputs: list[Input], searched: list[list[Output]], count: int
    ) -> list[list[Output]]:
        """Of each beam, the best with all symbols of protected text; others have `repaired`."""
        if self.processor.protection is None:
            return searched
        found, wrong = [], []
        for each, outputs in zip(inputs, searched):
            errors = {o.pieces: mismatch(" ".join(each.pieces), o.pieces) for o in outputs}
            best = sorted(outputs, key=lambda o: errors[o.pieces])[:count]
            wrong += [(each, best, place) for place, o in enumerate(best) if errors[o.pieces]]
            found.append(best)
        # the attention for the few that are wrong, whose tokens are all given
        forced = [each._replace(prefix=best[n].pieces.split(), terms=()) for each, best, n in wrong]
        aligned = self.engine.search(forced, 1, False, lambda _: None, aligned=True)
        for (_, best, n), each, (output, *_) in zip(wrong, forced, aligned):
            if output.attention is not None:
                repaired = self.processor.repair(each.pieces, each.prefix, output.attention)
                best[n] = best[n]._replace(repaired=repaired)
        return found

    def hypotheses(
        self,
        lines: Iterable[str],
        prefixes: Iterable[str] | None = None,
        split: bool = False,
        first: int = 0,
        aligned: bool = False,
    ) -> list[list[Scored]]:
        """`nbest` translations per line with scores, the best first; "" for a line without words.

        Args:
            lines: raw text.
            prefixes: for each line, raw text with which its translations must begin.
            split: translate a line that is too long in parts, and add their scores.
            first: the number (from 0) of the first line, for the draws of sampling and messages.
            aligned: whether translations should have `attention` and `alignment`.

        Raises:
            ConfigurationError: a prefix or min_len is too long, or the number of prefixes is
                wrong; or a line is too long, without `split`.
        """
        lines = listed(lines)
        for number, line in enumerate([] if split else lines, first + 1):
            length = len(encode(self.processor, line))
            if length > self.max_source:
                raise ConfigurationError(
                    f"line {number} has {length:,} subwords, but the model reads at most "
                    f"{self.max_source:,}: split it, or give split=True"
                )
        return [
            [
                Scored(
                    restored.text,
                    o.score,
                    o.complete,
                    tuple(o.pieces.split()),
                    restored.repaired,
                    tuple(o.token_scores),
                    o.attention,
                )
                for o in outputs
                for restored in [self.processor.restored(o.pieces, line, o.repaired)]
            ]
            for line, outputs in zip(
                lines, self.candidates(lines, self._nbest, prefixes, first, aligned)
            )
        ]

    def _prefixes(self, lines: list[str], prefixes: Iterable[str] | None) -> list[list[str]]:
        """The subwords of the prefix of each line."""
        if prefixes is None:
            return [[] for _ in lines]
        prefixes = listed(prefixes)
        if len(prefixes) != len(lines):
            raise ConfigurationError(
                f"prefixes: there are {len(prefixes):,} for {len(lines):,} lines: give one for "
                'each line, "" for none'
            )
        encode = self.processor.encode_target
        return [encode(prefix, line).split() for prefix, line in zip(prefixes, lines)]

    def _within_limit(self, pieces: list[str]) -> list[list[str]]:
        """Split a long line: after a sentence in the second half, otherwise after a word.

        If half of the limit has no end of a word, the first `PART_OF_WORD` subwords are a part.
        """
        parts, start = [], 0
        while len(pieces) - start > self.max_source:
            window = range(start + self.max_source, start + self.max_source // 2, -1)
            words = [end for end in window if self.processor.subwords.is_word_end(pieces, end)]
            sentences = [end for end in words if pieces[end - 1][-1] in ".!?\u2026"]
            # Chinese and Japanese have no spaces, so a sentence may end within a word
            ends = {end for end in window if pieces[end - 1].replace("@@", "")[-1:] in FULL_STOPS}
            sentences = sorted({*sentences, *ends}, reverse=True)
            end = (sentences or words or [start + min(PART_OF_WORD, self.max_source)])[0]
            parts.append(pieces[start:end])
            start = end
        return parts + [pieces[start:]] if pieces else parts


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
            (see `options.search`).

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
        user_dir: for a checkpoint, folders to import, as fairseq's `--user-dir`.

    Attributes:
        engine: runs the model.
        labels: the classes, in the order of the model's scores.
        cut: numbers (from 1) of the texts of the last call of `classify` that were truncated.
        empty: numbers of those without a token; no model was trained on such texts.

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
        user_dir: UserDirs = (),
    ):
        check_number("max_tokens", max_tokens, 1)
        self.engine = open_classifier(model, data, cpu, threads, user_dir)
        self.labels = self.engine.labels
        self.max_tokens, self.progress = max_tokens, progress
        self.cut: list[int] = []
        self.empty: list[int] = []

    def classify(self, texts: Iterable[str]) -> list[Prediction]:
        """Classify raw texts; one prediction per text, in the order of the texts.

        Raises:
            ConfigurationError: the prepared folder lacks the settings or the subword model, or
                holds images.
        """
        cut, longest = self._reading
        lengths, kept = [], []
        for text in listed(texts):
            pieces = cut(text)
            lengths.append(len(pieces))
            kept.append(pieces[:longest])
        self.cut = [number for number, length in enumerate(lengths, 1) if length > longest]
        self.empty = [number for number, length in enumerate(lengths, 1) if not length]
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
