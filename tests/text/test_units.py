"""The tokens of texts to classify."""

from fairseq_plugins.text.subwords import SentencePiece
from fairseq_plugins.text.units import find_cut


def test_words_that_are_marks_of_dictionaries_are_unknown(tmp_path):
    assert find_cut("words", tmp_path)("a </s>  b <pad>") == ["a", "<unk>", "b", "<unk>"]


def test_what_nobody_sees_has_no_pieces(tmp_path):
    (tmp_path / "text").write_text("the man and the woman\n" * 9, encoding="utf-8")
    SentencePiece.learn([tmp_path / "text"], tmp_path / SentencePiece.file_name, 20)
    assert find_cut("subwords", tmp_path)("\u200b \xad") == []
