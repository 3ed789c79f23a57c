"""The command prepare-iwslt14 on a small archive in the original layout."""

import hashlib
import re
import shutil
from unittest import mock

import pytest
from fairseq.data import Dictionary, data_utils

from fairseq_plugins.cli import prepare_iwslt14
from fairseq_plugins.data import iwslt14, pipeline
from fairseq_plugins.data.prepared_folder import Prepared
from fairseq_plugins.errors import ConfigurationError


def read(path):
    return path.read_text(encoding="utf-8").split("\n")[:-1]


def sides(folder, split):
    return list(zip(*(read(folder / f"{split}.{side}") for side in ("de", "en"))))


@pytest.fixture
def run(archive):
    main = prepare_iwslt14.main

    def run(folder, *words, **options):
        given = {"--archive": archive.path, "--vocab-size": 60}
        given.update({"--expect-pairs": archive.pairs, "--workers": 1})
        given.update({"--" + name.replace("_", "-"): value for name, value in options.items()})
        argv = [str(folder)] + list(words)
        for name, value in given.items():
            argv += [name, str(value)] if value is not None else []
        return main(argv)

    return run


def tokenised(folder, split):
    """The pairs of the raw text of a split, as tokens."""
    tokenise = [Prepared(folder).processing.tokenise(side) for side in ("de", "en")]
    raw = sides(folder / "text" / "raw", split)
    return [tuple(each(line) for each, line in zip(tokenise, pair)) for pair in raw]


def binarised(folder, split, side):
    """The lines of the binary data, and their dictionary."""
    dictionary = Dictionary.load(str(folder / f"dict.{side}.txt"))
    data = data_utils.load_indexed_dataset(str(folder / f"{split}.de-en.{side}"), dictionary)
    return [dictionary.string(line) for line in data], dictionary


def test_every_pair_is_where_it_belongs(prepared, archive):
    numbered = list(enumerate(archive.kept, 1))
    assert tokenised(prepared, "train") == [pair for n, pair in numbered if n % 23]
    assert tokenised(prepared, "valid") == [pair for n, pair in numbered if n % 23 == 0]
    assert tokenised(prepared, "test") == archive.test


def test_the_data_are_what_the_subwords_give(prepared):
    model = Prepared(prepared).subwords
    for split in ("train", "valid", "test"):
        for number, side in enumerate(("de", "en")):
            lines, dictionary = binarised(prepared, split, side)
            texts = [pair[number] for pair in tokenised(prepared, split)]
            pieces = [model.cut(text).split() for text in texts]
            known = [[p if p in dictionary else "<unk>" for p in line] for line in pieces]
            assert lines == [" ".join(line) for line in known]
            assert [model.join(" ".join(line)) for line in pieces] == texts


def test_the_report_counts_everything(prepared, archive):
    report = (prepared / "report.txt").read_text(encoding="utf-8")
    dropped = sum(archive.dropped.values())
    count = len(archive.kept) + dropped
    assert f"The training set had {count} pairs.\nFiltered out: {dropped} pairs" in report
    for reason, number in archive.dropped.items():
        assert f"{number}  {reason}\n" in report
    assert len(read(prepared / "removed.txt")) == dropped
    for split in ("train", "valid", "test"):
        for number, language in enumerate(("de", "en")):
            row = re.search(rf"(?m)^{split}\.{language} .*", report)[0].split()
            lines = [line.split() for line in binarised(prepared, split, language)[0]]
            text = [pair[number] for pair in tokenised(prepared, split)]
            expected = [sum(len(line.split()) for line in text), sum(map(len, lines))]
            expected += [max(map(len, lines)), sum(1 for line in lines if not line)]
            assert [int(cell.replace(",", "")) for cell in row[2:]] == expected
            assert row[1] == str(len(lines))
    for side in ("de", "en"):
        lines, _ = binarised(prepared, "train", side)
        types = {piece for line in lines for piece in line.split()}
        assert f"{side} {len(types)} types" in report
    assert "60 BPE merges of 60 asked for" in report


def test_a_second_run_does_nothing(prepared, archive, run, capsys):
    before = {path: path.stat().st_mtime_ns for path in prepared.glob("**/*")}
    run(prepared)
    assert {path: path.stat().st_mtime_ns for path in prepared.glob("**/*")} == before
    assert "The training set had " in capsys.readouterr().out


