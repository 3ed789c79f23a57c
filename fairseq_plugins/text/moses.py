"""The tokenizer and detokenizer of Moses: sacremoses, plus one rule of Moses that it lacks."""

import re
from typing import Any

from sacremoses import MosesDetokenizer, MosesTokenizer

_LAST_PERIOD = re.compile(r"(?<=\S)\.$")


class _Tokenizer(MosesTokenizer):
    """With the regular expressions and sets of sacremoses, but in time linear in the text."""

    NONBREAKING_PREFIXES: Any
    MULTIDOT_MARKER = re.compile(r"(?<!DOT)(?:DOT)+MULTI")

    def __init__(self, language: str):
        super().__init__(language)
        self._lower, self._letters = frozenset(self.IsLower), frozenset(self.IsAlpha)
        self.NONBREAKING_PREFIXES = frozenset(self.NONBREAKING_PREFIXES)

    def islower(self, text: str) -> bool:
        return self._lower.issuperset(text)

    def isanyalpha(self, text: str) -> bool:
        return not self._letters.isdisjoint(text)

    def handles_nonbreaking_prefixes(self, text: str) -> str:
        """Separate the period from the last word of a line, as Moses does: ``in the U.S .``

        sacremoses keeps it if the word is an abbreviation, a single letter or a number.
        """
        return _LAST_PERIOD.sub(" .", super().handles_nonbreaking_prefixes(text))


class Moses:
    """Tokenises and detokenises one language as the Moses scripts do.

    Args:
        language: a code of `languages.two_letters`, for the rules for abbreviations and
            apostrophes. Moses has general rules and English abbreviations for other languages.
    """

    def __init__(self, language: str):
        self.language = language
        self._tokenizer: Any = _Tokenizer(language)
        self._detokenizer: Any = MosesDetokenizer(language)

    def tokenise(self, line: str) -> str:
        """Words and punctuation separated by single spaces; ``& | < > ' " [ ]`` are escaped."""
        return self._tokenizer.tokenize(line, return_str=True)

    def detokenise(self, line: str) -> str:
        """Plain text from tokens separated by spaces."""
        return self._detokenizer.detokenize(line.split(), return_str=True, unescape=True)
