"""Build a folder step by step. A rerun resumes at the first unfinished step; the folder gets its
name when all steps are done.
"""

import contextlib
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from fairseq_plugins.data.length_ratios import length_ratios
from fairseq_plugins.errors import ConfigurationError, check_path
from fairseq_plugins.files import PART, digest, lock, open_to_append
from fairseq_plugins.json_files import read_json, write_json
from fairseq_plugins.prepared_folder import DIGESTS, RATIOS, RECORD, needed_files

LOCK = "preparation.lock"  # a training's "lock" does not make a folder ours
CHECKSUM = re.compile("[0-9a-f]{64}")


class Status(NamedTuple):
    """A state that differs if a file has changed."""

    size: int
    changed: int


class Preparation:
    """A folder under construction: `destination` with ".part" appended.

    As a context manager, it unlocks the folder at the end, for another run to resume, and
    reports a system error, such as a full disk, in one line.

    Args:
        destination: the final folder.
        settings: everything that affects the result. Steps done with other settings are redone.
        keep: names in the folder that do not depend on the settings, such as downloads.
        costly: a subfolder whose files took long: with other settings they are never removed.

    Raises:
        ConfigurationError: `destination` is something else, cannot be written, or was made with
            other settings (unfinished: if it has `costly`), or another process is making it.
    """

    def __init__(
        self,
        destination: Path,
        settings: dict[str, Any],
        keep: Sequence[str] = (),
        costly: str | None = None,
    ):
        self.destination = Path(os.path.abspath(destination))
        if self.destination.is_symlink():  # rename the folder that the link points to
            self.destination = self.destination.resolve()
        self.settings = json.loads(json.dumps(settings))
        self.results: dict[str, Any] = {}
        self._files: dict[str, dict[str, int]] = {}  # files of each step, with their sizes
        self._keep, self._costly = keep, costly
        self._lock: IO[str] | None = None
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
        self.folder = self.destination.with_name(self.destination.name + ".part")
        try:
            self._open()
        except Exception as error:
            self.__exit__(None, None, None)
            if isinstance(error, BlockingIOError):
                raise ConfigurationError(f"another process is preparing {self.folder}") from None
            if isinstance(error, OSError):
                why = f"{self.folder} cannot be written: {error.strerror}"
                raise ConfigurationError(why) from None
            raise

    def _open(self) -> None:
        """Create or resume the folder; with other settings remove everything except `keep`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        ours = any((self.folder / name).exists() for name in (LOCK, RECORD))
        if not ours and any(self.folder.iterdir()):
            raise ConfigurationError(
                f"{self.folder} exists and was not made by this command: rename it, or choose "
                "another folder"
            )
        self._lock = open_to_append(self.folder / LOCK)
        lock(self._lock, self.folder, "preparation")
        self.finished = self._is_finished()
        if self.finished:  # another process finished it meanwhile
            if self.folder.exists() and [path.name for path in self.folder.iterdir()] == [LOCK]:
                shutil.rmtree(self.folder)
            return
        stored = _read(self.folder / RECORD)
        changed = self._changed(stored)
        if stored and changed is None:
            self._resume(stored)
            return
        if stored and self._costly is not None and (self.folder / self._costly).exists():
            raise ConfigurationError(
                f"{self.folder} has unfinished work with other settings ({changed}): rerun with "
                f"those to resume, choose another folder, or remove {self.folder}"
            )
        if stored:
            print(f"{self.folder}: {changed}, so all steps are redone", file=sys.stderr)
        with contextlib.suppress(FileNotFoundError):  # first: it lists the files
            (self.folder / RECORD).unlink()
        for path in self.folder.iterdir():
            if path.name not in self._keep and path.name != LOCK:
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()

    def _resume(self, stored: dict[str, Any]) -> None:
        """Read the finished steps, up to the first one with missing files."""
        there = self._there()
        for name in there:
            if name.endswith(PART):  # from a killed process
                (self.folder / name).unlink()
        for step, result in stored["results"].items():
            made = stored["files"].get(step, {})
            gone = [n for n, size in made.items() if n not in there or there[n].size != size]
            if gone:
                print(
                    f"{self.folder / gone[0]} is missing or was changed: made again",
                    file=sys.stderr,
                )
                return
            self.results[step], self._files[step] = result, made

    def __enter__(self) -> "Preparation":
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if self._lock is not None:
            self._lock.close()
        if isinstance(error, OSError):
            raise ConfigurationError(
                f"{error.filename or self.folder}: {error.strerror or error}. Finished steps are "
                "kept: rerun to resume"
            ) from None

    def step(
        self, name: str, function: Callable[..., Any], *args: Any, makes: Path | None = None
    ) -> Any:
        """Call `function(*args)`, unless an earlier run has finished this step.

        Args:
            name: name of the step.
            function: writes files into the folder atomically; may run again. Its result is stored
                as JSON.
            makes: the only file that one of thousands of steps writes: no other file is looked
                at, and the name is not printed.

        Returns:
            The function's result, from this run or the earlier one.
        """
        if name not in self.results:
            if makes is None:
                print(f"{name} ...", file=sys.stderr, flush=True)
            before = self._there(makes)
            self.results[name] = json.loads(json.dumps(function(*args)))
            made = dict(sorted(self._there(makes).items() - before.items()))
            for files in self._files.values():
                for changed in files.keys() & made.keys():
                    del files[changed]  # now made by this step
            self._files[name] = {file: status.size for file, status in made.items()}
            self._save()
        return self.results[name]

    def finish(self, leave_out: Sequence[str] = ()) -> None:
        """Remove the subfolders named in `leave_out`, and rename the folder to `destination`."""
        self._save(finished=True)  # first: after a kill, a rerun must not expect these folders
        for name in leave_out:
            shutil.rmtree(self.folder / name, ignore_errors=True)
        os.replace(self.folder, self.destination)
        # last: the next holder of the lock finds either a folder to resume or the finished one
        with contextlib.suppress(FileNotFoundError):
            (self.destination / LOCK).unlink()
        self.finished = True

    def _there(self, only: Path | None = None) -> dict[str, Status]:
        """The files made by steps, by relative name; or only one of them."""
        found = {}
        for path in self.folder.rglob("*") if only is None else [only]:
            name = path.relative_to(self.folder).as_posix()
            ours = name not in (LOCK, RECORD) and name.split("/")[0] not in self._keep
            if ours and path.is_file():
                status = path.stat()
                found[name] = Status(status.st_size, status.st_mtime_ns)
        return found

    def _is_finished(self) -> bool:
        """Whether the destination is complete, and of these settings; then its results are read."""
        if not self.destination.exists():
            return False
        if self.destination.is_dir() and not any(self.destination.iterdir()):
            return False
        stored = _read(self.destination / RECORD)
        if not stored:
            raise ConfigurationError(
                f"{self.destination} exists and was not made by this command (it has no valid "
                f"{RECORD}): choose another folder"
            )
        self.results = stored["results"]
        changed = self._changed(stored)
        if changed is not None:
            raise ConfigurationError(
                f"{self.destination} was prepared with other settings ({changed}): choose another "
                "folder, or remove it"
            )
        there = {name: path.stat().st_size for name, path in needed_files(self.destination).items()}
        for name, size in stored["bytes"].items():
            if there.get(name) != size:
                how = "is missing" if name not in there else "has another size"
                raise ConfigurationError(
                    f"{self.destination / name} {how}: restore it, or remove {self.destination} to "
                    "prepare it again"
                )
        return True

    def _changed(self, stored: dict[str, Any]) -> str | None:
        """The first setting that is not the stored one, with both values."""
        earlier = stored.get("settings", {})
        for name in sorted(earlier.keys() | self.settings.keys()):
            before, now = earlier.get(name), self.settings.get(name)
            if before != now:
                return f"{name.replace('_', ' ')} was {_change(before, now)}"
        return None

    def _save(self, finished: bool = False) -> None:
        stored: dict[str, Any] = {"settings": self.settings, "results": self.results}
        if finished:
            paths = needed_files(self.folder)
            stored["bytes"] = {name: path.stat().st_size for name, path in paths.items()}
            stored[RATIOS] = length_ratios(self.folder)
            stored[DIGESTS] = {name: digest(path) for name, path in paths.items()}
        else:
            stored["files"] = self._files
        write_json(self.folder / RECORD, stored)


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


def _read(path: Path) -> dict[str, Any]:
    """The content that `_save` wrote; empty if the file is missing or damaged."""
    try:
        stored = read_json(path)
        found = {name: dict(stored[name]) for name in ("settings", "results")}
        files = {step: dict(made) for step, made in dict(stored.get("files", {})).items()}
        return {**found, "bytes": dict(stored.get("bytes", {})), "files": files}
    except (ValueError, KeyError, TypeError):
        return {}
