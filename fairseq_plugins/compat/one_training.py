"""One training at a time in a --save-dir: two would mix their checkpoints."""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from fairseq.distributed import utils as distributed_utils

from fairseq_plugins.compat.patch import around
from fairseq_plugins.files import lock, open_to_append

LOCK = "training.lock"
PATIENCE = 8.0  # seconds; an earlier training may be ending

_held: IO[str] | None = None  # lock of the training in this process


def hold(folder: Path) -> str:
    """Hold the lock of a folder while this process trains; returns why it cannot, or ""."""
    global _held
    release()
    path, until = folder / LOCK, time.monotonic() + PATIENCE
    while True:
        try:
            file = open_to_append(path)
        except OSError as error:
            return f"{path} cannot be written ({error.strerror}): remove it"
        try:
            lock(file, folder, "training")
            if path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat()):
                _held = file
                for part in folder.glob("*.tmp"):  # fairseq writes its checkpoints there first
                    if part.is_symlink():
                        part.unlink()
                return ""
        except BlockingIOError:
            if time.monotonic() > until:
                file.close()
                return (
                    f"another training is running in {folder}: wait for it, stop it, or choose "
                    "another --save-dir"
                )
        file.close()
        time.sleep(0.1)


def release() -> None:
    """Release the folder of a finished training in this process, for another training."""
    global _held
    if _held is not None:
        with contextlib.suppress(OSError):
            os.unlink(_held.name)  # before the lock ends: a waiting process opens a new file
        _held.close()
    _held = None


def _forget() -> None:
    """In a forked process, such as a data loader: it may outlive the training."""
    global _held
    if _held is not None:
        _held.close()
    _held = None


os.register_at_fork(after_in_child=_forget)


def release_after_training() -> None:
    """Release the lock of `hold` when the training ends.

    Without a lock two trainings overwrite each other's checkpoints, and a rerun resumes from a
    mixture.
    """

    @around(distributed_utils, "call_main")
    def call_main(original: Callable, cfg: Any, main: Callable, **kwargs: Any) -> Any:
        try:
            return original(cfg, main, **kwargs)
        finally:
            release()
