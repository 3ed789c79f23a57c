"""Terminology: which terms a line has; tests/test_translator.py searches with them."""

import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.text.terms import Terms


def written(folder, text):
    (folder / "terms.tsv").write_text(text, "utf-8")
    return folder / "terms.tsv"


def test_terms_are_whole_words_and_the_longest_win(tmp_path):
    terms = Terms(written(tmp_path, "Haus\thouse\nrotes Haus \t red house\nB.\tb\n"))
    assert terms.wanted("Ein rotes Haus, ein Haus, Hausarzt, B. und AB.") == [
        "red house", "house", "b",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["", "a\n", "a\t\n", "a\tb\tc\n", "a\tb\n\n"])
def test_wrong_files_are_told(tmp_path, text):
    with pytest.raises(ConfigurationError, match=r"--terms .*(source term, a tab|is empty)"):
        Terms(written(tmp_path, text))
