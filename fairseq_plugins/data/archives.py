"""Read compressed files, and tar archives without unpacking them; detect damaged ones."""

import bz2
import contextlib
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import LONGEST_LINE, open_regular

BLOCK = 1 << 20
OPENERS = {b"\x1f\x8b": gzip.open, b"BZ": bz2.open, b"\xfd7": lzma.open}  # by the first two bytes


@contextlib.contextmanager
def decompressed(path: str | Path, what: Callable[[], str]) -> Iterator[IO[bytes]]:
    """Open a file for the block; it may be compressed with gzip, bzip2 or xz.

    Args:
        path: the file.
        what: gives the beginning of a message about damage.

    Raises:
        ConfigurationError: the file cannot be read, or is damaged.
    """
    try:
        with open_regular(path) as raw:
            start = raw.read(2)
        with OPENERS.get(start, open)(path, "rb") as file:  # type: ignore[operator]
            yield file
    except ConfigurationError:
        raise
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # a disk error
            if error.filename not in (None, str(path)):
                raise
            raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
        reason = " ".join(str(error).split())
        raise ConfigurationError(f"{what()} ({reason}): copy or download it again") from None


@contextlib.contextmanager
def open_archive(path: str | Path, mode: Any = "r:") -> Iterator[tarfile.TarFile]:
    """Open a tar archive for the block; it may be compressed with gzip, bzip2 or xz.

    After the block, the archive is read to its end, where a compressed file has its checksum, to
    detect damaged data.

    Args:
        path: the archive.
        mode: `r:`, or `r|` to read it sequentially.

    Raises:
        ConfigurationError: the archive cannot be read, or is damaged.
    """
    with decompressed(path, lambda: f"{path} is damaged or not a tar archive") as file:
        with tarfile.open(fileobj=file, mode=mode) as archive:
            yield archive
        while file.read(BLOCK):
            pass


def read_members(
    path: str | Path, wanted: Callable[[str], bool]
) -> Iterator[tuple[str, bytes | None]]:
    """Yield names and contents of the files of a tar archive, read sequentially.

    One file is in memory at a time. The content of a file over `LONGEST_LINE` bytes is None.

    Args:
        path: the archive.
        wanted: takes a file's name and returns whether to read the file.

    Raises:
        ConfigurationError: the archive cannot be read, or is damaged.
    """
    with open_archive(path, "r|") as archive:
        for member in archive:
            # otherwise tarfile would hold an entry in memory for each of 300,000 files
            archive.members = []  # type: ignore[attr-defined]
            if not member.isfile() or not wanted(member.name):
                continue
            file = archive.extractfile(member)
            assert file is not None  # because member.isfile()
            yield member.name, file.read() if member.size <= LONGEST_LINE else None
