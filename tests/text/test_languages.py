"""Codes of languages, short and long."""

import pytest

from fairseq_plugins.text.languages import two_letters


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
