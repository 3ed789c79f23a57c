"""Preparation for classification: nothing lost, everything counted, from each form of input."""

import pytest
from fairseq.data import Dictionary, indexed_dataset

from fairseq_plugins.cli import prepare_classification
from fairseq_plugins.data.prepared_folder import Record, load_cut
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import digest
from tests.data.conftest import write_tar
from tests.labelled import SIZES, prepare


def run(*words):
    return prepare_classification.main([str(word) for word in words])


def binary(folder, split, side="input0"):
    """What the binary data says, a list of tokens a text, the end symbol left out."""
    dictionary = Dictionary.load(str(folder / side / "dict.txt"))
    data = indexed_dataset.make_dataset(str(folder / side / split), "mmap", dictionary=dictionary)
    return [dictionary.string(data[i]).split() for i in range(len(data))]


def texts(folder, split):
    return (folder / "text" / "raw" / f"{split}.source").read_text("utf-8").splitlines()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("words"))


def test_every_text_and_label_arrives(prepared):
    folder, files = prepared
    for split, size in SIZES.items():
        lines = [line.split("\t") for line in files[split].read_text().splitlines()]
        assert len(lines) == size
        assert binary(folder, split, "label") == [[label] for label, _ in lines]
        assert texts(folder, split) == [text for _, text in lines]
    assert binary(folder, "train") == [text.split() for text in texts(folder, "train")]
    assert (folder / "label" / "dict.txt").read_text() == "bad 30\ngood 30\n"


def test_bytes_are_those_of_the_text_and_are_cut_and_counted(tmp_path):
    folder, _ = prepare(tmp_path, "--bytes", "--max-positions", 20)
    cut = 0
    for split in SIZES:
        for text, tokens in zip(texts(folder, split), binary(folder, split)):
            whole = text.encode()
            assert bytes.fromhex("".join(tokens)) == whole[:19]
            cut += (split == "train") * (len(whole) > 19)
    report = (folder / "report.txt").read_text()
    assert cut > 0
    row = next(line.split() for line in report.splitlines() if line.startswith("train"))
    assert row[1] == "60" and row[6] == str(cut)
    assert len((folder / "input0" / "dict.txt").read_text().splitlines()) == 256
    cut_to_bytes, kept = load_cut(folder)
    assert kept == 19
    assert cut_to_bytes(" ä\t b ") == ["c3", "a4", "20", "62"]


def test_subwords_are_learnt_on_train_and_cut_new_text_alike(tmp_path, shared):
    options = ("--vocab-size", 36, "--sentencepiece-documents", 40, "--max-positions", 8)
    folder, files = prepare(tmp_path, *options, "--workers", 2)
    assert (2, "texts read", "--workers") in shared
    cut, kept = load_cut(folder)
    for text, tokens in zip(texts(folder, "train"), binary(folder, "train")):
        assert cut(text)[:kept] == tokens
        assert "".join(cut(text)).replace("\u2581", " ").strip() == text
    settings = Record.read(folder).settings
    assert [settings[option[2:].replace("-", "_")] for option in options[::2]] == [36, 40, 8]
    assert settings["inputs"] == {split: [[digest(path)]] for split, path in files.items()}


@pytest.mark.parametrize("words", [[], ["--words"], ["--bytes"]], ids=str)
def test_texts_are_read_in_the_form_that_was_trained_on(tmp_path, words):
    line = "good\tdas ﬁnde ich gut！\u200d\nbad\tdas fa\u0308nde ich \u00e4rger\n"
    for split in ("train", "valid"):
        (tmp_path / f"{split}.tsv").write_text(line * 9, encoding="utf-8")
    given = ["--train", tmp_path / "train.tsv", "--valid", tmp_path / "valid.tsv", *words]
    folder = tmp_path / "data"
    run(folder, *given, "--workers", 1)
    assert texts(folder, "train")[:2] == ["das ﬁnde ich gut！\u200d", "das fände ich ärger"]
    cut, _ = load_cut(folder)
    assert cut("das fa\u0308nde") == cut("das fände") and cut("ﬁ！") != cut("fi!")
    assert "Unicode's form NFC" in (folder / "report.txt").read_text()


