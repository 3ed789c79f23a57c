"""Text and JSON files: UTF-8, lines that end with a line feed only, written atomically."""

import codecs
import contextlib
import errno
import fcntl
import hashlib
import io
import itertools
import json
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

from fairseq_plugins.errors import ConfigurationError, counted, flag

AnyPath = str | Path
T = TypeVar("T")

LONGEST_LINE = 1 << 24  # bytes per line of a user's file; longer lines are never held in memory
BLOCK = 1 << 20
PART = ".part"  # suffix of unfinished files and folders
MOST_LINKS = 40  # that lead to a file, as in Linux
FULL = errno.ENOSPC, errno.EDQUOT, errno.EFBIG
# how other files than UTF-8 texts begin; UTF-32's mark begins as UTF-16's does
NOT_TEXT = {
    codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16",
    b"\x1f\x8b": "gzip", b"BZh91AY&SY": "bzip2", b"\xfd7zXZ\0": "xz", b"\x28\xb5\x2f\xfd": "zstd",
}  # fmt: skip
# seconds; data loaders of a killed training hold the lock for 5 s, until they notice
PATIENCE = 8.0


def digest(path: AnyPath, algorithm: str = "sha256") -> str:
    """The checksum of a file, in hexadecimal.

    Raises:
        ConfigurationError: the file cannot be read.
    """
    try:
        with open_regular(path) as file:
            return hashlib.file_digest(file, algorithm).hexdigest()
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None


def raw_lines(file: IO[bytes], name: str) -> Iterator[bytes | None]:
    """The lines of an open binary file without line feeds; None for a line over `LONGEST_LINE`.

    Raises:
        ConfigurationError: carriage returns end all lines, or the file is compressed or begins
            with a byte-order mark of UTF-16 or UTF-32; the message calls the file `name`.
    """
    for number in itertools.count(1):
        line = file.readline(LONGEST_LINE + 1)
        if not line:
            return
        if number == 1:
            _check_encoding(line, name)
        end, fits = line, line.endswith(b"\n") or len(line) <= LONGEST_LINE
        while not fits and end and not end.endswith(b"\n"):
            end = file.readline(BLOCK)
        if number == 1 and not end.endswith(b"\n"):
            _check_line_ends(line, name)
        yield line.rstrip(b"\n") if fits else None


def read_lines(path: AnyPath) -> Iterator[str]:
    """The lines of a file whose lines fit into memory, such as a file that preparation wrote.

    Only a line feed ends a line. Some tools split at other characters too, which would misalign the
    two sides of a corpus.

    Raises:
        ConfigurationError: the file cannot be read, or a byte is not UTF-8.
    """
    name = str(path)
    with open_to_read(path) as file:
        for number, line in enumerate(file, 1):
            if number == 1:
                _check_encoding(line, name)
                _check_line_ends(line, name)
            yield decode(line.rstrip(b"\n"), name, number)


def read_input(path: AnyPath) -> Iterator[str | None]:
    """`read_lines` for a user's file, with None for a line over `LONGEST_LINE`."""
    with open_to_read(path) as file:
        for number, line in enumerate(raw_lines(file, str(path)), 1):
            yield None if line is None else decode(line, str(path), number)


def read_pairs(*paths: Path, read: Callable[[Path], Iterator[Any]] = read_lines) -> Iterator[Any]:
    """The lines of files side by side, as `read` yields them.

    Raises:
        ConfigurationError: one file has more lines than the other.
    """
    end: Any = object()
    for row in itertools.zip_longest(*map(read, paths), fillvalue=end):
        if end in row:
            lines = [counted(sum(1 for _ in read(path)), "lines") for path in paths]
            raise ConfigurationError(
                f"{paths[0]} has {lines[0]} and {paths[1]} has {lines[1]}: they must be aligned by "
                "line"
            )
        yield row


def count_lines(path: AnyPath) -> int:
    """The number of lines that the readers above yield."""
    with open_to_read(path) as file:
        return count_lines_of(file)


def count_lines_of(file: IO[bytes]) -> int:
    """The number of lines from here to the end of an open file."""
    count, last = 0, b"\n"
    for block in iter(lambda: file.read(BLOCK), b""):
        count += block.count(b"\n")
        last = block[-1:]
    return count + (last != b"\n")


def in_groups(lines: Iterable[T], most: int, size: int) -> Iterator[list[T]]:
    """Lines in groups: a group ends when it has `most` lines, or at least `size` characters.

    A line may be text, bytes, or a tuple or list of these and others, which have no characters. It
    is not kept waiting for the next one.
    """
    group: list[T] = []
    characters = 0
    for line in lines:
        group.append(line)
        characters += _characters(line)
        if len(group) == most or characters >= size:
            yield group
            group, characters = [], 0
    if group:
        yield group


def _characters(line: Any) -> int:
    if isinstance(line, (tuple, list)):
        return sum(map(_characters, line))
    return len(line) if isinstance(line, (str, bytes)) else 0


