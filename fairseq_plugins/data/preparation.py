"""A folder under construction: made as DIR.part, and renamed to DIR when it is complete."""

import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fairseq_plugins.data.length_ratios import length_ratios
from fairseq_plugins.data.prepared_folder import RECORD, Record, needed_files
from fairseq_plugins.errors import ConfigurationError, check_path
from fairseq_plugins.files import PART, alone_in, digest, flush_to_disk, write_json
from fairseq_plugins.system.progress import progress_bar

LOCK = "preparation.lock"  # a training's "lock" does not make a folder ours
WORK = "work"  # a subfolder that exists only during the preparation
CHECKSUM = re.compile("[0-9a-f]{64}")


class Preparation:
    """A folder under construction: `destination` with ".part" appended.

    As a context manager, it unlocks the folder at the end, and reports a system error, such as a
    full disk, in one line. What an interrupted preparation left is removed.

    Args:
        destination: the final folder.
        settings: everything that affects the result.
        keep: names in the folder that a rerun keeps, such as downloads.

    Attributes:
        folder: where to write.
        finished: whether `destination` is complete and has these settings.
        results: what `finish` stored, if it is finished.

    Raises:
        ConfigurationError: `destination` is something else, cannot be written, or was made with
            other settings, or another process is making it.
    """

    def __init__(self, destination: Path, settings: dict[str, Any], keep: Sequence[str] = ()):
        self.destination = Path(os.path.abspath(destination))
        if self.destination.is_symlink():  # rename the folder that the link points to
            self.destination = self.destination.resolve()
        self.folder = self.destination.parent / (self.destination.name + PART)
        self.settings = json.loads(json.dumps(settings))
        self.results: dict[str, Any] = {}
        self._lock = contextlib.ExitStack()
        self.finished = self._is_finished()
        if self.finished:
            return
        if self.destination in (Path.cwd(), Path("/")):
            raise ConfigurationError(f"DIR {destination}: give a new folder, such as data/corpus")
        if os.path.ismount(self.destination):
            raise ConfigurationError(
                f"DIR {destination} is a mount point, which cannot be replaced: give a "
                f"folder in it, such as {self.destination / 'data'}"
            )
        check_path("DIR", self.destination, "," + os.pathsep)
        try:
            with contextlib.ExitStack() as stack:
                self._open(stack, keep)
                self._lock = stack.pop_all()
        except OSError as error:
            why = f"{self.folder} cannot be written: {error.strerror}"
            raise ConfigurationError(why) from None

    def _open(self, stack: contextlib.ExitStack, keep: Sequence[str]) -> None:
        """Create the folder and lock it, and empty it but for `keep`."""
        lock = self.folder / LOCK
        if self.folder.exists() and any(self.folder.iterdir()) and not lock.exists():
            raise ConfigurationError(
                f"{self.folder} exists and was not made by this command: rename it, or choose "
                "another folder"
            )
        stack.enter_context(alone_in(self.folder, "preparation", 0, LOCK))
        self.finished = self._is_finished()
        if self.finished:  # another process finished it meanwhile
            if self.folder.exists() and [path.name for path in self.folder.iterdir()] == [LOCK]:
                shutil.rmtree(self.folder)
            return
        left = [path for path in self.folder.iterdir() if path.name not in (*keep, LOCK)]
        if left:
            print(f"{self.folder}: an unfinished preparation is made anew", file=sys.stderr)
        for path in left:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def __enter__(self) -> "Preparation":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._lock.close()
        if isinstance(error, OSError):
            raise ConfigurationError(
                f"{error.filename or self.folder}: {error.strerror or error}. {self.destination} "
                "was not written: rerun to make it anew"
            ) from None

    def finish(self, results: dict[str, Any]) -> None:
        """Store the results, remove `WORK`, and rename the folder to `destination`."""
        shutil.rmtree(self.folder / WORK, ignore_errors=True)
        paths = needed_files(self.folder)
        record = Record(
            self.settings,
            json.loads(json.dumps(results)),
            length_ratios(self.folder),
            {name: path.stat().st_size for name, path in paths.items()},
            {n: digest(p) for n, p in progress_bar(paths.items(), description="checksums")},
        )
        for path in self.folder.rglob("*"):
            if path.is_file():
                flush_to_disk(path)
        write_json(self.folder / RECORD, asdict(record))
        os.replace(self.folder, self.destination)
        # last: the next holder of the lock finds either a folder to empty or the finished one
        with contextlib.suppress(FileNotFoundError):
            (self.destination / LOCK).unlink()
        self.finished, self.results = True, record.results

    def _is_finished(self) -> bool:
        """Whether the destination is complete, and of these settings; then its results are read."""
        if not self.destination.exists():
            return False
        if self.destination.is_dir() and not any(self.destination.iterdir()):
            return False
        record = Record.read(self.destination)
        if not record.settings:
            raise ConfigurationError(
                f"{self.destination} exists and was not made by this command (it has no valid "
                f"{RECORD}): choose another folder"
            )
        self.results = record.results
        changed = self._changed(record.settings)
        if changed is not None:
            raise ConfigurationError(
                f"{self.destination} was prepared with other settings ({changed}): choose another "
                "folder, or remove it"
            )
        there = {name: path.stat().st_size for name, path in needed_files(self.destination).items()}
        for name, size in record.bytes.items():
            if there.get(name) != size:
                how = "is missing" if name not in there else "has another size"
                raise ConfigurationError(
                    f"{self.destination / name} {how}: restore it, or remove {self.destination} to "
                    "prepare it again"
                )
        return True

    def _changed(self, earlier: dict[str, Any]) -> str | None:
        """The first setting that is not the stored one, with both values."""
        for name in sorted(earlier.keys() | self.settings.keys()):
            before, now = earlier.get(name), self.settings.get(name)
            if before != now:
                return f"{name.replace('_', ' ')} was {_change(before, now)}"
        return None


def _change(before: Any, now: Any) -> str:
    """How a setting differed, without the checksums of files."""
    differ = []
    if isinstance(before, dict) and isinstance(now, dict):
        names = sorted(set(before) | set(now))
        differ = [name for name in names if before.get(name) != now.get(name)]
        before, now = ({name: each.get(name) for name in differ} for each in (before, now))
    stored = json.dumps(before), json.dumps(now)
    if all(map(CHECKSUM.search, stored)):
        return "different" + (f" in {', '.join(differ)}" if differ else "")
    return ", not ".join(stored)
