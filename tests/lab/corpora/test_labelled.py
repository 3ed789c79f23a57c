"""Amazon, MIND's topics and Retrieval, from small files in the formats of their releases."""

import gzip
import json
import random

import pytest
from fairseq.data import Dictionary, data_utils

from fairseq_plugins.data.prepared_folder import load_cut
from fairseq_plugins.data.readers import Example
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.lab.commands import (
    make_retrieval,
    prepare_amazon,
    prepare_mind,
    prepare_retrieval,
)
from fairseq_plugins.lab.corpora import sampled


def run(command, *words):
    return command.main([*map(str, words), "--workers", "1"])


def read(folder, split):
    """(label, text, name) of each document of a split."""
    files = [folder / f"text/raw/{split}.{end}" for end in ("target", "source", "id")]
    return list(zip(*(path.read_text("utf-8").splitlines() for path in files)))


def binary(folder, split, part="input0"):
    dictionary = Dictionary.load(str(folder / part / "dict.txt"))
    rows = data_utils.load_indexed_dataset(str(folder / part / split), dictionary)
    return [dictionary.string(rows[n], include_eos=True).split() for n in range(len(rows))]


# --- the sample -----------------------------------------------------------------------------------


def documents(count, bad=()):
    return [
        Example("all", str(n), f"text {n}", "rare" if n == 7 else f"{n % 3}", "bad" * (n in bad))
        for n in range(count)
    ]


def test_a_sample_is_even_and_has_each_document_once():
    sizes, times = {"train": 20, "valid": 5, "test": 5}, dict.fromkeys(range(60), 0)
    for seed in range(200):
        found = list(sampled(documents(60, bad=[3]), sizes, seed))
        assert found[0].problem and found[0].name == "3"
        names = [int(document.name) for document in found[1:]]
        assert len(set(names)) == 30 and 3 not in names
        splits = [document.split for document in found[1:]]
        assert {split: splits.count(split) for split in sizes} == sizes
        if 7 in names:  # its label is known in train
            assert splits[names.index(7)] == "train"
        for name in names:
            times[name] += 1
    assert all(60 < times[n] < 145 for n in times if n != 3)  # 101.7 +- 7
    assert list(sampled(documents(60), sizes, 1)) == list(sampled(documents(60), sizes, 1))
    assert list(sampled(documents(60), sizes, 1)) != list(sampled(documents(60), sizes, 2))


# --- Amazon ---------------------------------------------------------------------------------------


def review(number, **other):
    return json.dumps({
        "reviewerID": f"A{number}", "asin": "B0", "reviewerName": "x", "helpful": [0, 1],
        "reviewText": f"Cable number {number}\nis  fine", "overall": 1.0 + number % 5,
        "summary": "So", "unixReviewTime": 1369699200, **other,
    }).encode()  # fmt: skip


BAD_REVIEWS = {
    b"{'reviewText': 'loose'}": "no JSON (the lines of 'strict' files are)",
    b"[1]": "no JSON object",
    review(1, reviewText=" "): "no reviewText",
    review(1, reviewText=None): "no reviewText",
    review(1, overall=2.5): "overall is not 1, 2, 3, 4 or 5",
    review(1, overall="5"): "overall is not 1, 2, 3, 4 or 5",
    review(1, reviewText="\ud800 x"): "not UTF-8: half of a surrogate pair",
    b"[" * 100000: "no JSON (the lines of 'strict' files are)",
    b"\xff": "byte 0 is not UTF-8",
}


def test_amazon_is_sampled_and_bad_lines_are_named(tmp_path):
    path = tmp_path / "reviews_Electronics_5.json.gz"
    lines = [review(number) for number in range(60)]
    path.write_bytes(gzip.compress(b"\n".join([*BAD_REVIEWS, *lines, b""])))
    sizes = ["--train", 30, "--held-out", 10]
    run(prepare_amazon, tmp_path / "data", path, "--words", *sizes)
    seen = []
    for split, size in (("train", 30), ("valid", 10), ("test", 10)):
        found = read(tmp_path / "data", split)
        assert len(found) == size
        for label, text, name in found:
            number = int(name.partition(":")[2]) - 1 - len(BAD_REVIEWS)
            assert (label, text) == (str(1 + number % 5), f"Cable number {number} is fine")
            seen.append(number)
    assert len(set(seen)) == 50
    removed = (tmp_path / "data/removed.txt").read_text().splitlines()
    assert removed == [
        f"all\t{path.name}:{number}\t{problem}"
        for number, problem in enumerate(BAD_REVIEWS.values(), 1)
    ]
    report = (tmp_path / "data/report.txt").read_text()
    assert "Filtered out: 9 texts" in report and "Fewer than" not in report
    assert len((tmp_path / "data/label/dict.txt").read_text().splitlines()) == 5
    with pytest.raises(ConfigurationError, match="was prepared with other settings .seed was 1"):
        run(prepare_amazon, tmp_path / "data", path, "--words", *sizes, "--seed", 2)


