"""Byte-pair encoding of words that look like marks."""

import pytest

from fairseq_plugins.preparation.subwords import BytePairEncoding


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
