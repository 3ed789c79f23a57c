"""Preparation for summarization: nothing lost, everything counted, from each form of input."""

from pathlib import Path

import pytest
from fairseq.data import Dictionary, indexed_dataset
from fairseq.data.data_utils import post_process

from fairseq_plugins.cli import prepare_cnn_dm, prepare_summarization
from fairseq_plugins.data.cnn_dm import parse_story_file
from fairseq_plugins.data.prepared_folder import Prepared, Record
from fairseq_plugins.data.readers import Item
from fairseq_plugins.data.summarization import sample_sentences
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import digest, write_lines
from fairseq_plugins.text.sentences import join_sentences, separate_sentences
from tests.data.conftest import write_tar

STORIES = Path(__file__).resolve().parents[3] / "shared" / "data" / "cnn_dm_sample"
WORDS = "rain snow hail wind fell rose stopped began in on the a city river Monday night".split()
SMALL = ["--vocab-size", "48", "--workers", "1"]


def article(number):
    return (
        f"Story {number} said. "
        + " ".join(WORDS[(number * k + k * k) % len(WORDS)] for k in range(1, 10 + number % 7))
        + "."
    )


def summary(number):
    return [f"The {WORDS[number % 4]} fell .", f"It {WORDS[4 + number % 4]} ."]


def numbers_of(folder, split, side):
    """The binary data and its dictionary."""
    dictionary = Dictionary.load(str(folder / f"dict.{side}.txt"))
    prefix = str(folder / f"{split}.source-target.{side}")
    return indexed_dataset.make_dataset(prefix, "mmap", dictionary=dictionary), dictionary


def dictionary_text(folder, split, side):
    """What the binary data says, joined to text as fairseq-generate does it."""
    data, dictionary = numbers_of(folder, split, side)
    return [post_process(dictionary.string(data[i]), "sentencepiece") for i in range(len(data))]


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """40 stories, three of them of no use, and lists: 30 / 5 / 5, the last of all being broken."""
    folder = tmp_path_factory.mktemp("archive")
    broken = {7: b"@highlight\n\nRain fell", 8: b"", 39: b"\xff"}
    files = {}
    for number in range(42):  # two in no list
        text = article(number) + "".join("\n\n@highlight\n\n" + s for s in summary(number))
        files[f"cnn/stories/story{number}.story"] = broken.get(number, text.encode())
    write_tar(folder / "stories.tgz", files)
    lists = []
    for split, numbers in (("train", range(30)), ("val", range(30, 35)), ("test", range(35, 40))):
        lists.append(folder / (split + ".txt"))
        lists[-1].write_text("".join(f"story{number}\n" for number in numbers))
    return folder / "stories.tgz", lists


def arguments(archive, destination, *more):
    stories, lists = archive
    words = [destination, "--stories", stories, "--split-ids", *lists, *SMALL, *more]
    return [str(word) for word in words]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory, archive):
    folder = tmp_path_factory.mktemp("prepared") / "data"
    prepare_cnn_dm.main(arguments(archive, folder, "--max-source", "20"))
    return folder


def test_stories_arrive_in_their_splits_with_their_names(prepared, archive):
    stories, lists = archive
    inputs = {"stories": [digest(stories)], "split_ids": list(map(digest, lists))}
    assert Record.read(prepared).settings["inputs"] == inputs
    ids = {
        split: (prepared / "text/raw" / (split + ".id")).read_text().split()
        for split in ("train", "valid", "test")
    }
    assert ids["train"] == [f"story{n}" for n in range(30) if n not in (7, 8)]
    assert ids["valid"] == [f"story{n}" for n in range(30, 35)]
    assert ids["test"] == [f"story{n}" for n in range(35, 39)]
    targets = (prepared / "text/raw/test.target").read_text().splitlines()
    assert targets == [join_sentences(summary(n)) for n in range(35, 39)]


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_sentence_boundaries_and_case_survive_binarisation(prepared, split):
    raw = (prepared / "text/raw" / (split + ".target")).read_text().splitlines()
    text = dictionary_text(prepared, split, "target")
    assert [separate_sentences(line) for line in text] == [separate_sentences(line) for line in raw]
    assert all(len(separate_sentences(line)) == 2 for line in text)


