"""Binary data and dictionaries are those of fairseq-preprocess, byte for byte."""

import random

import pytest
from fairseq import options
from fairseq_cli import preprocess

from fairseq_plugins.data.binary import (
    Bytes,
    Encoder,
    Pieces,
    Words,
    binarise_words,
    build_dictionary,
    encode,
    write,
)
from fairseq_plugins.files import read_lines, write_lines
from fairseq_plugins.text.sentences import BOUNDARY
from fairseq_plugins.text.subwords import KINDS

SIDES, SPLITS = ("de", "en"), ("train", "valid")
ODD = [
    "", "<unk> </s> <pad> <s>", "a<q>b <q> x@@ y @@", "\u2581a \u2581", "\u6211\u4eec \u2603\u2603",
    "x" * 3000, "madeupword0000 madeupword0001", "\u0e01\u0e02\u0e04" * 30, "A\u200bb \U0001f600",
]  # fmt: skip


def text(seed, lines):
    """Lines of made-up words, some of them odd, in tokens that single spaces separate."""
    draw = random.Random(seed)
    letters = "abcdeäß.,!<>@"
    made = []
    for _ in range(lines):
        words = ["".join(draw.choices(letters, k=draw.randint(1, 7))) for _ in range(9)]
        made.append(" ".join(words[: draw.randint(0, 9)]))
    for line in ODD:
        made.insert(draw.randrange(len(made)), line)
    return made


def by_fairseq(texts, folder, joined):
    """What fairseq-preprocess makes of files of subwords."""
    words = ["--source-lang", SIDES[0], "--target-lang", SIDES[1], "--destdir", str(folder)]
    words += [word for split in SPLITS for word in (f"--{split}pref", str(texts / split))]
    words += ["--joined-dictionary"] * joined
    preprocess.main(options.get_preprocessing_parser().parse_args(words))
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".log"}


@pytest.mark.parametrize("joined", [True, False])
@pytest.mark.parametrize("kind", ["bpe", "sentencepiece", "words"])
def test_files_are_those_of_fairseq_preprocess(kind, joined, tmp_path, monkeypatch):
    monkeypatch.setattr("fairseq_plugins.data.binary.BATCH", 7)
    monkeypatch.setattr("fairseq_plugins.data.binary.MOST_WORDS", 50)
    lines = {(split, side): text(split + side, 60) for split in SPLITS for side in SIDES}
    for (split, side), of_side in lines.items():
        write_lines(tmp_path / "tokens" / f"{split}.{side}", of_side)
    numbers, cut = Words(), str
    if kind != "words":
        learnt = [tmp_path / "tokens" / "valid.de"]  # train has characters that the model lacks
        KINDS[kind].learn(learnt, tmp_path / "model", 60)
        model = KINDS[kind](tmp_path / "model")
        numbers, cut = (Words(model.cut) if kind == "bpe" else Pieces(model, 2)), model.cut
    special = {"</s>", "<pad>", "<s>"}
    for (split, side), of_side in lines.items():
        pieces = (" ".join("<unk>" if p in special else p for p in cut(x).split()) for x in of_side)
        write_lines(tmp_path / "text" / f"{split}.{side}", pieces)
    expected = by_fairseq(tmp_path / "text", tmp_path / "fairseq", joined)
    encoded = {
        (split, side): encode(
            read_lines(tmp_path / "tokens" / f"{split}.{side}"),
            Encoder(numbers),
            tmp_path / f"{split}.{side}.numbers",
        )
        for split, side in lines
    }
    counts = [encoded["train", side].counts for side in SIDES]
    for number, side in enumerate(SIDES):
        of_side = counts if joined else counts[number : number + 1]
        dictionary = build_dictionary(numbers.symbols, of_side)
        dictionary.save(str(tmp_path / f"dict.{side}.txt"))
        for split in SPLITS:
            prefix = tmp_path / f"{split}.de-en.{side}"
            write(encoded[split, side], numbers.symbols, dictionary, prefix)
    assert len(expected) == 10
    for name, content in expected.items():
        assert (tmp_path / name).read_bytes() == content, name


def test_a_dictionary_of_many_words_has_numbers_of_32_bits(tmp_path):
    words = [f"w{number}" for number in range(66000)]
    for split in SPLITS:
        for side in SIDES:
            write_lines(tmp_path / "text" / f"{split}.{side}", [" ".join(words), ""])
    expected = by_fairseq(tmp_path / "text", tmp_path / "fairseq", False)
    texts = {split: tmp_path / "text" / f"{split}.de" for split in SPLITS}
    how = f"{tmp_path}/{{split}}.de-en.de", tmp_path / "dict.de.txt"
    assert binarise_words(texts, *how) == {"train": 0, "valid": 0}
    for name in ("train.de-en.de.bin", "train.de-en.de.idx", "dict.de.txt"):
        assert (tmp_path / name).read_bytes() == expected[name]


def test_parts_are_truncated_and_counted(tmp_path):
    encoder = Encoder(Bytes(), True, lambda line: line.split("|"), BOUNDARY, most=2)
    rows = encoder(["ABC|d||efgh", "", "xy"])
    between = encoder.separator
    first = [ord("a"), ord("b"), between, ord("d"), between, ord("e"), ord("f")]
    assert rows == [first, [], [ord("x"), ord("y")]]
    assert (encoder.truncated, encoder.lost) == (1, 3)
    found = encode(["ABC|d||efgh", "", "xy"], encoder, tmp_path / "numbers")
    assert found.sizes.tolist() == [7, 0, 2] and found.counts[between] == 2
    assert (found.truncated, found.lost) == (1, 3)


def test_a_tag_takes_the_place_of_a_piece():
    encoder = Encoder(Words(), most=3)
    encoder.tag = "T"
    rows = encoder(["a b c d e", "T a b c", "Ta b"])
    symbols = list(encoder.numbers.symbols)
    assert [" ".join(symbols[n] for n in row) for row in rows] == ["a b c", "T a b", "Ta b"]
