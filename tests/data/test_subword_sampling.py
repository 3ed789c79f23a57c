"""Random segmentations against all segmentations and their probabilities, written as loops."""

import itertools
import random
from collections import Counter

import pytest
from fairseq.data import Dictionary

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


def bpe_probabilities(symbols, merges, dropout, found, probability=1.0):
    """Adds to `found` how likely each end is, from the steps of subword-nmt's encode."""
    places = [i for i in range(len(symbols) - 1) if symbols[i : i + 2] in merges]
    for kept in itertools.product([False, True], repeat=len(places)):
        share = probability
        for keep in kept:
            share *= 1 - dropout if keep else dropout
        pairs = [symbols[i : i + 2] for i, keep in zip(places, kept) if keep]
        if not pairs:
            found[symbols] += share
            continue
        best = min(pairs, key=merges.index)
        after, i = [], 0
        chosen = [i for i, keep in zip(places, kept) if keep and symbols[i : i + 2] == best]
        while i < len(symbols):
            width = 2 if i in chosen else 1
            after.append("".join(symbols[i : i + width]))
            i += width
        bpe_probabilities(tuple(after), merges, dropout, found, share)


def assert_frequencies(drawn, expected):
    """Within five standard deviations each."""
    total = sum(drawn.values())
    assert set(drawn) <= {pieces for pieces, share in expected.items() if share > 0}
    for pieces, share in expected.items():
        allowed = 5 * (total * share * (1 - share)) ** 0.5 + 1e-9
        assert abs(drawn[pieces] - total * share) <= allowed, pieces


def as_pieces(symbols):
    return (*(symbol + "@@" for symbol in symbols[:-1]), symbols[-1].replace("</w>", ""))


@pytest.mark.parametrize("word", ["banana", "xxxx", "xxx", "n", "ana"])
@pytest.mark.parametrize("dropout", [0.1, 0.6])
@pytest.mark.parametrize("lacking", [None, "an@@"])
def test_bpe_dropout_has_the_probabilities_of_its_steps(codes, word, dropout, lacking):
    pieces = [piece for piece in every_piece(word) if piece != lacking]
    dictionary = make_dictionary(pieces)
    merges = [tuple(line.split()) for line in MERGES.splitlines()[1:]]
    expected = Counter()
    bpe_probabilities((*word[:-1], word[-1] + "</w>"), merges, dropout, expected)
    expected = {as_pieces(symbols): share for symbols, share in expected.items()}
    expected = {p: s for p, s in expected.items() if lacking not in p}
    expected = {p: s / sum(expected.values()) for p, s in expected.items()}

    sampler = BPEDropout(codes, dictionary, dropout)
    usual = BytePairEncoding(codes).cut(word).split()
    known = sampler.prepare(usual)
    sampler.begin(random.Random(3).random)
    drawn = Counter(tuple(dictionary[i] for i in sampler.draw(known)) for _ in range(DRAWS))
    assert len(drawn) == len(expected) or dropout == 0.1
    assert_frequencies(drawn, expected)


def test_bpe_dropout_has_the_frequencies_of_subword_nmt(codes):
    from subword_nmt.apply_bpe import BPE, encode

    word, dropout = "banana", 0.3
    with open(codes, encoding="utf-8") as file:
        bpe = BPE(file)
    random.seed(1)
    merges = [tuple(line.split()) for line in MERGES.splitlines()[1:]]
    expected = Counter()
    bpe_probabilities((*word[:-1], word[-1] + "</w>"), merges, dropout, expected)
    drawn = Counter(
        encode(word, bpe.bpe_codes, None, None, "@@", bpe.version, {}, dropout=dropout)
        for _ in range(DRAWS)
    )
    assert_frequencies(
        drawn, {tuple(s.replace("</w>", "") for s in symbols): p for symbols, p in expected.items()}
    )


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