def test_cut_sources_are_prefixes_and_counted(prepared):
    raw = (prepared / "text/raw/train.source").read_text().splitlines()
    text = dictionary_text(prepared, "train", "source")
    lengths = [len(numbers) for numbers in numbers_of(prepared, "train", "source")[0]]
    assert max(lengths) == 20  # with the end symbol
    assert all(line.startswith(start) for line, start in zip(raw, text))
    cut = sum(line != start for line, start in zip(raw, text))
    assert 0 < cut
    report = (prepared / "report.txt").read_text()
    source, target = (line.split() for line in report.splitlines() if line.startswith("train"))
    assert source[1] == "28" and source[6] == str(cut)
    assert target[-1] == "28"  # boundaries between the two sentences of each summary
    assert "longest source takes 20 positions with its end symbol: --max-source-pos" in report


def test_what_stands_for_the_boundary_in_a_story_is_text():
    story = b"Rain fell.\n\n@highlight\n\nRain <q> fell\n\n@highlight\n\nIt stopped"
    document = parse_story_file(Item("train", "a", story))
    assert document.target == "Rain < q > fell . <q> It stopped ."


@pytest.mark.parametrize("documents, lines", [(3, "ace"), (5, "abcde"), (9, "abcde"), (1, "a")])
def test_pieces_are_learnt_from_no_more_documents_than_asked_for(documents, lines, tmp_path):
    for side in ("source", "target"):
        write_lines(tmp_path / f"text/raw/train.{side}", "abcde")
    path = sample_sentences(tmp_path, documents, summaries=False)
    assert path.read_text().split() == list(lines)


def test_missing_stories_and_stories_named_twice_are_refused(archive, tmp_path):
    stories, (train, valid, test) = archive
    more = tmp_path / "more.txt"
    more.write_text("story35\nelsewhere\n")
    prepare = prepare_cnn_dm.main
    with pytest.raises(ConfigurationError, match=r"1 listed stories are not .*\(elsewhere\)"):
        prepare(arguments((stories, [train, valid, more]), tmp_path / "missing"))
    with pytest.raises(ConfigurationError, match="story35 is named twice, in valid and in test"):
        prepare(arguments((stories, [train, more, test]), tmp_path / "twice"))


def write_pairs(folder, sizes):
    for split, numbers in sizes.items():
        (folder / (split + ".source")).write_text("".join(article(n) + "\n" for n in numbers))
        (folder / (split + ".target")).write_text(
            "".join(join_sentences(summary(n)) + "\n" for n in numbers)
        )


SIZES = {"train": range(30), "valid": range(30, 35)}


def run(folder, *more):
    words = [folder / "data", "--train", folder / "train", "--valid", folder / "valid"]
    prepare_summarization.main([str(word) for word in [*words, *SMALL, *more]])


def test_empty_lines_are_named(tmp_path, shared):
    write_pairs(tmp_path, SIZES)
    (tmp_path / "valid.source").write_text("It rose.\n \nIt fell.\nIt went.\n\u200b\n")
    (tmp_path / "valid.target").write_text("Rain fell. <q> It stopped.\nx\n\n\ufeff\u00ad\nx\n")
    run(tmp_path, "--workers", 2)
    assert (2, "documents read", "--workers") in shared
    assert (tmp_path / "data/text/raw/valid.target").read_text() == "Rain fell. <q> It stopped.\n"
    assert (tmp_path / "data/removed.txt").read_text().splitlines() == [
        "valid\tvalid:2\tno document",
        "valid\tvalid:3\tno summary",
        "valid\tvalid:4\tno visible text",
        "valid\tvalid:5\tno visible text",
    ]


def test_lower_case_is_for_the_model_alone(tmp_path, shared):
    """Raw text keeps its case; the same words in capitals have the same pieces."""
    write_pairs(tmp_path, SIZES)
    for split in SIZES:
        path = tmp_path / (split + ".target")
        path.write_text(path.read_text().upper().replace("<Q>", "<q>"))
    options = ("--max-source", 99, "--sentencepiece-documents", 28)
    run(tmp_path, "--lowercase", "--workers", 2, *options)
    settings = Record.read(tmp_path / "data").settings
    assert (settings["max_source"], settings["sentencepiece_documents"]) == (99, 28)
    assert (2, "documents read", "--workers") in shared
    for side in ("source", "target"):
        raw = (tmp_path / "data/text/raw" / f"train.{side}").read_text().splitlines()
        assert raw == (tmp_path / f"train.{side}").read_text().splitlines()
        text = dictionary_text(tmp_path / "data", "train", side)
        assert [separate_sentences(line) for line in text] == [
            separate_sentences(line.lower()) for line in raw
        ]
    processor = Prepared(tmp_path / "data").processor("source", "target")
    data, dictionary = numbers_of(tmp_path / "data", "train", "source")
    pieces = dictionary.string(data[0])
    assert processor.encode(article(0)) == processor.encode(article(0).upper()) == pieces