@contextlib.contextmanager
def replacing(path: AnyPath) -> Iterator[Path]:
    """A new, empty file beside `path`, for the block; it is renamed to `path` at the end.

    It is flushed to disk first. After an error it is removed. Its name is new, so no other process
    or link can interfere. The error of a full disk names `path`.
    """
    path = Path(path)
    part = path.with_name(f"{path.name}.{os.urandom(4).hex()}{PART}")
    try:
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        yield part
        flush_to_disk(part)
        os.replace(part, path)
    except BaseException as error:
        if isinstance(error, OSError) and (error.filename == str(part) or error.errno in FULL):
            error.filename = str(path)
        with contextlib.suppress(OSError):
            part.unlink()
        raise


@contextlib.contextmanager
def written_whole(path: AnyPath, errors: str = "strict") -> Iterator[IO[str]]:
    """Open a text file for writing, as `replacing`; creates its folder.

    What no rename may replace, such as a pipe, a device or standard output, is written directly.
    With `errors="backslashreplace"` the text may name paths that are not UTF-8.
    """
    with _written(path) as file:
        with io.TextIOWrapper(file, encoding="utf-8", errors=errors, newline="\n") as text:
            yield text


def write_bytes(path: Path, content: bytes | memoryview) -> None:
    """Write a file as `written_whole` does."""
    with _written(path) as file:
        file.write(content)


@contextlib.contextmanager
def _written(path: AnyPath) -> Iterator[IO[bytes]]:
    with contextlib.ExitStack() as stack:
        file = _open_in_place(path)
        if file is None:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            file = open(stack.enter_context(replacing(path)), "wb")
        with file:
            yield file


def _open_in_place(path: AnyPath) -> IO[bytes] | None:
    """Open what no rename may replace, to write; None for a regular file and for a new name."""
    number = _descriptor(path)
    if number is not None:
        return open(os.dup(number), "wb")  # it continues where the file is, as after >>
    return open(path, "wb") if is_in_place(path) else None


def is_in_place(path: AnyPath) -> bool:
    """Whether no rename may replace this: a pipe, a device, or an open file of this process."""
    special = os.path.exists(path) and not os.path.isfile(path)
    return special or _descriptor(path) is not None


def _descriptor(path: AnyPath) -> int | None:
    """The open file of this process that a path names, such as 1 for /dev/stdout; else None.

    Its link leads on to the file itself, perhaps one to which a shell appends.
    """
    here = Path(path)
    for _ in range(MOST_LINKS):
        here = Path(os.path.realpath(here.parent), here.name)
        if re.fullmatch(rf"/proc/{os.getpid()}(/task/\d+)?/fd", str(here.parent)):
            return int(here.name) if here.name.isdigit() else None
        if not here.is_symlink():
            break
        here = here.parent / os.readlink(here)
    return None


def copy(source: Path, path: Path) -> None:
    """Copy a file, written as `write_bytes`."""
    write_bytes(path, source.read_bytes())


def without_links(path: str, flags: int) -> int:
    """An opener for `open` that does not follow links, which may lead to a user's file."""
    # without O_NONBLOCK, it would wait for the reader of a FIFO
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)


def open_to_append(path: AnyPath) -> IO[str]:
    """Open or create a file of this package, such as a lock or a log; its content stays.

    Raises:
        OSError: the file cannot be written, or is a link or not a file.
    """
    return _regular(
        open(path, "a", encoding="utf-8", errors="backslashreplace", opener=without_links)
    )


def open_regular(path: AnyPath) -> io.BufferedReader:
    """Open a regular file for reading in binary mode.

    A device may have no end, and a pipe may never have a writer.

    Raises:
        OSError: it cannot be read, or is a device, a pipe or a folder.
    """
    return _regular(open(path, "rb", opener=_without_waiting))


def read_named(folder: Path, name: AnyPath) -> bytes:
    """The content of a file in a folder whose name comes from other data, such as metadata.

    Raises:
        OSError: it cannot be read, lies outside the folder, is not a regular file, or has more than
            `LONGEST_LINE` bytes.
    """
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise OSError(errno.EINVAL, f"it is outside {folder}", str(path))
    with open_regular(path) as file:
        content = file.read(LONGEST_LINE + 1)
    if len(content) > LONGEST_LINE:
        raise OSError(errno.EFBIG, f"it has more than {LONGEST_LINE:,} bytes", str(path))
    return content


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def _regular(file: Any) -> Any:
    """The open file; raises an OSError if it is not a regular one."""
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is not a regular file", str(file.name))
    return file


def output_file(option: str, path: Path) -> Path:
    """The file that an option names, for `written_whole`; for a link, the file that it leads to.

    Raises:
        ConfigurationError: it is a folder, or cannot be written.
    """
    try:
        kind = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        kind = stat.S_IFREG
    except OSError as error:  # such as links in a circle
        raise ConfigurationError(
            f"{option} {path} cannot be written: {error.strerror}: give another file"
        ) from None
    if stat.S_ISDIR(kind):
        raise ConfigurationError(f"{option} {path} is a folder: give a file")
    if is_in_place(path):
        return path
    file = Path(os.path.realpath(path))
    check_can_hold(f"the folder of {option}", file.parent)
    return file


