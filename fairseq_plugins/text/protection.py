"""Protected text: what a translation must keep as it is, such as tags, URLs and numbers with units.

Each span of such text becomes a symbol, one character that subwords cannot split. In preparation
this happens to the spans that stand on both sides of a pair, so that the model learns to carry
symbols over. A translation gets the spans back in place of their symbols::

    Klicken Sie <b>hier</b>!  ->  Klicken Sie SYMBOLhierSYMBOL!  ->  Click <b>here</b>!
"""

import re
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

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
SPAN = re.compile(
    "|".join(
        (
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
    )
)
Symbols = dict[tuple[str, int], str]  # of each span, with its number among equal ones


class Restored(NamedTuple):
    """A translation with the spans of its source.

    Attributes:
        text: the translation.
        repaired: the spans whose symbols the model left out, which now stand at the end, or wrote
            twice, of which the first remains; None for a model without protected text.
    """

    text: str
    repaired: tuple[str, ...] | None = None


def protect(source: str) -> str:
    """The source with a symbol for each span; from the seventeenth on they stay as they are."""
    return _replaced(_clean(source), symbols_of(source))


def protect_pair(source: str, target: str) -> tuple[str, str]:
    """Both sides with the same symbols for the spans that both have."""
    symbols = symbols_of(source, target)
    return _replaced(_clean(source), symbols), _replaced(_clean(target), symbols)


def protect_prefix(prefix: str, source: str) -> str:
    """The beginning of a translation with the symbols of its source."""
    return _replaced(_clean(prefix), symbols_of(source))


def restore(text: str, source: str) -> Restored:
    """A translation of `protect(source)` with the spans of the source, each exactly once."""
    spans = {symbol: span for (span, _), symbol in symbols_of(source).items()}
    left, doubled = dict(spans), []

    def span_of(symbol: re.Match[str]) -> str:
        if symbol[0] in spans and symbol[0] not in left:
            doubled.append(spans[symbol[0]])
        return left.pop(symbol[0], "")

    text = SYMBOL.sub(span_of, text)
    return Restored(" ".join(filter(None, (text, *left.values()))), (*left.values(), *doubled))


def missing_spans(source: str, translation: str) -> list[str]:
    """The spans of a source that its translation does not have, or not as often."""
    spans = Counter(span for _, (span, _) in _keyed(source))
    return [span for span, count in spans.items() if translation.count(span) < count]


def symbols_of(source: str, target: str | None = None) -> Symbols:
    """The symbol of each span of a source, or of those that its target has, too.

    The first symbol depends on the text, so that a model sees all of them equally often.
    """
    source = _clean(source)
    keys = [key for _, key in _keyed(source)]
    if target is not None:
        there = {key for _, key in _keyed(_clean(target))}
        keys = [key for key in keys if key in there]
    start = zlib.crc32(source.encode("utf-8"))
    return {key: SYMBOLS[(start + n) % COUNT] for n, key in enumerate(keys[:COUNT])}


def _clean(text: str) -> str:
    """The text without characters that are symbols here."""
    return SYMBOL.sub(" ", text)


def _keyed(text: str) -> Iterator[tuple[re.Match[str], tuple[str, int]]]:
    seen = Counter[str]()
    for match in SPAN.finditer(text):
        seen[match[0]] += 1
        yield match, (match[0], seen[match[0]])


def _replaced(text: str, symbols: Symbols) -> str:
    parts, end = [], 0
    for match, key in _keyed(text):
        parts += [text[end : match.start()], symbols.get(key, match[0])]
        end = match.end()
    return "".join(parts) + text[end:]
