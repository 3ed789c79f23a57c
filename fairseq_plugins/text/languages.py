"""Names of languages: the two letters that Moses and sacreBLEU know, from longer codes."""

# ISO 639-2 and 639-3 codes of the languages for which Moses or sacreBLEU has rules
_THREE_LETTERS = {
    "as": "asm", "bn": "ben", "ca": "cat", "cs": "ces cze", "de": "deu ger", "el": "ell gre",
    "en": "eng", "es": "spa", "et": "est ekk", "fi": "fin", "fr": "fra fre", "ga": "gle",
    "gu": "guj", "hi": "hin", "hu": "hun", "is": "isl ice", "it": "ita", "ja": "jpn",
    "kn": "kan", "ko": "kor", "lt": "lit", "lv": "lav lvs", "ml": "mal", "mni": "mni",
    "mr": "mar", "nl": "nld dut", "or": "ori ory", "pa": "pan", "pl": "pol", "pt": "por",
    "ro": "ron rum", "ru": "rus", "sk": "slk slo", "sl": "slv", "sv": "swe", "ta": "tam",
    "te": "tel", "zh": "zho chi cmn",
}  # fmt: skip
_TWO_LETTERS = {long: short for short, codes in _THREE_LETTERS.items() for long in codes.split()}


def two_letters(language: str) -> str:
    """The ISO 639-1 code in a code with a region or a script: ``en`` of en_US, EN and eng_Latn.

    A code that has none here stays as it is, in lower case and without region and script.
    """
    code = language.split("_")[0].lower()
    return _TWO_LETTERS.get(code, code)
