"""Convert lines of text to subwords and back, however the model runs."""

import os
import re
import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.text.sentences import BOUNDARY, is_blank

SURROGATE = re.compile("[\ud800-\udfff]")
LONGEST = 200  # default limit of a summary, in subwords


class Lock:
    """A `threading.Lock` that is open in a forked process, where its holder does not exist."""

    _all: "weakref.WeakSet[Lock]" = weakref.WeakSet()

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._all.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *error: Any) -> None:
        if self._lock.locked():  # it is not, in a process forked meanwhile
            self._lock.release()

    @classmethod
    def renew_all(cls) -> None:
        for lock in list(cls._all):
            lock._lock = threading.Lock()


os.register_at_fork(after_in_child=Lock.renew_all)


class Output(NamedTuple):
    """The model's output for one input."""

    pieces: Any  # subwords, separated by spaces
    complete: bool  # False if it was stopped at the length limit
    copied: Sequence[int | None] = ()  # for each subword, the source position that it copies
    score: float = 0.0  # as in fairseq: sum of log-probabilities over length to the power of lenpen
    token_scores: Sequence[float] = ()  # log-probability of each subword and of the end symbol
    # the cross-attention of the last layer, mean of its heads: an array (T + 1) x (S + 1) for T
    # subwords and S of the source, with their end symbols; see `Engine.search`
    attention: Any = None
    repaired: str = ""  # the subwords with each symbol of protected text once, where this differs


class Summary(NamedTuple):
    """A document's summary, and how much of the document was read."""

    summary: list[str]  # its sentences
    subwords: int  # how many the document has
    read: int  # how many of them the model read, from the beginning
    complete: bool  # False if the summary was stopped at the length limit
    # for each of its subwords, the index (from 0) of the document's subword that it copies
    copied: list[tuple[str, int | None]] | None = None
    score: float = 0.0  # see `Output`


def listed(texts: Iterable[str]) -> list[str]:
    """The texts as a list. A single string is refused: its characters would be taken for texts.

    Raises:
        ConfigurationError: a single string was given, or an item is not a str or contains half of a
            surrogate pair, which UTF-8 text never has.
    """
    if isinstance(texts, (str, bytes)):
        raise ConfigurationError("expected a list of texts, got one string: give [text]")
    found = list(texts)
    for number, text in enumerate(found, 1):
        if not isinstance(text, str):
            raise ConfigurationError(f"text {number} is of type {type(text).__name__}: give str")
        half = SURROGATE.search(text)
        if half:
            raise ConfigurationError(
                f"text {number}, character {half.start() + 1}: {ascii(half[0])} is half of a "
                "surrogate pair: decode the text as UTF-8, or remove it"
            )
    return found


def encode(processor: Any, text: str) -> list[str]:
    """The subwords of a text; empty if it has no visible text, as in preparation."""
    return [] if is_blank(text) else processor.encode(text).split()


def number_unknown(
    pieces: Sequence[str],
    tokens: Sequence[int],
    unknown: int,
    vocabulary: int,
    only: Sequence[str] | None = None,
) -> tuple[list[int], list[str]]:
    """Give each distinct subword of a source that the dictionary lacks its own number.

    Args:
        pieces: the subwords.
        tokens: their numbers, and possibly others that are known; only of the first subwords if
            the source was truncated.
        unknown: the number of those that the dictionary lacks.
        vocabulary: V.
        only: for a prefix, the unknown subwords of its source; others stay <unk>.

    Returns:
        the tokens, with V + j for the j-th unknown subword, and these subwords.
    """
    lacking = {piece: vocabulary + j for j, piece in enumerate(only or ())}
    numbers = list(tokens)
    for place, (piece, token) in enumerate(zip(pieces, tokens)):
        if token == unknown and (only is None or piece in lacking):
            numbers[place] = lacking.setdefault(piece, vocabulary + len(lacking))
    return numbers, list(lacking)


def with_characters(
    pieces: Sequence[str],
    tokens: Sequence[int],
    vocabulary: int,
    lacking: Sequence[str],
    prefix: Sequence[str] = (),
) -> str:
    """Replace subwords that the dictionary lacks by characters of the prefix and the source.

    Args:
        pieces: subwords written by the model, without the end symbol.
        tokens: their numbers, see `number_unknown`.
        vocabulary: V.
        lacking: the unknown subwords of the source.
        prefix: the subwords with which the model had to begin.

    Returns:
        the subwords, separated by spaces.
    """
    found = list(pieces)
    for place, token in zip(range(len(found)), tokens):
        if place < len(prefix):
            found[place] = prefix[place]
        elif token >= vocabulary:
            found[place] = lacking[token - vocabulary]
    return " ".join(found)


def sentences_of(pieces: str) -> list[str]:
    """The subwords of each sentence; the boundary is a separate token."""
    sentences: list[list[str]] = [[]]
    for piece in pieces.split():
        if piece == BOUNDARY:
            sentences.append([])
        else:
            sentences[-1].append(piece)
    return [" ".join(sentence) for sentence in sentences]
