"""Every fault is an error of one line and loses no data."""

import bz2
import gzip
import json
import lzma
import os
import random
import re
import resource
from functools import partial

import pytest
from fairseq.data import data_utils

from fairseq_plugins import files
from fairseq_plugins.cli import prepare_summarization, prepare_translation
from fairseq_plugins.data import iwslt14
from fairseq_plugins.data.bidirectional import join_directions
from fairseq_plugins.data.preparation import Preparation
from fairseq_plugins.data.prepared_folder import Prepared
from fairseq_plugins.data.stories import read_story_files
from fairseq_plugins.errors import ConfigurationError


def read(path):
    return list(files.read_lines(path))


def refused(function, *arguments):
    """The message of a refusal, which must be one line."""
    with pytest.raises(ConfigurationError) as error:
        function(*arguments)
    message = str(error.value)
    assert "\n" not in message
    return message


def translation(folder, corpus, *more):
    words = [folder, "--source-lang", "fr", "--target-lang", "en"]
    for split in ("train", "valid", "test"):
        words += [f"--{split}", corpus / split]
    words += ["--workers", 1, "--vocab-size", 40, *more]
    return prepare_translation.main([str(word) for word in words])


# --- text -----------------------------------------------------------------------------------------

GOOD = [f'{{"article": "Rain fell on day {n}.", "highlights": "Rain."}}' for n in range(9)]
BAD = {
    b'{"article": "a \\ud800 b", "highlights": "Rain."}': "not UTF-8: half of a surrogate pair",
    b"[" * 100000: "no JSON: brackets are nested too deeply",
    b'{"article": "\xff", "highlights": "Rain."}': "byte 13 is not UTF-8",
    b'{"article": "Rain fell.", "highlights"': "no JSON: Expecting ':' delimiter",
    b"17": "no JSON object",
    b'{"article": "Rain fell.", "\\ud800\\t": 1}': "no field 'highlights': choose two with",
    b'{"article": {}, "highlights": "Rain."}': "a field is neither text nor a list of texts",
    b'{"article": " ", "highlights": "Rain."}': "no document",
    b'{"article": "' + b"x" * 200000 + b'", "highlights": "x"}': "a line of more than",
}


def test_a_bad_line_of_json_is_left_out_and_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(files, "LONGEST_LINE", 150000)
    lines = [line.encode() for line in GOOD]
    for number, line in enumerate(BAD):
        lines.insert(2 * number, line)
    for split in ("train", "valid"):
        (tmp_path / split).write_bytes(b"".join(line + b"\n" for line in lines))
    words = [tmp_path / "data", "--train", tmp_path / "train", "--valid", tmp_path / "valid"]
    words += ["--vocab-size", 24, "--workers", 1]
    assert prepare_summarization.main([str(word) for word in words]) == 0
    expected = [json.loads(line)["article"] for line in GOOD]
    for split in ("train", "valid"):
        assert read(tmp_path / "data/text/raw" / (split + ".source")) == expected
    removed = [line.split("\t") for line in read(tmp_path / "data/removed.txt")]
    assert len(removed) == 2 * len(BAD)
    for number, (found, reason) in enumerate(zip(removed, BAD.values())):
        assert found[:2] == ["train", f"train:{2 * number + 1}"]
        assert found[2].startswith(reason)
    said = capsys.readouterr().out
    assert "Filtered out: 18 documents, which removed.txt names" in said
    assert "  4  not UTF-8\n" in said and "  4  no JSON\n" in said


def test_a_pair_with_a_line_too_long_is_left_out_of_train(tmp_path, corpus, monkeypatch, capsys):
    monkeypatch.setattr(files, "LONGEST_LINE", 1000)
    french, english = read(corpus / "train.fr"), read(corpus / "train.en")
    files.write_lines(corpus / "train.fr", [french[0], "x " * 700, "trop court", *french[1:]])
    files.write_lines(corpus / "train.en", [english[0], "too short", "y " * 700, *english[1:]])
    translation(tmp_path / "data", corpus)
    assert read(tmp_path / "data/text/raw/train.fr") == french
    assert read(tmp_path / "data/text/raw/train.en") == english
    report = capsys.readouterr().out
    assert (
        "The training set had 42 pairs.\nFiltered out: 2 pairs" in report
        and "2  a line of more than" in report
    )
    files.write_lines(corpus / "test.fr", ["x" * 2000] * 4)
    message = refused(translation, tmp_path / "other", corpus)
    assert message.startswith("test:1 of test: a line of more than")


