"""Tar archives, which may be damaged."""

import contextlib
import lzma
import tarfile
import zlib
from pathlib import Path
from typing import Any, Iterator, Union

from fairseq_plugins.errors import ConfigurationError


@contextlib.contextmanager
def open_archive(path: Union[str, Path], mode: Any = "r") -> Iterator[tarfile.TarFile]:
    """A tar archive of any compression, opened for the block.

    Raises:
        ConfigurationError: the archive cannot be read, or what the block reads of it is damaged.
    """
    try:
        with tarfile.open(str(path), mode) as archive:
            yield archive
    except ConfigurationError:
        raise
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # of the disk, not the data
            if error.filename != str(path):
                raise
            raise ConfigurationError(f"{path} cannot be read: {error.strerror}") from None
        raise ConfigurationError(
            f"{path} is damaged or no tar archive ({error}): copy or download it again"
        ) from None