def test_a_broken_gz_is_told_with_its_line(tmp_path):
    path = tmp_path / "reviews.json.gz"
    whole = gzip.compress(b"\n".join(review(random.Random(n).random()) for n in range(99)))
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ConfigurationError, match=r"reviews.json.gz, line \d+: damaged \(Compr"):
        run(prepare_amazon, tmp_path / "data", path)


# --- MIND's topics --------------------------------------------------------------------------------


def news(name, category="sports", title="A title", abstract="An abstract"):
    columns = [name, category, "sub", title, abstract, "https://x", "[]", "[]"]
    return "\t".join(columns)


def test_topics_are_titles_abstracts_and_bodies(tmp_path):
    train, dev, bodies = (tmp_path / name for name in ("news.tsv", "dev.tsv", "bodies.tsv"))
    some = [news(f"N{n}", ("sports", "finance")[n % 2], f"Title {n}") for n in range(20)]
    train.write_text("\n".join([*some, news("N20").rpartition("\t")[0], ""]))
    dev.write_text("\n".join([news("N3", "other"), news("N21", "weather", "Rain ", ""), ""]))
    words = ["topics", tmp_path / "data", train, dev, "--words"]
    run(prepare_mind, *words)
    found = {name: (label, text) for split in ("train", "valid", "test")
             for label, text, name in read(tmp_path / "data", split)}  # fmt: skip
    assert len(found) == 21
    assert found["news.tsv:4"] == ("finance", "Title 3 An abstract")  # the first of an ID counts
    assert found["dev.tsv:2"] == ("weather", "Rain")
    report = (tmp_path / "data/report.txt").read_text()
    assert "Fewer than 128,800 / 16,100 / 16,100 texts can be used" in report
    assert "505 words" in report
    assert "1  not 8 columns" in report

    bodies.write_text("".join(f"N{n}\tBody {n}\n" for n in range(19)) + "bad\n")
    words[1] = tmp_path / "bodies"
    run(prepare_mind, *words, "--bodies", bodies)
    report = (tmp_path / "bodies/report.txt").read_text()
    assert "505 words" not in report
    assert "2  no body" in report and "1  not 2 columns" in report
    assert any(text == "Title 4 An abstract Body 4" for _, text, _ in read(words[1], "train"))


# --- Retrieval ------------------------------------------------------------------------------------


def test_pairs_are_bytes_with_an_end_between(tmp_path):
    made = ["--train", 30, "--held-out", 10, "--words", 4]
    assert make_retrieval.main([str(tmp_path / "pairs"), *map(str, made)]) == 0
    with pytest.raises(ConfigurationError, match="exists"):
        make_retrieval.main([str(tmp_path / "pairs")])
    path = tmp_path / "pairs/new_aan_pairs.eval.tsv"
    bad = ["2.0\ta\tb\tx\ty", "1.0\ta\tb\tx", "0.0\ta\tb\t \ty", "1\ta\tb\tFirst  café\tlong "]
    path.write_text(path.read_text() + "\n".join(bad) + "\n", encoding="utf-8")
    folder = tmp_path / "data"
    run(prepare_retrieval, folder, tmp_path / "pairs", "--max-positions", 11)
    assert read(folder, "valid")[-1] == ("1", "First café\tlong", f"{path.name}:14")
    tokens = "First café".encode()[:10].hex(" ").split()
    second = b"long".hex(" ").split()
    assert binary(folder, "valid")[-1] == [*tokens, "</s>", *second, "</s>"]
    for split in ("train", "valid", "test"):
        for row in binary(folder, split):
            assert row.count("</s>") == 2 and len(row) <= 22
    report = (folder / "report.txt").read_text()
    assert "takes 22 positions" in report and "Unknown" not in report
    assert "Filtered out: 3 texts" in report and "1  the label is neither 0 nor 1" in report
    row = next(line.split() for line in report.splitlines() if line.startswith("train"))
    assert row[1] == row[6] == "30"  # all are truncated
    with pytest.raises(ConfigurationError, match="was made from pairs of texts"):
        load_cut(folder)
