"""Lines are read some at a time, by their number and their bytes."""

import io
import os
import re
import sys
import threading
import tracemalloc
from types import SimpleNamespace

import pytest

from fairseq_plugins import cli, files
from fairseq_plugins.api import Summarizer
from fairseq_plugins.cli import _lines
from fairseq_plugins.cli.summarize import Summarize
from fairseq_plugins.cli.translate import Translate
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.search.text import Output
from fairseq_plugins.system.resumable import Result


def given(buffer=2, **where):
    return Summarize(model=["tatoeba-de-en"], buffer=buffer, **where)


def convert(args, found, answer=list):
    """Pass lines to `answer`, in groups that `found` gets."""

    def run(group):
        found.append(group.lines)
        return Result(answer(group.lines))

    return _lines.convert(args, lambda: run, "read", "lines")


@pytest.fixture
def batches(monkeypatch, capsys):
    """batches(text, buffer) -> what is given to the model at a time."""

    def run(text, buffer, of=io.BytesIO, **more):
        found = []
        source = SimpleNamespace(buffer=of(text.encode("utf-8")))
        monkeypatch.setattr(sys, "stdin", source)
        assert convert(given(buffer, **more), found) == 0
        assert capsys.readouterr().out.splitlines() == text.splitlines()
        return found

    return run


@pytest.fixture
def read(tmp_path):
    """read(**where) -> what the model is given, and what is in the file that is written."""

    def run(**where):
        found, output = [], tmp_path / "out"
        convert(given(output=output, **where), found)
        return sum(found, []), output.read_text("utf-8")

    return run


def test_a_file_is_read_and_written(read, tmp_path):
    (tmp_path / "in").write_text("a\n\n\u00e4", encoding="utf-8")
    assert read(input=tmp_path / "in") == (["a", "", "\u00e4"], "a\n\n\u00e4\n")


def test_only_files_are_replaced(tmp_path):
    with pytest.raises(ConfigurationError, match=f"--output {tmp_path} is a folder: give a file"):
        cli.main(["translate", "--model", "nowhere", "--output", str(tmp_path)])
    (tmp_path / "file").write_text("old")
    for place in ("file/new", "file/a/new"):
        with pytest.raises(ConfigurationError, match="of --output .*: .*/file is not a folder"):
            cli.main(["translate", "--model", "nowhere", "--output", str(tmp_path / place)])
    (tmp_path / "link").symlink_to("file")
    args = given(output=tmp_path / "link")
    _lines.check_files(args)
    with _lines.own_output(args, 1) as out:
        out.add(Result(["new"]), "")
    assert (tmp_path / "file").read_text() == "new\n" and (tmp_path / "link").is_symlink()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ConfigurationError, match="loop cannot be written: Too many levels"):
        _lines.check_files(given(output=tmp_path / "loop"))


def test_a_pipe_is_opened_once(read, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_text, args=("a\n",))
    writer.start()
    _lines.check_files(given(input=tmp_path / "pipe", output=None))
    assert read(input=tmp_path / "pipe")[0] == ["a"]
    writer.join()


