"""Protected text: what a translation must keep as it is, such as tags, URLs and numbers with units.

Each span of such text becomes a symbol, one character that subwords cannot split. In preparation
this happens to the spans that stand on both sides of a pair, so that the model learns to carry
symbols over. A translation gets the spans back in place of their symbols::

    Klicken Sie <b>hier</b>!  ->  Klicken Sie SYMBOLhierSYMBOL!  ->  Click <b>here</b>!
"""

import importlib
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from fairseq_plugins.errors import ConfigurationError

FIRST, COUNT = 0xF0000, 16  # characters of Unicode's private use, which text hardly ever has
SYMBOLS = tuple(chr(FIRST + number) for number in range(COUNT))
SYMBOL = re.compile(f"[{SYMBOLS[0]}-{SYMBOLS[-1]}]")
_UNITS = (
    "%|\u2030|\u00b0C?|\u20ac|\\$|\u00a3|\u00a5|EUR|USD|GBP|CHF|JPY|[kMGT]?i?B|[kMG]?Hz|[kMG]?Wh?|"
    "[ck\u00b5]?g|[cdkm\u00b5n]?m[\u00b2\u00b3]?|[cm]?l|km/h|m/s|ms|mph|kcal|h|min|s"
)
_NUMBER = r"\d{1,18}(?:[.,]\d{1,18}){0,6}"
_PICTURE = "[\u2600-\u27bf\U0001f300-\U0001faff]"
# lengths are limited, so that the time is linear in the text
PATTERNS = (
    r"</?[A-Za-z][^<>]{0,300}>|&#?\w{1,30};",  # tags and entities of HTML and XML
    r"(?:https?://|ftp://|www\.)[^\s<>\"]{0,2000}[^\s<>\".,;:!?)\]'\u201d]",
    r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}",  # e-mail addresses
    r"\$?\{\{?[^{}\s]{0,60}\}?\}",  # names in braces
    r"(?<!\d)%(?:\(\w{1,60}\)|\d\$)?[-+#0]?\d{0,3}(?:\.\d{1,3})?[sdifxu@](?!\w)",
    rf"(?<![\w.,])[$\u20ac\u00a3\u00a5] ?{_NUMBER}",
    rf"(?<![\w.,]){_NUMBER}[ \u00a0]?(?:{_UNITS})(?!\w)",
    f"{_PICTURE}(?:\ufe0f|\u200d{_PICTURE}|[\U0001f3fb-\U0001f3ff])*",
    "[\U0001f1e6-\U0001f1ff]{2}",  # flags
)
SECONDS = 5  # of the processor, for the patterns of a user in a line
Symbols = dict[tuple[str, int], str]  # of each span, with its number among equal ones


class Restored(NamedTuple):
    """A translation with the spans of its source.

    Attributes:
        text: the translation.
        repaired: the spans whose symbols the model left out, or wrote twice; None for a model
            without protected text.
    """

    text: str
    repaired: tuple[str, ...] | None = None


class Protection:
    """Replaces the spans of a text by symbols, and restores them.

    Args:
        patterns: regular expressions of further spans, which win where several begin.
        terms: the target term of each source term. They win over all patterns, and a translation
            gets the target term in place of the symbol.
    """

    def __init__(
        self, patterns: Sequence[str] = (), terms: Mapping[str, str] | None = None
    ) -> None:
        self.terms = terms or {}
        spans = (*(f"(?:{each})" for each in patterns), *PATTERNS)
        # a stranger's export may have patterns that take exponential time
        library: Any = _regex() if patterns else re
        self._limit = {"timeout": SECONDS} if patterns else {}
        self.spans = [
            library.compile("|".join((*([whole_words(words)] if words else []), *spans)))
            for words in (self.terms.keys(), self.terms.values())  # of sources, and of targets
        ]

    def protect(self, source: str) -> str:
        """The source with a symbol for each span; from the seventeenth on they stay as they are."""
        return self._replaced(source, self.symbols_of(source))

    def protect_pair(self, source: str, target: str) -> tuple[str, str]:
        """Both sides with the same symbols for the spans that both have."""
        symbols = self.symbols_of(source, target)
        return self._replaced(source, symbols), self._replaced(target, symbols, True)

    def protect_prefix(self, prefix: str, source: str) -> str:
        """The beginning of a translation with the symbols of its source."""
        return self._replaced(prefix, self.symbols_of(source), True)

    def restore(self, text: str, source: str) -> Restored:
        """A translation of `protect(source)` with the spans of the source, each exactly once.

        Of a symbol that stands twice the first remains; spans without a symbol are appended.
        """
        spans = {symbol: span for (span, _), symbol in self.symbols_of(source).items()}
        left, doubled = dict(spans), []

        def span_of(symbol: re.Match[str]) -> str:
            if symbol[0] in spans and symbol[0] not in left:
                doubled.append(spans[symbol[0]])
            return left.pop(symbol[0], "")

        text = SYMBOL.sub(span_of, text)
        return Restored(" ".join(filter(None, (text, *left.values()))), (*left.values(), *doubled))

    def wanted(self, source: str) -> list[str]:
        """The target terms of the source terms that a source has as whole words."""
        return [span for match, (span, _) in self._keyed(source) if match[0] in self.terms]

    def missing_spans(self, source: str, translation: str) -> list[str]:
        """The spans of a source that its translation does not have, or not as often."""
        spans = Counter(span for _, (span, _) in self._keyed(source))
        return [span for span, count in spans.items() if translation.count(span) < count]

    def symbols_of(self, source: str, target: str | None = None) -> Symbols:
        """The symbol of each span of a source, or of those that its target has, too.

        The first symbol depends on the text, so that a model sees all of them equally often.
        """
        source = _clean(source)
        keys = [key for _, key in self._keyed(source)]
        if target is not None:
            there = {key for _, key in self._keyed(_clean(target), True)}
            keys = [key for key in keys if key in there]
        start = zlib.crc32(source.encode("utf-8"))
        return {key: SYMBOLS[(start + n) % COUNT] for n, key in enumerate(keys[:COUNT])}

    def _keyed(
        self, text: str, is_target: bool = False
    ) -> Iterator[tuple[re.Match[str], tuple[str, int]]]:
        seen = Counter[str]()
        try:
            for match in self.spans[is_target].finditer(text, **self._limit):
                span = match[0] if is_target else self.terms.get(match[0], match[0])
                seen[span] += 1
                yield match, (span, seen[span])
        except TimeoutError:
            raise ConfigurationError(
                f"--protect-patterns: one takes more than {SECONDS} s for a line: give simpler "
                "patterns, without repetitions in repetitions"
            ) from None

    def _replaced(self, text: str, symbols: Symbols, is_target: bool = False) -> str:
        text, parts, end = _clean(text), [], 0
        for match, key in self._keyed(text, is_target):
            parts += [text[end : match.start()], symbols.get(key, match[0])]
            end = match.end()
        return "".join(parts) + text[end:]


