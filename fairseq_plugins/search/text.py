"""Convert lines of text to subwords and back, however the model runs."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.text.sentences import BOUNDARY, is_blank
from fairseq_plugins.text.subwords import END, SPECIAL

SURROGATE = re.compile("[\ud800-\udfff]")
LONGEST = 200  # default limit of a summary, in subwords
ENDS = (SPECIAL.index("<s>"), SPECIAL.index(END))


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


def write(
    tokens: Sequence[int],
    symbols: Sequence[str],
    lacking: Sequence[str],
    prefix: Sequence[str] = (),
) -> str:
    """The subwords of a hypothesis, separated by spaces, without symbols of begin and end.

    Args:
        tokens: their numbers, see `number_unknown`.
        symbols: the V subwords of the dictionary.
        lacking: the unknown subwords of the source.
        prefix: the subwords with which the model had to begin; they stay as they were given.

    Raises:
        IndexError: a token is beyond both lists.
    """
    written = [
        symbols[token] if token < len(symbols) else lacking[token - len(symbols)]
        for token in tokens[len(prefix) :]
        if token not in ENDS
    ]
    return " ".join([*prefix[: len(tokens)], *written])


def sentences_of(pieces: str) -> list[str]:
    """The subwords of each sentence; the boundary is a separate token."""
    sentences: list[list[str]] = [[]]
    for piece in pieces.split():
        if piece == BOUNDARY:
            sentences.append([])
        else:
            sentences[-1].append(piece)
    return [" ".join(sentence) for sentence in sentences]
