"""The command prepare-iwslt14 on a small archive in the original layout."""

import hashlib
import re
import shutil
from unittest import mock

import pytest

from fairseq_plugins.cli import prepare_iwslt14
from fairseq_plugins.data import iwslt14, pipeline
from fairseq_plugins.data.prepared_folder import Prepared
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import read_lines
from tests.tiny_runs import binarised


def read(path):
    return list(read_lines(path))


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


def test_every_pair_is_where_it_belongs(prepared, archive):
    numbered = list(enumerate(archive.kept, 1))
    assert tokenised(prepared, "train") == [pair for n, pair in numbered if n % 23]
    assert tokenised(prepared, "valid") == [pair for n, pair in numbered if n % 23 == 0]
    assert tokenised(prepared, "test") == archive.test


def test_the_data_are_what_the_subwords_give(prepared):
    model = Prepared(prepared).subwords
    for split in ("train", "valid", "test"):
        for number, side in enumerate(("de", "en")):
            lines = binarised(prepared / f"{split}.de-en.{side}")
            dictionary = {line.rpartition(" ")[0] for line in read(prepared / f"dict.{side}.txt")}
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
            lines = binarised(prepared / f"{split}.de-en.{language}")
            lines = [line.split() for line in lines]
            text = [pair[number] for pair in tokenised(prepared, split)]
            expected = [sum(len(line.split()) for line in text), sum(map(len, lines))]
            expected += [max(map(len, lines)), sum(1 for line in lines if not line)]
            assert [int(cell.replace(",", "")) for cell in row[2:]] == expected
            assert row[1] == str(len(lines))
    for side in ("de", "en"):
        lines = binarised(prepared / f"train.de-en.{side}")
        types = {piece for line in lines for piece in line.split()}
        assert f"{side} {len(types)} types" in report
    assert "60 BPE merges of 60 asked for" in report


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
