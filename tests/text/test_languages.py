"""Codes of languages, short and long, and scripts."""

import pytest

from fairseq_plugins.text.languages import main_script, separate_unspaced, two_letters


@pytest.mark.parametrize(
    "code, expected",
    [
        *[(code, "en") for code in ("en", "EN", "en_US", "en_XX", "eng", "eng_Latn")],
        *[(code, "de") for code in ("de_DE", "deu", "ger", "deu_Latn")],
        *[(code, "zh") for code in ("zh_CN", "zho_Hans", "cmn")],
        *[("fra_Latn", "fr"), ("jpn_Jpan", "ja"), ("src", "src"), ("source", "source")],
    ],
)
def test_two_letters_of_a_code(code, expected):
    assert two_letters(code) == expected


def test_the_script_of_most_letters():
    assert main_script(["1 a \u0431\u0432", "2 3 4"]) == "CYRILLIC"
    assert main_script(["", "42 %"]) == ""


def test_words_of_scripts_without_spaces():
    words = separate_unspaced("a" * 9 + "\u0e01" * 8 + "\u4e00" * 5).split()
    assert list(map(len, words)) == [9, 4, 4, 2, 2, 1]