def damage_inside(content, generator):
    start = generator.randrange(len(content))
    end = min(len(content), start + generator.randint(1, 200))
    noise = bytes(generator.getrandbits(8) for _ in range(start, end))
    return content[:start] + noise + content[end:]


def damage_end(content, generator):
    return content[: generator.randrange(len(content) - 10)]


def damage_length(content, generator):
    start = generator.randrange(len(content))
    return content[:start] + content[start + generator.randint(1, 200) :]


extracted = iwslt14.pairs_of


@pytest.mark.parametrize("compression", ["gz", "bz2", "xz"])
@pytest.mark.parametrize("fate", [damage_inside, damage_end, damage_length])
def test_damaged_text_never_passes_for_text(archive, tmp_path, compression, fate):
    content = gzip.decompress(archive.path.read_bytes())
    content = {"gz": gzip, "bz2": bz2, "xz": lzma}[compression].compress(content)
    (tmp_path / "sound").write_bytes(content)
    expected = extracted(tmp_path / "sound")
    refusals = 0
    for seed in range(30):
        path = tmp_path / "damaged"
        path.write_bytes(fate(content, random.Random(seed)))
        try:
            assert extracted(path) == expected  # such as the time in its head
        except ConfigurationError as error:
            assert "\n" not in str(error)
            refusals += 1
        assert "\n" not in refused(list, read_story_files([path]))
    assert refusals >= 25


def test_the_checksum_at_the_end_of_an_archive_is_read(archive, tmp_path):
    """The checksum is after the last block that tarfile reads."""
    content = gzip.decompress(archive.path.read_bytes()) + bytes(1 << 20)
    content = bytearray(gzip.compress(content))
    (tmp_path / "archive").write_bytes(content)
    assert extracted(tmp_path / "archive")
    content[-8] ^= 1  # of the CRC
    (tmp_path / "archive").write_bytes(content)
    message = refused(extracted, tmp_path / "archive")
    assert "is damaged or not a tar archive (CRC check failed" in message


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", [".", "/", "//", "./"])
def test_a_folder_that_cannot_be_the_result(tmp_path, corpus, monkeypatch, folder):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    message = refused(translation, folder, corpus)
    assert message.startswith("DIR ") or "/ exists and was not made" in message
    assert list((tmp_path / "here").iterdir()) == []
    assert not (tmp_path / "here.part").exists()


@pytest.mark.parametrize("name", ["thesis.txt", "lock"])  # a training leaves the latter
def test_a_foreign_folder_named_part_is_kept(tmp_path, corpus, name):
    (tmp_path / "data.part").mkdir()
    (tmp_path / "data.part" / name).write_text("mine")
    message = refused(translation, tmp_path / "data", corpus)
    assert message.startswith("{}.part exists and was not made".format(tmp_path / "data"))
    assert (tmp_path / "data.part" / name).read_text() == "mine"


