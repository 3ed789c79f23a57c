"""From lines of text to subwords and back, independent of how the model runs."""

import math
import os
import re
import threading
import weakref
from typing import Any, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.text.sentences import BOUNDARY, is_blank

# The longest translation has twice as many subwords as its source, rounded up to a multiple of
# this. So the limit does not depend on the batch.
LENGTH_STEP = 100
FULL_STOPS = ("\u3002", "\uff01", "\uff1f")  # of Chinese and Japanese
SURROGATE = re.compile("[\ud800-\udfff]")
LONGEST = 200  # default limit of a summary, in subwords


class Lock:
    """A `threading.Lock` that is open in a forked process: who held it does not exist there."""

    _all: "weakref.WeakSet[Lock]" = weakref.WeakSet()

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: Any) -> None:
        if self._lock.locked():  # in a process that this thread forked meanwhile it is not
            self._lock.release()

    @classmethod
    def renew_all(cls) -> None:
        for lock in list(cls._all):
            lock._lock = threading.Lock()


os.register_at_fork(after_in_child=Lock.renew_all)


class Output(NamedTuple):
    """The model's output for one input."""

    pieces: str  # subwords, separated by spaces
    complete: bool  # False where it was stopped at the length limit
    copied: Sequence[Optional[int]] = ()  # of each subword, which one of the source it copies


class Summary(NamedTuple):
    """A document's summary, and how much of the document was read."""

    summary: List[str]  # its sentences
    pieces: int  # subwords of the document
    read: int  # subwords that the model read, from the beginning
    complete: bool  # False where the summary was stopped at the length limit
    # its subwords, each with the number, from 0, of the document's subword that it copies
    copied: Optional[List[Tuple[str, Optional[int]]]] = None


def listed(texts: Iterable[str]) -> List[str]:
    """The texts as a list; one string alone, whose characters would be taken for texts, is refused.

    Raises:
        ConfigurationError: a single string was given, or an item is not a str, or has half of a
            surrogate pair, which no text in UTF-8 has.
    """
    if isinstance(texts, (str, bytes)):
        raise ConfigurationError("one string was given where a list of texts is read: give [text]")
    found = list(texts)
    for number, text in enumerate(found, 1):
        if not isinstance(text, str):
            raise ConfigurationError(f"text {number} is of type {type(text).__name__}: give str")
        half = SURROGATE.search(text)
        if half:
            raise ConfigurationError(
                f"text {number}, character {half.start() + 1}: {ascii(half[0])} is half of a "
                "surrogate pair: decode the text as UTF-8, or leave it out"
            )
    return found


def encode(processor: Any, text: str) -> List[str]:
    """The subwords of a text; none of one in which nothing can be seen, as in preparation."""
    return [] if is_blank(text) else processor.encode(text).split()


def with_characters(
    pieces: Sequence[str],
    unknown: Sequence[bool],
    copied: Sequence[Optional[int]],
    source: Sequence[str],
    prefix: Sequence[str] = (),
) -> str:
    """Put the characters of a prefix and of the source for subwords that the dictionary lacks.

    Args:
        pieces: subwords that the model wrote, without the end symbol.
        unknown: which of them the dictionary lacks.
        copied: which subword of the source each of them copies; empty if the model does not copy.
        source: the subwords of the source.
        prefix: the subwords that the model was made to begin with.

    Returns:
        the subwords, separated by spaces.
    """
    found = list(pieces)
    for place in (place for place, lacking in enumerate(unknown) if lacking):
        if place < len(prefix):
            found[place] = prefix[place]
            continue
        position = copied[place] if copied else None
        if position is not None:
            found[place] = source[position]
    return " ".join(found)


def longest_translation(source_length: int) -> int:
    """The most subwords of a translation, for a source of this many tokens."""
    return 2 * LENGTH_STEP * math.ceil(source_length / LENGTH_STEP)