def whole_words(terms: Iterable[str]) -> str:
    """A regular expression of the terms as whole words; the longest of several wins."""
    longest_first = sorted(map(re.escape, terms), key=len, reverse=True)
    return rf"(?<!\w)(?:{'|'.join(longest_first)})(?!\w)"


def _regex() -> Any:
    """The library of sacremoses, whose searches can be limited in time; half as fast as `re`."""
    return importlib.import_module("regex")


def pattern_error(pattern: object) -> str:
    """Why a text cannot be a pattern; "" if it can."""
    try:
        found = re.compile(f"(?:{pattern})")
        Protection([str(pattern)])
    except (re.error, _regex().error) as error:
        return str(error)
    if found.groups:
        return "it has groups: write (?:...)"
    return "it matches the empty text" if found.match("") else ""


def mismatch(source: str, written: str) -> int:
    """How many symbols of a source its translation lacks or has in excess."""
    wanted, there = (Counter(SYMBOL.findall(text)) for text in (source, written))
    return ((wanted - there) + (there - wanted)).total()


def repair(
    source: Sequence[str],
    written: Sequence[str],
    attention: Any,
    is_word_end: Callable[[Sequence[str], int], bool],
) -> list[str]:
    """Subwords of a translation with each symbol of its source once, by their alignment.

    A symbol that was written twice stays at its first position. A missing one takes the position of
    the symbol in excess that attended to it most; without any it stands between two words: it
    divides the translation so that most of the attention before it was to the source before it, and
    after it to that after it.

    Args:
        source, written: subwords.
        attention: how much each of T subwords attends to each of S, at least T x S.
        is_word_end: of `subwords`.
    """
    where = {piece[0]: j for j, piece in enumerate(source) if SYMBOL.match(piece)}
    pieces, seen, excess = list(written), set(), []
    for t, piece in enumerate(written):
        if SYMBOL.match(piece):
            excess += [t] if piece[0] in seen or piece[0] not in where else []
            seen.add(piece[0])
    ends = [0, *(end for end in range(1, len(written) + 1) if is_word_end(written, end))]
    added = []
    for symbol, j in where.items():
        if symbol in seen:
            continue
        if excess:
            t = max(excess, key=lambda t: attention[t, j])
            excess.remove(t)
            pieces[t] = symbol + pieces[t][1:]
        else:
            rows = attention[: len(written)]
            leads = (rows[:, :j].sum(axis=1) - rows[:, j + 1 :].sum(axis=1)).cumsum()
            end = max(ends, key=lambda end: leads[end - 1] if end else 0.0)
            # SentencePiece divides a word that begins with a symbol after its mark of words
            added.append((end, j, source[j - (source[j - 1 : j] == ["\u2581"]) : j + 1]))
    for t in excess:
        pieces[t] = ""
        if t and pieces[t - 1] == "\u2581" and is_word_end(written, t + 1):
            pieces[t - 1] = ""
    for end, _, more in sorted(added, reverse=True):
        pieces[end:end] = more
    return [piece for piece in pieces if piece]


def _clean(text: str) -> str:
    """The text without characters that are symbols here."""
    return SYMBOL.sub(" ", text)