def check_can_hold(option: str, folder: Path) -> None:
    """Raise a ConfigurationError unless this is a folder that can be written, or can become one."""
    there = next(each for each in (folder, *folder.absolute().parents) if os.path.lexists(each))
    if not (there.is_dir() and os.access(there, os.W_OK)):
        raise ConfigurationError(
            f"{option} {folder}: {there} is not a folder that you can write to: choose another"
        )


def check_no_link(path: Path) -> None:
    """Raise a ConfigurationError if a folder for this package's own files is a link."""
    if path.is_symlink():
        raise ConfigurationError(
            f"{path} is a link, which would redirect files elsewhere: replace it by a folder"
        )


@contextlib.contextmanager
def alone_in(
    folder: Path, work: str, patience: float | None = None, name: str = "lock"
) -> Iterator[IO[str]]:
    """Hold the lock of a folder until the block ends; yields the lock's file.

    Without file locks, such as on Lustre mounted without flock, we warn and continue.

    Args:
        folder: created if it does not exist.
        work: what the process does there, such as "training", for the message.
        patience: seconds to wait for another process to end (default: `PATIENCE`).
        name: of the lock's file.

    Raises:
        ConfigurationError: another process holds the lock, or the folder cannot be written.
    """
    path = folder / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open_to_append(path)
    except OSError as error:
        what = f"{path} is a link: remove it" if path.is_symlink() else error.strerror
        raise ConfigurationError(f"{folder} cannot be written: {what}") from None
    until = time.monotonic() + (PATIENCE if patience is None else patience)
    with file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise ConfigurationError(
                        f"another {work} is running in {folder}: wait for it, or stop it"
                    ) from None
                time.sleep(0.2)
            except OSError as error:
                problem = f"{folder} cannot be locked ({error.strerror})"
                print(f"{problem}: make sure that no other {work} runs there", file=sys.stderr)
                break
        try:
            yield file
        finally:
            with contextlib.suppress(OSError):  # else until the last forked process ends
                fcntl.flock(file, fcntl.LOCK_UN)


def flush_to_disk(path: AnyPath) -> None:
    """Flush a file to disk, so that it survives a power cut."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())


def write_columns(paths: Sequence[Path], rows: Iterable[Sequence[str]]) -> int:
    """Write rows of lines, one file for each column; returns their number."""
    count = 0
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(written_whole(path)) for path in paths]
        for row in rows:
            count += 1
            for file, line in zip(files, row, strict=True):
                file.write(line + "\n")
    return count


def write_lines(path: AnyPath, lines: Iterable[str]) -> int:
    """Write lines to a file; returns their number."""
    return write_columns([Path(path)], ([line] for line in lines))


def open_to_read(path: AnyPath) -> IO[bytes]:
    """Open a file for reading in binary mode; raises a ConfigurationError if that fails."""
    try:
        return open(path, "rb")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None


def decode(line: bytes, name: str, number: int) -> str:
    """Decode a line as UTF-8; `name` and `number` identify it in error messages.

    A byte-order mark, which some editors write, is not part of line 1.
    """
    try:
        text = line.decode("utf-8")
        return text[1:] if number == 1 and text.startswith("\ufeff") else text
    except UnicodeDecodeError as error:
        if number == 1:
            _check_encoding(line, name)
        was = "utf-16" if b"\0" in line else "latin1"
        raise ConfigurationError(
            f"{name}, line {number}: byte 0x{line[error.start]:02x} at column {error.start + 1} is "
            f"not UTF-8: convert the text, for example with iconv -f {was} -t utf-8"
        ) from None


def _check_encoding(first: bytes, name: str) -> None:
    """Raise a ConfigurationError if the first line shows that a file is no UTF-8 text."""
    for mark, kind in NOT_TEXT.items():
        if first.startswith(mark):
            how = f"iconv -f {kind} -t utf-8" if kind.startswith("utf") else f"{kind} -dc"
            raise ConfigurationError(
                f"{name} is in {kind.upper()}: convert it, for example with {how}"
            )


def _check_line_ends(first: bytes, name: str) -> None:
    """Refuse a text whose first line is all of it and has carriage returns, as on old Macs."""
    if not first.endswith(b"\n") and b"\r" in first.strip(b"\r") and b"\0" not in first:
        raise ConfigurationError(
            f"{name} has carriage returns (CR) but no line feeds (LF), so it is one line: convert "
            "it, for example with tr '\\r' '\\n'"
        )


def read_json(path: Path) -> Any:
    """The content of a JSON file; None if it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):  # deep nesting
        return None


def json_object(option: str, text: str | None) -> dict[str, Any]:
    """The value of an option that is a JSON object; empty for an empty text.

    Raises:
        ConfigurationError: the text is not a JSON object.
    """
    try:
        parsed = json.loads(text or "{}")
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise ConfigurationError(
            f"{flag(option)} '{text}' is not a JSON object: write it as '{{\"name\": value}}'"
        )
    return parsed


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically; several machines may write it at once.

    Paths that are not UTF-8 come back from `read_json` as they were.
    """
    with written_whole(path, errors="backslashreplace") as file:  # which JSON reads as "\\udcff"
        json.dump(value, file, indent=1, ensure_ascii=False)
        file.write("\n")