class LineTranslator:
    """Lines to translations; a subclass has `processor`, `max_source` and `best`.

    Attributes:
        split: numbers (from 1) of lines that were too long for the model and translated in parts.
        cut_off: numbers of lines whose translation was stopped at the length limit.
    """

    processor: Any
    max_source: int
    best: Any

    def __init__(self) -> None:
        self.split: List[int] = []
        self.cut_off: List[int] = []
        self._lines_seen = 0
        self._counting = Lock()

    def max_length(self, source_length: int) -> int:
        """See `longest_translation`."""
        return longest_translation(source_length)

    def translate(self, lines: Iterable[str]) -> List[str]:
        """One translation per line, in the order of `lines`; a line without words stays empty."""
        return [self.processor.decode(found) if found else "" for found in self.pieces(lines)]

    def pieces(self, lines: Iterable[str]) -> List[str]:
        """As `translate`, in the subwords of the model, separated by spaces."""
        return [outputs[0].pieces for outputs in self.candidates(lines, 1)]

    def candidates(self, lines: Iterable[str], count: int) -> List[List[Output]]:
        """Up to `count` translations per line in subwords, the best first; of a line without words
        one, which is empty. Those of a line in parts are the best of each part, the next of each...
        """
        lines = listed(lines)
        parts: List[List[str]] = []
        line_of: List[int] = []
        split, cut_off = [], set()
        for number, line in enumerate(lines):
            pieces = encode(self.processor, line)
            if len(pieces) > self.max_source:
                split.append(number)
            for part in self._within_limit(pieces):
                parts.append(part)
                line_of.append(number)
        found: List[List[List[Output]]] = [[] for _ in lines]
        for number, outputs in zip(line_of, self.best(parts, count)):
            found[number].append(outputs)
            if not outputs[0].complete:
                cut_off.add(number)
        with self._counting:
            first, self._lines_seen = self._lines_seen + 1, self._lines_seen + len(lines)
            self.split += [first + number for number in split]
            self.cut_off += [first + number for number in sorted(cut_off)]
        return [
            [
                Output(" ".join(o.pieces for o in each), all(o.complete for o in each))
                for each in (zip(*outputs) if outputs else [()])
            ]
            for outputs in found
        ]

    def _within_limit(self, pieces: List[str]) -> List[List[str]]:
        """Cut a line that is too long: after a sentence in the second half, else after a word."""
        parts = []
        while len(pieces) > self.max_source:
            window = range(self.max_source, self.max_source // 2, -1)
            words = [end for end in window if self.processor.subwords.is_word_end(pieces, end)]
            sentences = [end for end in words if pieces[end - 1][-1] in ".!?\u2026"]
            # Chinese and Japanese have no spaces, so a sentence may end within a word
            ends = {end for end in window if pieces[end - 1].replace("@@", "")[-1:] in FULL_STOPS}
            sentences = sorted({*sentences, *ends}, reverse=True)
            end = (sentences or words or [self.max_source])[0]
            parts.append(pieces[:end])
            pieces = pieces[end:]
        return parts + [pieces] if pieces else parts


class DocumentSummarizer:
    """Documents to summaries.

    A subclass has `processor`, `max_source`, `max_output` and `best`, and calls `set_lengths`.
    """

    processor: Any
    max_source: int
    max_output: int
    best: Any
    tells_copied: bool  # whether a summary has `copied`

    def set_lengths(self, least: int, most: Optional[int]) -> None:
        """Limit the subwords of a summary; a `most` of None is `LONGEST`, or the model's limit.

        Raises:
            ConfigurationError: the model cannot write summaries of these lengths.
        """
        self.read_as_prepared()
        self._longest = min(LONGEST, self.max_output) if most is None else most
        if self._longest > self.max_output:
            raise ConfigurationError(
                f"--max-len {most}: the model writes at most {self.max_output:,} subwords"
            )
        if least > self._longest:
            raise ConfigurationError(f"--min-len {least} is above --max-len {self._longest}")

    def read_as_prepared(self) -> None:
        """Limit the subwords of a document as in preparation: longer ones were not trained on."""
        prepared = self.processor.settings.max_source
        if prepared is not None:
            self.max_source = min(self.max_source, prepared - 1)

    def max_length(self, source_length: int) -> int:
        """The most subwords of a summary, whatever the length of its document."""
        return self._longest

    def summarize(self, documents: Iterable[str]) -> List[Summary]:
        """One summary per document, in order; a document without words has an empty summary.

        The model reads the first `max_source` subwords of a document.
        """
        summaries = []
        for whole, part, output in self.outputs(documents):
            sentences = map(self.processor.decode, sentences_of(output.pieces))
            copied = list(zip(output.pieces.split(), output.copied)) if self.tells_copied else None
            summaries.append(
                Summary([s for s in sentences if s], whole, part, output.complete, copied)
            )
        return summaries

    def outputs(self, documents: Iterable[str]) -> Iterator[Tuple[int, int, Output]]:
        """For each document its number of subwords, how many are read, and the model's output."""
        for whole, part, outputs in self.candidates(documents, 1):
            yield whole, part, outputs[0]

    def candidates(
        self, documents: Iterable[str], count: int
    ) -> Iterator[Tuple[int, int, List[Output]]]:
        """As `outputs`, with up to `count` outputs, the best first."""
        lengths, kept = [], []
        for document in listed(documents):
            pieces = encode(self.processor, document)  # those that are not read take much memory
            lengths.append(len(pieces))
            kept.append(pieces[: self.max_source])
        found = iter(self.best([part for part in kept if part], count))
        for whole, part in zip(lengths, kept):
            yield whole, len(part), next(found) if part else [Output("", True)]


def sentences_of(pieces: str) -> List[str]:
    """The subwords of each sentence; the boundary is a token of its own."""
    sentences: List[List[str]] = [[]]
    for piece in pieces.split():
        if piece == BOUNDARY:
            sentences.append([])
        else:
            sentences[-1].append(piece)
    return [" ".join(sentence) for sentence in sentences]
