"""Terminology: which terms a line has, and symbols that stand for them.

tests/test_translator.py constrains searches to terms.
"""

import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.text.protection import SYMBOL, Protection
from fairseq_plugins.text.terms import read_terms


def written(folder, text):
    (folder / "terms.tsv").write_text(text, "utf-8")
    return folder / "terms.tsv"


def test_terms_are_whole_words_and_the_longest_win(tmp_path):
    path = written(tmp_path, "Haus\thouse\nrotes Haus \t red house\nB.\tb\n")
    terms = Protection(terms=read_terms(path))
    line = "Ein rotes Haus, ein <b>Haus</b>, Hausarzt, B. und AB."
    assert terms.wanted(line) == ["red house", "house", "b"]


@pytest.mark.parametrize("text", ["", "a\n", "a\t\n", "a\tb\tc\n", "a\tb\n\n", "a\ta\na\tb\n"])
def test_wrong_files_are_told(tmp_path, text):
    with pytest.raises(
        ConfigurationError, match="--terms .*(source term, a|is empty|target 'b', but)"
    ):
        read_terms(written(tmp_path, text))


def test_a_symbol_stands_for_a_term_and_becomes_its_target():
    terms = Protection(["Haus \\d+"], {"Haus": "house", "B&B": "inn", "alt": "house"})
    source = "Das Haus 3 <b>und</b> altes Haus, B&B"
    one, other = terms.protect_pair(source, "The inn <b>and</b> old house, the house")
    assert len(SYMBOL.findall(one)) == 5  # both houses, two tags and the inn
    assert sorted(SYMBOL.findall(one)) == sorted(SYMBOL.findall(other))
    assert terms.restore(terms.protect(source), source) == (
        "Das house 3 <b>und</b> altes house, inn",
        (),
    )
    assert terms.restore("", "alt") == ("house", ("house",))
    assert terms.protect_prefix("A house of Haus", "Haus") == f"A {terms.protect('Haus')} of Haus"
    assert terms.missing_spans("Haus alt", "house") == ["house"]