@pytest.mark.parametrize("name", ["read", "_subwords", "encode", "write"])
def test_what_was_interrupted_is_made_anew(prepared, tmp_path, run, monkeypatch, name, capsys):
    """Also with other settings; the result is that of an unbroken run."""
    with monkeypatch.context() as patch:
        patch.setattr(pipeline, name, mock.Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "data", "--subword", "sentencepiece")
    assert not (tmp_path / "data").exists()
    run(tmp_path / "data")
    left = name != "read"  # which writes the first files
    assert ("an unfinished preparation is made anew" in capsys.readouterr().err) == left
    found = {path.relative_to(tmp_path / "data") for path in (tmp_path / "data").rglob("*")}
    assert found == {path.relative_to(prepared) for path in prepared.rglob("*")}
    for path in sorted(prepared.rglob("*")):
        if path.is_file():
            made = tmp_path / "data" / path.relative_to(prepared)
            assert made.read_bytes() == path.read_bytes(), path


def be_original(monkeypatch, path):
    """Let a file be the archive of the papers."""
    monkeypatch.setattr(iwslt14, "SIZE", path.stat().st_size)
    digits = hashlib.md5(path.read_bytes()).hexdigest()
    monkeypatch.setattr(iwslt14, "CHECKSUM", f"md5:{digits}")
    monkeypatch.setattr(iwslt14, "URL", path.as_uri())


def test_the_papers_archive_and_numbers_are_expected_by_default(
    tmp_path, run, monkeypatch, archive
):
    with pytest.raises(ConfigurationError, match="instead of 19,982,877: give a complete copy"):
        run(tmp_path / "data", expect_pairs=None)
    be_original(monkeypatch, archive.path)
    with pytest.raises(ConfigurationError, match="instead of 160,239 / 7,283 / 6,750"):
        run(tmp_path / "data", expect_pairs=None)
    monkeypatch.setattr(iwslt14, "CHECKSUM", "md5:" + "0" * 32)
    with pytest.raises(ConfigurationError, match="md5 checksum"):
        run(tmp_path / "data", expect_pairs=None)


def test_the_archive_is_downloaded_once(tmp_path, run, monkeypatch, archive):
    copy = tmp_path / "server.tgz"
    shutil.copyfile(str(archive.path), str(copy))
    be_original(monkeypatch, copy)
    with pytest.raises(ConfigurationError, match="pairs came out"):
        run(tmp_path / "data", archive=None, expect_pairs="1,1,1")
    copy.unlink()
    with pytest.raises(ConfigurationError, match="pairs came out"):
        run(tmp_path / "data", archive=None, expect_pairs="1,1,1", vocab_size=61)
    assert (tmp_path / "data.part" / "original" / "de-en.tgz").exists()


def test_an_archive_that_lacks_a_file_is_named(tmp_path, run, make_archive, archive):
    name = "IWSLT14.TEDX.dev2012.de-en.en.xml"
    incomplete = make_archive(tmp_path / "incomplete.tgz", without=name)
    with pytest.raises(ConfigurationError, match="incomplete.tgz has no file " + name):
        run(tmp_path / "data", archive=incomplete.path)
    half = tmp_path / "half.tgz"
    half.write_bytes(archive.path.read_bytes()[:-100])
    with pytest.raises(ConfigurationError, match="half.tgz is damaged or not a tar archive"):
        run(tmp_path / "data", archive=half)


def test_the_folder_serves_the_reverse_direction(prepared, archive):
    """fairseq reads it with the languages swapped, and raw text is treated as its language is."""
    from fairseq.tasks.translation import TranslationConfig, TranslationTask

    languages = {"source_lang": "en", "target_lang": "de"}
    config = TranslationConfig(data=str(prepared), dataset_impl="mmap", **languages)
    task = TranslationTask.setup_task(config)
    for split in ("train", "valid", "test"):
        task.load_dataset(split)
        german, english = zip(*tokenised(prepared, split))
        data = task.datasets[split]
        assert len(data) == len(english)
        for name, dictionary, expected in (
            ("source", task.source_dictionary, english),
            ("target", task.target_dictionary, german),
        ):
            lines = [dictionary.string(item[name], "subword_nmt") for item in data]
            assert [line for line in lines if "<unk>" not in line] == [
                text for line, text in zip(lines, expected) if "<unk>" not in line
            ]
    processor = Prepared(prepared).processor("en", "de")
    assert processor.subwords.join(processor.encode("It's one.")) == "it &apos;s one ."
    with pytest.raises(ConfigurationError, match="translates en to fr, but .* for de and en"):
        Prepared(prepared).processor("en", "fr")
