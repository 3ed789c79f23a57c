"""Build a folder step by step: a rerun resumes at the first unfinished step, and the folder gets
its name when all steps are done.
"""

import contextlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import IO, Any, Callable, Dict, Optional, Sequence

from fairseq_plugins.errors import ConfigurationError, check_path
from fairseq_plugins.files import lock, written_whole
from fairseq_plugins.prepared_folder import RECORD

LOCK = "lock"


class Preparation:
    """A folder under construction: `destination` with ".part" appended.

    As a context manager it unlocks the folder at the end, so that another run can resume, and
    reports a system error, such as a full disk, in one line.

    Args:
        destination: the final folder.
        settings: everything that the result depends on. Steps done with other settings are redone.
        keep: names in the folder that do not depend on the settings, such as downloads.

    Raises:
        ConfigurationError: `destination` is something else, cannot be written, or was made with
            other settings, or another process is making it.
    """

    def __init__(self, destination: Path, settings: Dict[str, Any], keep: Sequence[str] = ()):
        self.destination = Path(os.path.abspath(destination))
        if self.destination.is_symlink():  # the folder that gets renamed is the one it leads to
            self.destination = self.destination.resolve()
        self.settings = json.loads(json.dumps(settings))
        self.results: Dict[str, Any] = {}
        self._lock: Optional[IO[str]] = None
        self.finished = self._is_finished()
        if self.finished:
            return
        if self.destination in (Path.cwd(), Path("/")):
            raise ConfigurationError(
                f"DIR {destination}: name a folder to be made, such as data/corpus"
            )
        if os.path.ismount(self.destination):
            raise ConfigurationError(
                f"DIR {destination} is a mount point, which no finished folder can replace: name a "
                f"folder in it, such as {self.destination / 'data'}"
            )
        check_path("DIR", self.destination, "," + os.pathsep)
        self.folder = self.destination.with_name(self.destination.name + ".part")
        try:
            self._open(keep)
        except BlockingIOError:
            raise ConfigurationError(f"another process is preparing {self.folder}") from None
        except OSError as error:
            raise ConfigurationError(f"{self.folder} cannot be written: {error.strerror}") from None

    def _open(self, keep: Sequence[str]) -> None:
        """Create or resume the folder; with other settings remove everything except `keep`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        ours = any((self.folder / name).exists() for name in (LOCK, RECORD))
        if not ours and any(self.folder.iterdir()):
            raise ConfigurationError(
                f"{self.folder} exists and was not made by this command: rename it, or choose "
                "another folder"
            )
        self._lock = open(self.folder / LOCK, "w")
        lock(self._lock, self.folder, "preparation")
        stored = _read(self.folder / RECORD)
        if stored.get("settings") == self.settings:
            self.results = stored["results"]
            return
        with contextlib.suppress(FileNotFoundError):  # first: it tells which files are there
            (self.folder / RECORD).unlink()
        for path in self.folder.iterdir():
            if path.name not in keep and path.name != LOCK:
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink()

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

    def step(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        """Call `function(*args)`, unless an earlier run has finished this step.

        Args:
            name: name of the step; shown to the user.
            function: writes files into the folder atomically; may run again. Its result is stored
                as JSON.

        Returns:
            The function's result, from this run or the earlier one.
        """
        if name not in self.results:
            print(f"{name} ...", file=sys.stderr, flush=True)
            self.results[name] = json.loads(json.dumps(function(*args)))
            self._save()
        return self.results[name]

    def finish(self, leave_out: Sequence[str] = ()) -> None:
        """Remove the subfolders named in `leave_out`, and rename the folder to `destination`."""
        for name in leave_out:
            shutil.rmtree(self.folder / name, ignore_errors=True)
        self._save(_sizes(self.folder))
        (self.folder / LOCK).unlink()
        os.replace(self.folder, self.destination)
        self.finished = True

    def _is_finished(self) -> bool:
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
        for name in sorted(set(stored["settings"]) | set(self.settings)):
            before, now = stored["settings"].get(name), self.settings.get(name)
            if before != now:
                raise ConfigurationError(
                    f"{self.destination} was prepared with other settings "
                    f"({name.replace('_', ' ')} was {json.dumps(before)}, not {json.dumps(now)}): "
                    "choose another folder, or remove it"
                )
        there = _sizes(self.destination)
        for name, size in stored["bytes"].items():
            if there.get(name) != size:
                how = "is missing" if name not in there else "has another size"
                raise ConfigurationError(
                    f"{self.destination / name} {how}: restore it, or remove {self.destination} to "
                    "prepare it again"
                )
        return True

    def _save(self, sizes: Optional[Dict[str, int]] = None) -> None:
        stored = {"settings": self.settings, "results": self.results, "bytes": sizes or {}}
        with written_whole(self.folder / RECORD) as file:
            json.dump(stored, file, indent=2)
            file.write("\n")


def _sizes(folder: Path) -> Dict[str, int]:
    """The bytes of each file that training reads."""
    paths = sorted(path for kind in ("bin", "idx") for path in folder.rglob(f"*.{kind}"))
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths}


def _read(path: Path) -> Dict[str, Any]:
    """The content that `_save` wrote; empty if the file is missing or damaged."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        found = {name: dict(stored[name]) for name in ("settings", "results")}
        return {**found, "bytes": dict(stored.get("bytes", {}))}  # earlier releases stored none
    except (OSError, ValueError, KeyError, TypeError):
        return {}
