"""All formats of inputs give the same examples, and a wrong guess names what is there."""

import bz2
import csv
import gzip
import json
import lzma
import random

import pytest

from fairseq_plugins import files
from fairseq_plugins.data.classification import parse_labelled
from fairseq_plugins.data.readers import Inputs, find_input, parse_texts, parsed
from fairseq_plugins.data.summarization import parse_document
from fairseq_plugins.errors import ConfigurationError

SIDES = ("de", "en")
OPEN = {"": open, ".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def pairs(seed, count=30):
    """Pairs of lines without tabs, some of them odd."""
    draw = random.Random(seed)
    odd = ['"', ",", "\\", "'", "ä", "\u2028", "\u00a0", "<q>", "\r", "\u6211", "\U0001f600", "#"]
    line = lambda: "".join(draw.choices(["a", "b", " ", *odd], k=draw.randint(1, 12)))  # noqa: E731
    return [(f"x{line()}x", f"y{line()}y") for _ in range(count)]


def write(path, ending, content):
    with OPEN[ending](f"{path}{ending}", "wb") as file:
        file.write(content.encode("utf-8"))


def write_as(kind, folder, rows, ending=""):
    """Write rows in a format; returns what to give as input."""
    text = "".join
    if kind == "lines":
        for side, lines in zip(SIDES, zip(*rows)):
            write(folder / f"train.{side}", ending, text(f"{line}\n" for line in lines))
        return folder / "train"
    if kind == "jsonl":
        content = text(json.dumps({"id": 1, "en": t, "de": s}) + "\n" for s, t in rows)
    elif kind == "csv":
        with open(folder / "rows", "w+", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("id", "en", "de"), *((1, t, s) for s, t in rows)])
            file.seek(0)
            content = file.read().replace("\r\n", "\n")
    else:
        head = {"tsv": "", "headed.tsv": "de\ten\n"}[kind]
        content = head + text(f"{s}\t{t}\n" for s, t in rows)
    write(folder / f"train.{kind}", ending, content)
    return f"{folder}/train.{kind}{ending}"


def examples(given, fields=SIDES, header=False, parse=parse_texts, otherwise=None):
    found = find_input("--train", given, SIDES, otherwise)
    corpus = Inputs({"train": [found]}, fields, header).corpus(parse)
    return [parsed(corpus.parse, item) for item in corpus.items]


@pytest.mark.parametrize("ending", OPEN)
@pytest.mark.parametrize("kind", ["lines", "tsv", "headed.tsv", "csv", "jsonl"])
def test_every_format_gives_the_same_examples(kind, ending, tmp_path):
    for seed in range(3):
        rows = [(s, t) for s, t in pairs(seed) if "\r" not in s + t or kind == "jsonl"]
        found = examples(write_as(kind, tmp_path, rows, ending), header=kind == "headed.tsv")
        assert [(each.source, each.target, each.problem) for each in found] == [
            (source, target, "") for source, target in rows
        ]
        first = 1 + (kind in ("headed.tsv", "csv"))
        assert [int(each.name.rpartition(":")[2]) for each in found] == [
            number + first for number in range(len(rows))
        ]


def test_new_lines_within_a_field_become_spaces(tmp_path):
    (tmp_path / "a.csv").write_text('de,en\n"ein\nHaus","a ""house"""\n')
    (tmp_path / "a.jsonl").write_text('{"de": "ein\\nHaus", "en": ["a", "\\"house\\""]}\n')
    for name in ("a.csv", "a.jsonl"):
        (found,) = examples(tmp_path / name)
        assert (found.source, found.target) == ("ein Haus", 'a "house"')


@pytest.mark.parametrize(
    "name, content, fields, message",
    [
        ("a.csv", "id,german\n1,x\n", SIDES, "a.csv: line 1 is 'id,german', but .* de and en, wi"),
        ("a.csv", "de;en\nx;y\n", SIDES, "line 1 is 'de;en', but .* de and en, with commas betwee"),
        ("a.csv", f"{'x' * 999}\n", SIDES, "a.csv: line 1 is '(x{100})', but must have the column"),
        ("a.tsv", "1\tx\ty\n", SIDES, r"line 1 is '1\\tx\\ty', but .*, with tabs between"),
        ("a.tsv", "source\ttarget\n", ("source", "en"), r"'source\\ttarget', .* source and en"),
        ("a.jsonl", '{"source": "x", "en": "y"}\n', SIDES, "no field 'de': .*: en, source"),
        ("a.txt", "x\n", SIDES, "a.txt is a file of unknown format: give .tsv, .csv or .jsonl"),
        ("a.csv", 'de,en\n"x,y\n', SIDES, "not enough|too few columns: 1"),
        ("a.tsv", "x\n", SIDES, "no tab between de and en"),
        ("b.de", "x\n", SIDES, "a.de does not exist: --train .*a is not a file, so it stands for"),
    ],
)
def test_a_wrong_guess_names_what_is_there(name, content, fields, message, tmp_path):
    (tmp_path / name).write_text(content)
    given = tmp_path / ("a" if name == "b.de" else name)
    try:
        (found,) = examples(given, fields, header="source" in fields)
        problem = found.problem
    except ConfigurationError as error:
        problem = str(error)
    with pytest.raises(ConfigurationError, match=message):
        raise ConfigurationError(problem)


@pytest.mark.parametrize("cut", [-5, 40])
def test_a_damaged_file_is_named_with_its_line(cut, tmp_path):
    given = write_as("tsv", tmp_path, pairs(1, 5000), ".gz")
    (tmp_path / "train.tsv.gz").write_bytes((tmp_path / "train.tsv.gz").read_bytes()[:cut])
    with pytest.raises(ConfigurationError, match=r"train.tsv.gz, line \d+: damaged"):
        examples(given)


def test_lines_that_cannot_be_used_are_left_out_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 50)
    lines = [b"a\tb", b"x" * 60, b"\xff\tb", b"", b"only", b"c\td\te"]
    (tmp_path / "train.tsv").write_bytes(b"\n".join(lines))
    found = examples(tmp_path / "train.tsv")
    assert [each.problem.split(" of ")[0] for each in found] == [
        "", "a line", "byte 0 is not UTF-8", "no tab between de and en", "",
    ]  # fmt: skip
    assert found[-1].target == "d\te"


def test_documents_and_labels_are_read_from_tables(tmp_path):
    (tmp_path / "a.csv").write_text('article,highlights\n"Rain  fell.","It fell.\nIt stopped."\n')
    (tmp_path / "a.jsonl").write_text(
        '{"article": ["Rain", " fell."], "highlights": ["<S> It fell. </S>", "It stopped."]}\n'
    )
    for name in ("a.csv", "a.jsonl"):
        (found,) = examples(tmp_path / name, ("article", "highlights"), parse=parse_document)
        assert (found.source, found.target) == ("Rain fell.", "It fell. <q> It stopped.")
    (tmp_path / "b.tsv").write_text("n\ttext\tlabel\n1\tgood  film\tpos\n2\tfilm\tno label\n")
    first, second = examples(tmp_path / "b.tsv", ("label", "text"), parse=parse_labelled)
    assert (first.source, first.target) == ("good film", "pos")
    assert second.problem == "no label of one word"