@pytest.mark.parametrize("limit", [100, 700, 2000])
def test_a_full_disk_is_told_and_a_rerun_works(tmp_path, corpus, limit, capsys):
    """No file may grow beyond the limit, which stands for the disk; each hits another step."""
    translation(tmp_path / "expected", corpus)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        message = refused(translation, tmp_path / "data", corpus)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "File too large" in message and "was not written: rerun" in message
    assert not (tmp_path / "data").exists()
    translation(tmp_path / "data", corpus)
    for path in (tmp_path / "expected").rglob("*"):
        if path.is_file():
            found = tmp_path / "data" / path.relative_to(tmp_path / "expected")
            assert found.read_bytes() == path.read_bytes()


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc")
def test_files_are_on_disk_before_the_folder_has_its_name(tmp_path, corpus, monkeypatch):
    """Or the name could survive a power cut that the files do not."""
    flushed = set()

    def fsync(descriptor):
        name = os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}"))
        flushed.add(re.sub(r"\.[0-9a-f]{8}\.part$", "", name))

    monkeypatch.setattr(os, "fsync", fsync)

    def not_flushed(folder):
        made = {path.name for path in folder.rglob("*") if path.is_file()}
        assert "train.fr-en.fr.bin" in made
        return made - flushed

    translation(tmp_path / "data", corpus, "--joined-dictionary")
    assert not_flushed(tmp_path / "data") == set()
    flushed.clear()
    join_directions(tmp_path / "data", tmp_path / "both")
    assert not_flushed(tmp_path / "both") == set()


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"settings": 1, "results": {}}', '{"set'])
def test_a_folder_without_a_valid_record_is_kept(tmp_path, corpus, content):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/preparation.json").write_text(content)
    message = refused(translation, tmp_path / "data", corpus)
    assert "was not made by this command (it has no valid preparation.json)" in message


@pytest.mark.parametrize("damage", ["is missing", "has another size"])
def test_a_finished_folder_with_other_files_is_not_ready(tmp_path, corpus, damage):
    translation(tmp_path / "data", corpus)
    assert translation(tmp_path / "data", corpus) == 0
    path = tmp_path / "data/train.fr-en.fr.bin"
    whole = path.read_bytes()
    path.unlink() if damage == "is missing" else path.write_bytes(whole[:-2])
    message = refused(translation, tmp_path / "data", corpus)
    assert message.startswith(f"{path} {damage}: restore it, or remove {tmp_path / 'data'}")
    path.write_bytes(whole)


@pytest.mark.parametrize("when", ["before the rename", "after the rename"])
def test_a_preparation_that_ends_while_another_begins(tmp_path, monkeypatch, when):
    """The second finds a folder in use, or the finished one: never an empty one that is ready."""
    replace, seen = os.replace, []

    def second():
        try:
            with Preparation(tmp_path / "data", {"a": 1}) as other:
                seen.append("finished" if other.finished else "began")
        except ConfigurationError as error:
            seen.append(str(error))

    def rename(source, target):
        if when == "before the rename" and target == tmp_path / "data":
            second()
        replace(source, target)
        if when == "after the rename" and target == tmp_path / "data":
            second()

    with Preparation(tmp_path / "data", {"a": 1}) as preparation:
        files.write_lines(preparation.folder / "text", ["a"])
        monkeypatch.setattr(os, "replace", rename)
        preparation.finish({})
    how = f"another preparation is running in {tmp_path / 'data'}.part: wait for it, or stop it"
    assert seen == [how if when == "before the rename" else "finished"]
    assert (tmp_path / "data/text").read_text() == "a\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data"]


def test_a_second_preparation_that_looked_before_the_first_had_ended(tmp_path, monkeypatch):
    """It has found nothing finished, and makes its folder when the first one's is renamed."""
    is_finished, looked = Preparation._is_finished, []

    def look(self):
        found = is_finished(self)
        if not looked:
            looked.append(self)
            with Preparation(tmp_path / "data", {"a": 1}) as first:
                files.write_lines(first.folder / "text", ["a"])
                first.finish({})
        return found

    monkeypatch.setattr(Preparation, "_is_finished", look)
    with Preparation(tmp_path / "data", {"a": 1}) as second:
        assert second.finished
    assert [path.name for path in tmp_path.iterdir()] == ["data"]


def test_damage_that_leaves_sizes_as_they_were_is_refused(tmp_path, corpus):
    """Zeros in the middle, as a bad disk leaves them, or the file of another preparation."""
    data = tmp_path / "data"
    translation(data, corpus)

    def processor():
        return Prepared(data).processor("fr", "en")

    load = partial(data_utils.load_indexed_dataset, dictionary=None)
    assert processor().encode("An 12 & plus.") and len(load(str(data / "train.fr-en.fr"))) == 40
    for name, use in (
        ("train.fr-en.fr.bin", partial(load, str(data / "train.fr-en.fr"))),
        ("valid.fr-en.en.bin", partial(load, str(data / "valid.fr-en.en"))),
        ("sentencepiece.model", processor),
    ):
        content = bytearray((data / name).read_bytes())
        middle = len(content) // 2
        content[middle : middle + 4] = bytes(4)
        kept = (data / name).read_bytes()
        (data / name).write_bytes(content)
        assert refused(use).startswith(str(data / name))
        (data / name).write_bytes(kept)
        use()


def test_an_unfinished_folder_is_emptied_but_for_what_is_kept(tmp_path, capsys):
    with Preparation(tmp_path / "data", {"a": 1}) as preparation:
        files.write_lines(preparation.folder / "downloads" / "archive", ["a"])
        files.write_lines(preparation.folder / "work" / "text", ["a"])
        (preparation.folder / "link").symlink_to(tmp_path)
        assert "another preparation is running" in refused(Preparation, tmp_path / "data", {"a": 1})
    assert capsys.readouterr().err == ""
    with Preparation(tmp_path / "data", {"a": 2}, keep=["downloads"]) as preparation:
        names = {path.name for path in preparation.folder.iterdir()}
    assert names == {"downloads", "preparation.lock"} and tmp_path.is_dir()
    assert "is made anew" in capsys.readouterr().err