def test_a_file_may_be_a_document(read, tmp_path, monkeypatch, capsys):
    """Its paragraphs are no documents of their own."""
    for name, text in (("a", "First.\n\nSecond.\n"), ("b", ""), ("c", "Third.")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    texts = ["First. Second.", "", "Third."]
    files = [tmp_path / name for name in "abc"]
    assert read(documents=files) == (texts, "\n".join(texts) + "\n")
    monkeypatch.setattr(_lines, "LONGEST_LINE", 10)
    assert read(documents=files)[0] == ["", "", "Third."]
    error = capsys.readouterr().err
    assert re.fullmatch(
        "1 line could not be read and got the output .*: .*/a is longer than 10 .*\n", error
    )


@pytest.mark.parametrize(
    "words, expected",
    [
        (["translate", "--input", "no.txt"], "no.txt cannot be read"),
        (["summarize", "--documents", "no.txt"], "no.txt cannot be read"),
        (["classify", "--input", "no.txt"], "no.txt cannot be read"),
        (
            ["summarize", "--documents", "a", "--input", "b"],
            "--input not allowed with",
        ),
    ],
)
def test_files_are_checked_before_a_model_is_loaded(words, expected):
    with pytest.raises(ConfigurationError, match=expected):
        cli.main([*words, "--model", "nowhere"])


def test_a_rerun_compares_the_terms_and_not_where_they_are(tmp_path):
    digests = []
    for name, text in (("a", "one"), ("b", "one"), ("b", "other")):
        (tmp_path / name).write_text(text)
        args = Translate(model=["tatoeba-de-en"], terms=tmp_path / name)
        digests.append(_lines._decisive(args)["--terms"])
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_shares_join_to_the_whole(shards, tmp_path):
    """Their groups are those of the whole, and numbers in messages are of the whole input."""
    (tmp_path / "in").write_text("".join(f"{number}\n" for number in range(9)))
    found, parts = [], []
    for share in range(shards):
        where = {"input": tmp_path / "in", "output": tmp_path / "out", "num_shards": shards}
        convert(given(**where, shard_id=share), found)
        parts.append((tmp_path / "out").read_text())
    assert "".join(parts) == (tmp_path / "in").read_text()
    assert found == [["0", "1"], ["2", "3"], ["4", "5"], ["6", "7"], ["8"]]


class Typed(io.BytesIO):
    def isatty(self):
        return True


def test_what_is_typed_is_answered_line_by_line(batches):
    assert batches("a\nb\n", 100, Typed) == [["a"], ["b"]]


def test_a_bar_on_a_terminal_counts_the_lines_and_takes_none(read, tmp_path, monkeypatch):
    (tmp_path / "in").write_bytes(b"a\nb\nc\n")
    screen = io.TextIOWrapper(Typed())
    monkeypatch.setattr(sys, "stderr", screen)
    assert read(input=tmp_path / "in") == (["a", "b", "c"], "a\nb\nc\n")
    screen.flush()
    assert b"3/3" in screen.buffer.getvalue()


def test_what_libraries_print_is_no_output(capsys):
    with _lines.own_output(given(), 1) as out:
        print("hello from a library")
        out.add(Result(["a translation"]), "")
    assert capsys.readouterr() == ("a translation\n", "hello from a library\n")


class Endless(io.RawIOBase):
    """100 MB without a line feed, then a line."""

    left = 100 << 20

    def readable(self):
        return True

    def readinto(self, buffer):
        if self.left <= 0:
            return 0
        size = min(len(buffer), self.left)
        buffer[:size] = b"x" * size
        self.left -= size
        if not self.left:
            buffer[size - 6 : size] = b"\nc\xff\n\nd"
        return size


def test_lines_that_cannot_be_read_do_not_stop_the_others(monkeypatch, capsys):
    """One never ends, and one is not UTF-8: neither is held in memory, both are told."""
    source = io.BufferedReader(Endless())
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=source))
    tracemalloc.start()
    status = convert(given(), [])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    out, err = capsys.readouterr()
    assert (status, out) == (1, "\n\n\nd\n")
    assert peak < 3 * files.LONGEST_LINE
    assert err == (
        "2 lines could not be read and got the output of an empty one: standard input, line 1 is "
        "longer than 16,777,216 bytes: split it\n"
    )


def test_of_documents_only_what_the_model_reads_is_held():
    settings = SimpleNamespace(max_source=None)

    class Fake:
        processor = SimpleNamespace(encode=str, decode=str, settings=settings, for_summaries=True)
        name, max_source, max_output, min_len = "fake", 3, 3, 1
        summarizes = copies = False

        def search(self, inputs, count, copied, done, aligned):
            assert all(len(each.pieces) == 3 for each in inputs)
            return [[Output("", True)]] * len(inputs)

    document = "ab " * 20000
    summarizer = Summarizer(Fake())
    tracemalloc.start()
    found = summarizer.summarize([document] * 20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert [(each.subwords, each.read) for each in found] == [(20000, 3)] * 20
    assert peak < 3 * 60 * 20000  # the subwords of one or two documents, of about 60 bytes each
