"""The text processing of a prepared folder, for new source text and for the model's output."""

import copy
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.text.protection import Protection, Restored, pattern_error, repair
from fairseq_plugins.text.subwords import KINDS, LONGEST_WORD

# spaces, and words, of which the longest are divided, but not before a character that combines
# with the one before in Latin, Greek or Cyrillic script, in Korean or in Japanese
PARTS = re.compile(rf"\s+|\S{{1,{LONGEST_WORD}}}[\u0300-\u036f\u1160-\u11ff\u3099\u309a]{{0,30}}")
TOKENIZERS = ("moses", "none")
NFC = "NFC"
# a translation has at most max(ratio, LEAST_RATIO) times its source's subwords, plus MORE
LEAST_RATIO, MORE = 1.2, 10
UNKNOWN_RATIO_LEAST = 200  # the least limit without a ratio, as in fairseq-generate


def normalise(text: str) -> str:
    """The text in Unicode's form `NFC`."""
    if text.isascii():
        return text
    # the time for a run of combining characters grows with its square
    parts = PARTS.findall(text) if len(text) > LONGEST_WORD else [text]
    return "".join([unicodedata.normalize("NFC", part) for part in parts])


@dataclass(frozen=True)
class LengthLimit:
    """The most subwords of a translation, for validation, search and exports alike.

    Attributes:
        ratio: the least r for which 99.9 % of the training pairs have at most r times as many
            subwords as their source, plus `MORE`; None if the preparation did not record it.
    """

    ratio: float | None = None

    def __call__(self, source_length: int) -> int:
        """The limit for a source of this many tokens, with its end symbol."""
        if self.ratio is None:
            return max(UNKNOWN_RATIO_LEAST, 2 * source_length)
        return int(max(self.ratio, LEAST_RATIO) * source_length) + MORE


class Processing(NamedTuple):
    """The settings for processing new text, a part of the folder's `preparation.json`."""

    source_lang: str
    target_lang: str
    tokenizer: str
    lowercase: bool
    subword: str
    normalization: str  # the Unicode form of the text, always `NFC`
    max_source: int | None = None  # positions of a document, including its end
    # the code that Moses uses for a language, such as en for en_US
    moses_codes: dict[str, str] | None = None
    protect: bool | None = None  # see `protection`
    protect_patterns: list[str] | None = None
    terms: str | None = None  # the SHA-256 of the file, if symbols stand for terms

    @classmethod
    def of(cls, stored: dict[str, Any]) -> "Processing":
        """Take these settings from all settings of a preparation."""
        values: dict[str, Any] = {
            name: stored.get(name) if name in cls._field_defaults else stored[name]
            for name in cls._fields
        }
        return cls(**values)

    @property
    def protection(self) -> Protection | None:
        """What replaces protected text, if the preparation did."""
        return Protection(self.protect_patterns or ()) if self.protect else None

    @property
    def tokenised_before(self) -> bool:
        """Whether the text was tokenised before preparation: BPE without a tokenizer."""
        return (self.tokenizer, self.subword) == ("none", "bpe")

    def check(self) -> None:
        """Raise a ValueError for a setting with a type or value that preparations never write."""
        codes, patterns = self.moses_codes, self.protect_patterns
        fits = {
            "source_lang": isinstance(self.source_lang, str),
            "target_lang": isinstance(self.target_lang, str),
            "tokenizer": self.tokenizer in TOKENIZERS,
            "lowercase": isinstance(self.lowercase, bool),
            "subword": isinstance(self.subword, str) and self.subword in KINDS,
            "max_source": self.max_source is None
            or (type(self.max_source) is int and self.max_source >= 2),
            "normalization": self.normalization == NFC,
            "protect": self.protect in (None, True),
            "protect_patterns": patterns is None
            or (isinstance(patterns, list) and not any(map(pattern_error, patterns))),
            "terms": self.terms is None or isinstance(self.terms, str),
            "moses_codes": codes is None
            or (isinstance(codes, dict) and all(isinstance(c, str) for c in codes.values())),
        }
        for name, right in fits.items():
            if not right:
                raise ValueError(f"{name} {getattr(self, name)!r} is unknown")

    def check_languages(self, source_lang: str, target_lang: str, folder: Path) -> None:
        """Refuse a model of other languages; the opposite direction of the folder's is allowed.

        Raises:
            ConfigurationError: the model has other languages than the folder.
        """
        prepared = {self.source_lang, self.target_lang}
        if {source_lang, target_lang} != prepared:
            raise ConfigurationError(
                f"the model translates {source_lang} to {target_lang}, but {folder} was prepared "
                f"for {' and '.join(sorted(prepared))}: give the right folder as the data"
            )

    def tokenise(self, language: str) -> "Tokenisation":
        """The tokenisation of `language`."""
        code = (self.moses_codes or {}).get(language, language)
        return Tokenisation(code, self.tokenizer, self.lowercase)


