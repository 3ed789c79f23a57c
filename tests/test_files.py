"""Text files: what a line is, and what is refused."""

import bz2
import errno
import gzip
import lzma
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fairseq_plugins import files
from fairseq_plugins.data.readers import numbered_lines
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluate import averages
from fairseq_plugins.files import count_lines, in_groups, read_input, write_columns
from fairseq_plugins.lab.benchmarks import plots


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    (tmp_path / "text").write_bytes("\ufeffeins\n\ufeffzwei\n".encode())
    assert list(read_input(tmp_path / "text")) == ["eins", "\ufeffzwei"]
    assert next(files.read_lines(tmp_path / "text")) == "eins"


UTF_16 = "is in UTF-16: convert it, for example with iconv -f utf-16 -t utf-8"
REJECTED = [
    (b"\xef\xbb\xbfab\xff", "line 1: byte 0xff at column 6 is not UTF-8"),
    ("eins".encode("utf-16"), UTF_16),
    ("eins\nf\u00fcnf".encode("utf-16-le"), "iconv -f utf-16 -t utf-8"),
    ("eins".encode("utf-32"), "is in UTF-32: .* iconv -f utf-32 -t utf-8"),
    # all lines but the first would be valid UTF-8, with zero bytes
    ("\ufeffgut\teins\nbad\tzwei\n".encode("utf-16-le"), UTF_16),
    ("\ufeffgut\teins\nbad\tzwei\n".encode("utf-16-be"), UTF_16),
    # Chinese has no zero bytes, but some with the value of a carriage return
    ("\ufeff\u540d\u0d0d\u5b57".encode("utf-16-le"), UTF_16),
    ("\ufeff\u540d\u0d0d\u5b57".encode("utf-16-be"), UTF_16),
    (gzip.compress(b"eins\n", mtime=0), "is in GZIP: .* -dc"),
    (bz2.compress(b"eins\n"), "is in BZIP2: .* -dc"),
    (lzma.compress(b"eins\n"), "is in XZ: .* -dc"),
]


@pytest.mark.parametrize("content, message", REJECTED)
def test_files_that_are_not_utf_8_are_named_as_what_they_are(content, message, tmp_path):
    (tmp_path / "text").write_bytes(content)
    for read in [read_input, *([numbered_lines] if message == UTF_16 else [])]:
        with pytest.raises(ConfigurationError, match=f"{tmp_path}/text.*{message}"):
            list(read(tmp_path / "text"))


