"""Text files: read as UTF-8 with line feeds alone ending lines, and written whole or not at all."""

import contextlib
import os
from pathlib import Path
from typing import IO, Iterable, Iterator, Tuple, Union

from fairseq_plugins.errors import ConfigurationError


def read_lines(path: Union[str, Path]) -> Iterator[str]:
    """The lines of a text file without their line feeds.

    Nothing but a line feed ends a line: other characters that some tools take for line ends would
    let the two sides of a corpus drift apart.

    Raises:
        ConfigurationError: no such file, or a byte that is not UTF-8.
    """
    try:
        file = open(path, "rb")
    except OSError as error:
        raise ConfigurationError("{} cannot be read: {}".format(path, error.strerror)) from None
    with file:
        yield from decode_lines(file, str(path))


def decode_lines(file: Iterable[bytes], name: str) -> Iterator[str]:
    """The lines of an open binary file; `name` is what errors call it."""
    for number, line in enumerate(file, 1):
        try:
            yield line.rstrip(b"\n").decode("utf-8")
        except UnicodeDecodeError as error:
            raise ConfigurationError(
                "{}, line {}: byte 0x{:02x} at column {} is not UTF-8: convert the text, for "
                "example with iconv -f latin1 -t utf-8".format(
                    name, number, line[error.start], error.start + 1
                )
            ) from None


def read_pairs(source: Path, target: Path) -> Iterator[Tuple[str, str]]:
    """The lines of two files side by side.

    Raises:
        ConfigurationError: one has more lines than the other.
    """
    yield from zip(read_lines(source), read_lines(target))
    counts = count_lines(source), count_lines(target)
    if counts[0] != counts[1]:
        raise ConfigurationError(
            "{} has {:,} lines and {} has {:,}: they must be aligned by line".format(
                source, counts[0], target, counts[1]
            )
        )


def count_lines(path: Union[str, Path]) -> int:
    """How many lines `read_lines` gives."""
    with open(path, "rb") as file:
        return sum(1 for _ in file)


@contextlib.contextmanager
def written_whole(path: Union[str, Path]) -> Iterator[IO[str]]:
    """A text file to write to, which takes its name only when the block ends without an error."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    with open(part, "w", encoding="utf-8", newline="\n") as file:
        yield file
    os.replace(part, path)


def write_lines(path: Union[str, Path], lines: Iterable[str]) -> int:
    """Write one line each; returns how many."""
    count = 0
    with written_whole(path) as file:
        for line in lines:
            file.write(line + "\n")
            count += 1
    return count
