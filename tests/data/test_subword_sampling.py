"""Random segmentations have the frequencies of subword-nmt's."""

import functools
import io
import itertools
import random
from collections import Counter

import pytest
from fairseq.data import Dictionary
from subword_nmt.apply_bpe import BPE, encode

from fairseq_plugins.data.subword_sampling import BPEDropout
from fairseq_plugins.text.subwords import BytePairEncoding

MERGES = "#version: 0.2\na n\nan an\nb an\na</w> x\nn a</w>\nan a</w>\nx x\nxx xx\nx x</w>\n"
TEXT = [
    "das kleine haus steht am kleinen see",
    "ein haus und eine maus am see",
    "kleine hauser und kleinere mause",
    "user haus auser serena seher",
] * 4
DRAWS = 20000


def make_dictionary(pieces):
    dictionary = Dictionary()
    for piece in pieces:
        dictionary.add_symbol(piece)
    return dictionary


def every_piece(*words):
    """All that any segmentation of these words may have."""
    for word in words:
        for start, end in itertools.combinations(range(len(word) + 1), 2):
            yield word[start:end] + ("" if end == len(word) else "@@")


@pytest.fixture
def codes(tmp_path):
    path = tmp_path / "bpe.codes"
    path.write_text(MERGES, encoding="utf-8")
    return path


@functools.cache
def draws_of_subword_nmt(word, dropout):
    """How often subword-nmt, which knows no dictionary, draws each segmentation."""
    bpe = BPE(io.StringIO(MERGES))
    random.seed(1)
    how = (bpe.bpe_codes, None, None, "@@", bpe.version)
    drawn = Counter(tuple(encode(word, *how, {}, dropout=dropout)) for _ in range(DRAWS))
    return {(*(s + "@@" for s in symbols[:-1]), symbols[-1]): n for symbols, n in drawn.items()}


@pytest.mark.parametrize("word", ["banana", "xxxx", "xxx", "n", "ana"])
@pytest.mark.parametrize("dropout", [0.1, 0.6])
@pytest.mark.parametrize("lacking", [None, "an@@"])
def test_bpe_dropout_has_the_frequencies_of_subword_nmt(codes, word, dropout, lacking):
    expected = {p: n for p, n in draws_of_subword_nmt(word, dropout).items() if lacking not in p}
    dictionary = make_dictionary(piece for piece in every_piece(word) if piece != lacking)
    sampler = BPEDropout(codes, dictionary, dropout)
    known = sampler.prepare(BytePairEncoding(codes).cut(word).split())
    sampler.begin(random.Random(3).random)
    drawn = Counter(tuple(dictionary[i] for i in sampler.draw(known)) for _ in range(DRAWS))
    for pieces in {*drawn, *expected}:
        shares = drawn[pieces] / DRAWS, expected.get(pieces, 0) / sum(expected.values())
        deviation = (sum(shares) / 2 / DRAWS * (1 - sum(shares) / 2) * 2) ** 0.5
        assert abs(shares[0] - shares[1]) <= 5 * deviation, pieces


def test_bpe_without_dropout_is_the_usual_segmentation(tmp_path):
    path, text = tmp_path / "bpe.codes", tmp_path / "text"
    text.write_text("\n".join(TEXT), encoding="utf-8")
    BytePairEncoding.learn([text], path, 12)
    words = sorted(set(" ".join(TEXT).split()))
    dictionary = make_dictionary(every_piece(*words))
    sampler = BPEDropout(path, dictionary, 0.0)
    sampler.begin(random.Random(1).random)
    for word in words:
        pieces = BytePairEncoding(path).cut(word).split()
        drawn = sampler.draw(sampler.prepare(pieces))
        assert [dictionary[i] for i in drawn] == pieces
        assert drawn == sampler._pieces(sampler._walk(sampler.prepare(pieces)[2]))


def test_little_memory_changes_nothing(codes, monkeypatch):
    dictionary = make_dictionary(every_piece("banana", "anna"))
    results = []
    for memory in (BPEDropout.memory, 7):
        monkeypatch.setattr(BPEDropout, "memory", memory)
        sampler = BPEDropout(codes, dictionary, 0.5)
        words = [
            sampler.prepare(BytePairEncoding(codes).cut(w).split()) for w in ("banana", "anna")
        ]
        sampler.begin(random.Random(1).random)
        results.append([sampler.draw(word) for _ in range(200) for word in words])
        assert len(sampler._seen) <= memory
    assert results[0] == results[1]


def test_words_cut_otherwise_are_not_for_the_sampler(codes):
    dictionary = make_dictionary(every_piece("banana"))
    sampler = BPEDropout(codes, dictionary, 0.5)
    usual = BytePairEncoding(codes).cut("banana").split()
    assert sampler.prepare(usual) is not None
    others = [["ban@@", "ana"], ["b@@", "anana"], ["b@@", "a@@", "n@@", "a@@", "n@@", "a"]]
    assert usual not in others
    assert [sampler.prepare(pieces) for pieces in others] == [None, None, None]
    assert sampler.prepare(["zebra"]) is None