class Tokenisation:
    """Converts raw text of one language to tokens and back; lower-casing is not reversible."""

    def __init__(self, language: str, tokenizer: str, lowercase: bool):
        self.lowercase = lowercase
        self.tokenizer: Any = None  # the text is tokenised already, or needs no tokens
        if tokenizer == "moses":
            from fairseq_plugins.text.moses import Moses  # a slow import: half a second

            self.tokenizer = Moses(language)

    def __call__(self, line: str) -> str:
        line = normalise(line)
        moses = self.tokenizer
        tokens = " ".join(line.split()) if moses is None else moses.tokenise(line)
        return tokens.lower() if self.lowercase else tokens

    def undo(self, line: str) -> str:
        """Plain text from tokens."""
        return line if self.tokenizer is None else self.tokenizer.detokenise(line)


class Processor:
    """Converts raw source text to subwords, and subwords of the target to raw text.

    `Prepared.processor` makes one.

    Args:
        settings: those of the prepared folder.
        subwords: its subword model.
        source_lang, target_lang: the direction; may be the reverse of the folder's.
        for_summaries: whether the folder was prepared for summaries.
        length_limit: of translations in this direction.
    """

    def __init__(
        self,
        settings: Processing,
        subwords: Any,
        source_lang: str,
        target_lang: str,
        for_summaries: bool,
        length_limit: LengthLimit,
    ):
        self.settings, self.subwords, self.for_summaries = settings, subwords, for_summaries
        self.length_limit, self.protection = length_limit, settings.protection
        self._source = settings.tokenise(source_lang)
        self._target = settings.tokenise(target_lang)

    def with_terms(self, terms: Mapping[str, str]) -> "Processor":
        """The same, where symbols also stand for source terms, and become their target terms."""
        other = copy.copy(self)
        other.protection = Protection(self.settings.protect_patterns or (), terms)
        return other

    def encode(self, line: str) -> str:
        """Subwords of a raw source line, separated by spaces."""
        if self.protection is not None:
            line = self.protection.protect(normalise(line))
        return self.subwords.cut(self._source(line))

    def encode_target(self, line: str, source: str = "") -> str:
        """Subwords of a raw target line, or of its beginning for a source, separated by spaces."""
        if self.protection is not None:
            line = self.protection.protect_prefix(normalise(line), normalise(source))
        return self.subwords.cut(self._target(line))

    def decode(self, pieces: str) -> str:
        """Raw target text from subwords separated by spaces."""
        return self._target.undo(self.subwords.join(pieces))

    def restored(self, pieces: str, source: str, repaired: str = "") -> Restored:
        """As `decode`, with the protected text of the raw source line in place of its symbols.

        Args:
            pieces: subwords of a translation, separated by spaces.
            source: the raw source line.
            repaired: what `repair` makes of them; without it, missing spans are appended.
        """
        found = self.restore(self.decode(pieces) if pieces else "", source)
        if found.repaired and repaired:
            found = found._replace(text=self.restore(self.decode(repaired), source).text)
        return found

    def repair(self, source: Sequence[str], written: Sequence[str], attention: Any) -> str:
        """See `protection.repair`; returns subwords separated by spaces."""
        return " ".join(repair(source, written, attention, self.subwords.is_word_end))

    def restore(self, text: str, source: str) -> Restored:
        """A translation with the protected text of the raw source line in place of its symbols."""
        if self.protection is None:
            return Restored(text)
        return self.protection.restore(text, normalise(source))
