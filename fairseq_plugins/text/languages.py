"""Languages: the two letters that Moses and sacreBLEU know, and the scripts of texts.

How words and punctuation of a language are spaced is in `moses.py`, and in `processing.py` for
every tokenizer.
"""

import collections
import functools
import re
import unicodedata
from collections.abc import Iterable

# ISO 639-2 and 639-3 codes of the languages for which Moses, sacreBLEU or scores have rules
_THREE_LETTERS = {
    "as": "asm", "bn": "ben", "bo": "bod tib", "ca": "cat", "cs": "ces cze", "de": "deu ger",
    "dz": "dzo", "el": "ell gre", "en": "eng", "es": "spa", "et": "est ekk", "fi": "fin",
    "fr": "fra fre", "ga": "gle", "gu": "guj", "hi": "hin", "hu": "hun", "is": "isl ice",
    "it": "ita", "ja": "jpn", "km": "khm", "kn": "kan", "ko": "kor", "lo": "lao", "lt": "lit",
    "lv": "lav lvs", "ml": "mal", "mni": "mni", "mr": "mar", "my": "mya bur", "nl": "nld dut",
    "or": "ori ory", "pa": "pan", "pl": "pol", "pt": "por", "ro": "ron rum", "ru": "rus",
    "sk": "slk slo", "sl": "slv", "sv": "swe", "ta": "tam", "te": "tel", "th": "tha",
    "zh": "zho chi cmn yue wuu lzh",
}  # fmt: skip
_OF_COUNTRIES = {"cn": "zh", "jp": "ja"}
_TWO_LETTERS = {long: short for short, codes in _THREE_LETTERS.items() for long in codes.split()}


def two_letters(language: str) -> str:
    """The ISO 639-1 code in a code with a region or a script: ``en`` for en_US, EN and eng_Latn.

    Other codes are lower-cased, and lose region and script.
    """
    code = language.split("_")[0].lower()
    return _TWO_LETTERS.get(code, code)


def scored_as(language: str) -> str:
    """`two_letters`, but zh and ja for cn and jp, which are countries and many take for languages.

    Preparation does not read these two as languages, so its folders stay the same.
    """
    code = two_letters(language)
    return _OF_COUNTRIES.get(code, code)


_LETTERS = "\u0e00-\u109f\u1780-\u17ff"  # Thai, Lao, Tibetan, Burmese, Khmer
# Japanese syllables and Chinese characters
_CHARACTERS = "\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_UNSPACED = re.compile(f"[{_LETTERS}{_CHARACTERS}]")
_CHARACTER = re.compile(f"[{_CHARACTERS}]")
ZERO_WIDTH_SPACE = "\u200b"  # which separates words, unlike other invisible characters
_WORD = re.compile(f"[{_LETTERS}]{{1,4}}|[{_CHARACTERS}]{{1,2}}")


def is_unspaced(lines: Iterable[str]) -> bool:
    """Whether most letters of a text belong to scripts without spaces between words."""
    unspaced = letters = 0
    for line in lines:
        unspaced += len(_UNSPACED.findall(line))
        letters += sum(map(str.isalpha, line))
    return 2 * unspaced > letters


def separate_unspaced(text: str) -> str:
    """Separate about as many words by spaces as a text in a script without spaces has.

    Up to two adjacent Chinese or Japanese characters count as a word, and so do up to four letters
    of other scripts: about the lengths of their words, so text with spaces has hardly more.
    """
    # the search is faster, and most text has none
    return _WORD.sub(r" \g<0> ", text) if _UNSPACED.search(text) else text


@functools.cache
def _kept_of_word(character: str) -> str:
    """Letters, digits and marks; invisible characters vanish, all others separate words."""
    category = unicodedata.category(character)
    if character.isalnum() or category[0] == "M":
        return character
    return "" if category == "Cf" and character != ZERO_WIDTH_SPACE else " "


def words(text: str) -> list[str]:
    """The words of a text in any script: letters and digits with their marks, in lower case.

    Each Chinese character and each Japanese kana is a word. Thai, Lao, Khmer and Burmese need
    spaces, or zero-width spaces, between words.
    """
    text = "".join(map(_kept_of_word, unicodedata.normalize("NFKC", text).lower()))
    return re.findall(r"\w\S*", _CHARACTER.sub(r" \g<0> ", text))  # not a mark without a letter


def main_script(lines: Iterable[str]) -> str:
    """The script of most letters of a text, as Unicode names it: LATIN, CYRILLIC; else empty."""
    letters = (letter for line in lines for letter in line if letter.isalpha())
    counts = collections.Counter(unicodedata.name(letter, "").split(" ")[0] for letter in letters)
    return max(counts, key=lambda name: counts[name], default="")