def test_lines_that_cannot_be_used_are_named(tmp_path, shared):
    good = b"a\tgood film\nb\tdull film\n"
    bad = b"no tab\n\ttext\na b\ttext\na\t \n\xff\ttext\n\n<pad>\ttext\n"
    (tmp_path / "train.tsv").write_bytes(good + bad)
    (tmp_path / "valid.tsv").write_bytes(good)
    words = ["--train", tmp_path / "train.tsv", "--valid", tmp_path / "valid.tsv", "--words"]
    run(tmp_path / "data", *words, "--workers", 2)
    assert (2, "texts read", "--workers") in shared
    removed = (tmp_path / "data" / "removed.txt").read_text().splitlines()
    assert removed == [
        "train\ttrain.tsv:3\tno tab between label and text",
        "train\ttrain.tsv:4\tno label of one word",
        "train\ttrain.tsv:5\tno label of one word",
        "train\ttrain.tsv:6\tno text",
        "train\ttrain.tsv:7\tbyte 0 is not UTF-8",
        "train\ttrain.tsv:9\tno label of one word",
    ]
    assert "Filtered out: 6 texts" in (tmp_path / "data" / "report.txt").read_text()


# --- archives -------------------------------------------------------------------------------------

REVIEWS = {
    f"aclImdb/{part}/{label}/{number}_{rating}.txt": f"Film {number} is {word}.\nReally<br />so."
    for part in ("train", "test")
    for label, rating, word in (("pos", 9, "fine"), ("neg", 2, "dull"))
    for number in range(20)
}
OTHERS = {
    "aclImdb/README": "x",
    "aclImdb/train/unsup/0_0.txt": "y",
    "aclImdb/train/urls_pos.txt": "",
}


def test_imdb_is_the_same_from_the_archive_and_the_folder(tmp_path):
    texts_of = {**REVIEWS, **OTHERS}.items()
    archive = write_tar(
        tmp_path / "aclImdb_v1.tar.gz", {name: text.encode() for name, text in texts_of}
    )
    for name, text in texts_of:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = {}
    for source in (archive, tmp_path / "aclImdb"):
        folder = tmp_path / f"from_{source.name}"
        run(folder, "--imdb", source, "--words", "--workers", 1)
        found[source] = {
            split: sorted(zip(texts(folder, split), map(tuple, binary(folder, split, "label"))))
            for split in ("train", "valid", "test")
        }
        names = (folder / "text" / "raw" / "valid.id").read_text().split()
        assert sorted(names) == sorted(f"train/{x}" for x in "pos/0_9.txt pos/10_9.txt".split()
                                       + "neg/0_2.txt neg/10_2.txt".split())  # fmt: skip
    first, second = found.values()
    assert first == second
    review = tmp_path / "aclImdb/train/pos/3_9.txt"
    review.write_text(review.read_text().swapcase())  # of equal length
    with pytest.raises(ConfigurationError, match="was prepared with other settings .inputs was d"):
        run(folder, "--imdb", source, "--words", "--workers", 1)
    assert [len(first[split]) for split in ("train", "valid", "test")] == [36, 4, 40]
    assert ("Film 3 is dull. Really<br />so.", ("neg",)) in first["train"]


def test_names_of_files_may_be_in_any_encoding(tmp_path):
    name = b"caf\xe9.tsv".decode("utf-8", "surrogateescape")
    words = [tmp_path / "data", "--words", "--workers", 1]
    for split in ("train", "valid"):
        (tmp_path / f"{split}_{name}").write_text("good\tFine.\nbad\tDull.\nno tab\n" * 2)
        words += [f"--{split}", tmp_path / f"{split}_{name}"]
    run(*words)
    ids = (tmp_path / "data/text/raw/train.id").read_text("utf-8").splitlines()
    assert ids[0] == r"train_caf\udce9.tsv:1" and len(ids) == 4
    assert r"valid_caf\udce9.tsv:3" in (tmp_path / "data/removed.txt").read_text("utf-8")
