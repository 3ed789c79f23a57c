"""One program at a time in a folder."""

import contextlib
import fcntl
from pathlib import Path
from typing import IO, Iterator

from fairseq_plugins.errors import ConfigurationError


@contextlib.contextmanager
def alone_in(folder: Path, work: str) -> Iterator[IO[str]]:
    """Hold a folder, made if it is not there, until the block ends; yields the lock's file.

    Raises:
        ConfigurationError: another process does its `work`, such as "training", there, or the
            folder cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = open(folder / "lock", "w")
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be written: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigurationError(
                f"another {work} is at work in {folder}: wait for it, or stop it"
            ) from None
        yield lock