@pytest.mark.parametrize("path", ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"])
def test_standard_output_is_continued_and_never_replaced(path, tmp_path):
    """As with `>> log`: the shell and the program share one position in the file."""
    (tmp_path / "log").write_text("yesterday\n")
    code = (
        "import sys; from pathlib import Path; from fairseq_plugins import files\n"
        "path = files.output_file('--output', Path(sys.argv[1]))\n"
        "with files.written_whole(path) as file: file.write('text\\n')\n"
        "files.write_bytes(path, b'bytes\\n')\n"
    )
    program = f"'{sys.executable}' -S -c \"{code}\" {path}"
    for redirect in (">>", ">"):
        words = ["sh", "-c", f"{{ echo before; {program}; echo after; }} {redirect} log"]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
        subprocess.run(words, cwd=tmp_path, env=environment, check=True)
        written = "before\ntext\nbytes\nafter\n"
        assert (tmp_path / "log").read_text() == "yesterday\n" * (redirect == ">>") + written
    assert os.listdir(tmp_path) == ["log"]


def test_a_pipe_is_written_as_it_is(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    path = files.output_file("--output", tmp_path / "pipe")
    with files.written_whole(path) as file:
        file.write("text\n")
    assert os.read(reader, 99) == b"text\n" and path.is_fifo()
    os.close(reader)


def test_lines_have_a_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "LONGEST_LINE", 10)
    monkeypatch.setattr(files, "BLOCK", 7)
    lengths = [0, 9, 10, 11, 12, 17, 18, 24, 25, 10, 40, 3, 10]
    for end in ("\n", ""):
        text = "\n".join("x" * length for length in lengths) + end
        (tmp_path / "text").write_text(text)
        found = [None if line is None else len(line) for line in read_input(tmp_path / "text")]
        assert found == [length if length <= 10 else None for length in lengths]
        assert count_lines(tmp_path / "text") == len(lengths)


@pytest.mark.parametrize("read", [files.read_lines, read_input])
def test_line_ends_of_old_macs_are_told(read, tmp_path, monkeypatch):
    path = tmp_path / "text"
    told = r"text has carriage returns \(CR\) but no line feeds .*: convert it, for example with tr"
    for limit in (files.LONGEST_LINE, 8):
        monkeypatch.setattr(files, "LONGEST_LINE", limit)
        for text in (b"eins\rzwei\r", b"\r\reins\rzwei"):
            path.write_bytes(text)
            with pytest.raises(ConfigurationError, match=told):
                list(read(path))
    # within a line it is white space; other files may have all bytes
    for text in (b"ein\rs\nzwei\r", b"eins\r", b"a\rb\r\n", b"a\rb\0"):
        path.write_bytes(text)
        assert [line.encode() for line in read(path)] == text.removesuffix(b"\n").split(b"\n")


def draw(path):
    with plots.figure(path) as (axes,):
        axes.plot([1, 2])


WRITERS = {
    "lines": lambda path: files.write_lines(path, ["new"]),
    "bytes": lambda path: files.write_bytes(path, b"new"),
    "JSON": lambda path: files.write_json(path, "new"),
    "a checkpoint": lambda path: averages.save({"model": torch.ones(3)}, path),
    "a plot": draw,
}


@pytest.mark.parametrize("kind", WRITERS)
def test_what_is_written_replaces_a_file_and_touches_no_other(kind, tmp_path, monkeypatch):
    """Links under any name that a writer may use first lead to the user's own file."""
    write, path, mine = WRITERS[kind], tmp_path / "out" / "name", tmp_path / "mine"
    path.parent.mkdir()
    mine.write_text("mine")
    for ending in ("", ".part", ".tmp"):
        path.with_name("name" + ending).symlink_to(mine)
    write(path)
    assert mine.read_text() == "mine" and not path.is_symlink()
    assert path.stat().st_size and path.stat().st_mode & 0o777 == 0o666 & ~umask()
    # a second writer, in the middle of the first one's work
    write_out = files.flush_to_disk
    inside = []

    def twice(part):
        if not inside:
            inside.append(part)
            write(path)
        write_out(part)

    monkeypatch.setattr(files, "flush_to_disk", twice)
    path.unlink()
    write(path)
    assert inside and path.stat().st_size
    monkeypatch.setattr(files, "flush_to_disk", lambda part: 1 / 0)
    before = sorted(path.parent.iterdir())
    with pytest.raises(ZeroDivisionError):
        write(path)
    assert sorted(path.parent.iterdir()) == before


def umask():
    before = os.umask(0)
    os.umask(before)
    return before


@pytest.mark.parametrize("what", ["file", "link", "dangling link", "folder", "FIFO"])
def test_a_file_of_our_own_is_neither_emptied_nor_followed(what, tmp_path):
    path, mine = tmp_path / "lock", tmp_path / "mine"
    mine.write_text("mine")
    if what == "file":
        path.write_text("before")
        with files.open_to_append(path) as file:
            file.write(", after")
        assert path.read_text() == "before, after"
        return
    if what == "folder":
        path.mkdir()
    elif what == "FIFO":
        os.mkfifo(path)
    else:
        path.symlink_to(mine if what == "link" else tmp_path / "nowhere")
    with pytest.raises(OSError):
        files.open_to_append(path)
    assert mine.read_text() == "mine" and not (tmp_path / "nowhere").exists()


def test_groups_are_limited_by_lines_and_characters():
    lines = ["x" * 9, ("", None, 7, [("x",)]), "a", b"b", "c", "d", "e"]
    assert list(in_groups(lines, 4, 10)) == [lines[:2], lines[2:6], lines[6:]]


def test_columns_are_written_whole_or_not_at_all(tmp_path):
    paths = [tmp_path / "source", tmp_path / "text" / "target"]
    assert write_columns(paths, [("a", "b"), ("c", "d")]) == 2
    assert [path.read_text() for path in paths] == ["a\nc\n", "b\nd\n"]
    with pytest.raises(ValueError):
        write_columns(paths, [("e", "f"), ("g",)])
    assert [path.read_text() for path in paths] == ["a\nc\n", "b\nd\n"]
    assert len(list(tmp_path.rglob("*"))) == 3


def test_one_at_a_time_in_a_folder(tmp_path):
    with files.alone_in(tmp_path / "new", "training"):
        with pytest.raises(ConfigurationError, match="another training is running in .*new"):
            with files.alone_in(tmp_path / "new", "training", patience=0):
                pass
    with files.alone_in(tmp_path / "new", "training", patience=0):
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="file/new cannot be written"):
        with files.alone_in(tmp_path / "file" / "new", "training"):
            pass


def test_a_file_system_without_locks_is_told(tmp_path, monkeypatch, capsys):
    def refuse(file, operation):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(files.fcntl, "flock", refuse)
    with files.alone_in(tmp_path, "training"):
        told = capsys.readouterr().err
    assert told == (
        f"{tmp_path} cannot be locked (Function not implemented): make sure that no other training "
        "runs there\n"
    )


def test_a_lock_that_is_a_link_leaves_the_file_it_leads_to(tmp_path):
    mine, folder = tmp_path / "mine", tmp_path / "run"
    folder.mkdir()
    mine.write_text("mine")
    (folder / "lock").symlink_to(mine)
    with pytest.raises(ConfigurationError, match=f"{folder}/lock is a link: remove it"):
        with files.alone_in(folder, "training"):
            pass
    assert mine.read_text() == "mine"


def test_json_is_written_atomically(tmp_path):
    path = tmp_path / "a.json"
    assert files.read_json(path) is None
    files.write_json(path, {"a": 1})
    assert files.read_json(path) == {"a": 1} and path.stat().st_mode & 0o777 == 0o644
    with pytest.raises(TypeError):
        files.write_json(path, {"a": object()})
    assert files.read_json(path) == {"a": 1}
    path_of_data = os.fsdecode(b"d\xfcta")  # not UTF-8
    files.write_json(path, {"data": path_of_data})
    assert files.read_json(path) == {"data": path_of_data}
    path.write_text("{")
    assert files.read_json(path) is None
