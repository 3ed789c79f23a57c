"""Subwords of words that look like marks."""

import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import write_lines
from fairseq_plugins.text.subwords import BytePairEncoding, SentencePiece


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bpe")
    words = ["the", "man", "foo@@", "</s>", "<pad>", "@@", "a<b"]
    (folder / "text").write_text("\n".join([" ".join(words)] * 50) + "\n", encoding="utf-8")
    BytePairEncoding.learn([folder / "text"], folder / "bpe.codes", 100)
    return BytePairEncoding(folder / "bpe.codes")


@pytest.mark.parametrize(
    "line",
    ["the man", "foo@@ man", "the @@ man", "man foo@@", "@@", "a<b foo@@ @@ the", "x@@ y", ""],
)
def test_words_that_end_like_pieces_stay_whole(model, line):
    assert model.join(model.cut(line)) == line
    pieces = model.cut(line).split()
    ends = [model.is_word_end(pieces, end) for end in range(1, len(pieces) + 1)]
    assert sum(ends) == len(line.split())


def test_marks_of_dictionaries_are_unknown_words(model):
    assert model.cut("the </s> man <pad>") == "the <unk> man <unk>"


def test_the_cache_of_words_does_not_grow_forever(model, monkeypatch):
    monkeypatch.setattr("fairseq_plugins.text.subwords.MOST_WORDS", 5)
    for number in range(20):
        model.cut(f"man{number}")
        assert len(model.bpe.cache) < 7


@pytest.mark.parametrize("first", ["#version: 9.9", "#version: 0.2.0", "#version: 1" + ".0" * 9999])
def test_merges_of_another_version_are_rejected(tmp_path, first):
    (tmp_path / "bpe.codes").write_text(f"{first}\na b\n")
    with pytest.raises(ConfigurationError, match="bpe.codes is damaged .*#version: 0.2"):
        BytePairEncoding(tmp_path / "bpe.codes")


@pytest.mark.parametrize("end", ["", "@@", "a"])
def test_long_words_are_segmented_in_parts_and_nothing_is_lost(model, monkeypatch, end):
    word = "theman<b" * 400 + end
    pieces = model.cut(f"man {word} the").split()
    ends = [model.is_word_end(pieces, end) for end in range(1, len(pieces) + 1)]
    assert model.join(" ".join(pieces)) == f"man {word} the" and sum(ends) == 3
    assert max(map(len, model.bpe.cache)) <= 1001  # what subword-nmt had to segment at once
    # parts are segmented as within a word
    monkeypatch.setattr("fairseq_plugins.text.subwords.LONGEST_WORD", 3)
    assert model.cut("themanthe") == "th@@ e@@ ma@@ n@@ the"


def test_single_characters_cannot_be_merged(tmp_path):
    write_lines(tmp_path / "text", ["a b c"])
    with pytest.raises(ConfigurationError, match="no word of two characters in .*sentencepiece$"):
        BytePairEncoding.learn([tmp_path / "text"], tmp_path / "codes", 9)


def test_pieces_are_learnt_from_long_lines_too(tmp_path):
    """SentencePiece itself leaves out lines of more than 4,192 bytes."""
    lines = ["the man and the woman", " ".join(["\u0e01\u0e02\u0e04" * 20] * 30)]
    (tmp_path / "text").write_text("\n".join(lines * 5) + "\n", encoding="utf-8")
    SentencePiece.learn([tmp_path / "text"], tmp_path / "model", 19)
    pieces = SentencePiece(tmp_path / "model").cut("\u0e01\u0e02\u0e04 man")
    assert "<unk>" not in pieces and "\u0e01" in pieces


def test_the_mark_of_words_becomes_a_space(tmp_path):
    write_lines(tmp_path / "text", ["a b ab"] * 9)
    SentencePiece.learn([tmp_path / "text"], tmp_path / "model", 20)
    model = SentencePiece(tmp_path / "model")
    assert model.join(model.cut("a\u2581b")) == "a b"


def test_of_many_lines_pieces_are_learnt_from_some(tmp_path, monkeypatch):
    lines = [f"{letter}{letter} word" for letter in "abcdefghij"]
    (tmp_path / "text").write_text("\n".join(lines * 10) + "\n")
    monkeypatch.setattr("fairseq_plugins.text.subwords.MOST_LINES", 60)
    SentencePiece.learn([tmp_path / "text"] * 2, tmp_path / "model", 100)
    model = SentencePiece(tmp_path / "model")  # every fourth line has one of a, c, e, g, i
    assert model.cut("acegi").split()[-2:] == ["g", "i"] and model.cut("bfhj").split() == [
        "\u2581",
        "bfhj",
    ]


def test_characters_that_sentencepiece_lacks_are_no_marks(tmp_path):
    """It gives them out as they are, several in one piece; they are cut, and come back."""
    text = "\u6211\u4eec \u4f60\u597d"
    (tmp_path / "text").write_text(f"{text}\n" * 50, encoding="utf-8")
    SentencePiece.learn([tmp_path / "text"], tmp_path / "model", 8)
    model = SentencePiece(tmp_path / "model")
    for mark in ("</s>", "<pad>", "<s>", "<q>"):
        line = f"{text} {mark} {text}"
        pieces = model.cut(line)
        assert mark not in pieces.split() and model.join(pieces) == line
