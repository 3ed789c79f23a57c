"""A folder built step by step: rerunning resumes at the step that was not finished, and the folder
gets its name when all is done.
"""

import fcntl
import json
import os
import shutil
import sys
from pathlib import Path
from typing import IO, Any, Callable, Dict, Optional, Sequence

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.preparation.files import written_whole
from fairseq_plugins.preparation.processing import FILE

LOCK = "lock"


class Preparation:
    """A folder in the making, `destination` with ".part" at its end.

    As a context manager it releases the folder at the end, for another run to resume, and tells an
    error of the system, such as a full disk, in one line.

    Args:
        destination: the folder that will be there in the end.
        settings: all that the result depends on. What was done with other settings is not used.
        keep: names in the folder that do not depend on the settings, such as downloads.

    Raises:
        ConfigurationError: `destination` is something else, cannot be written, or was made with
            other settings, or another process is making it.
    """

    def __init__(self, destination: Path, settings: Dict[str, Any], keep: Sequence[str] = ()):
        self.destination = Path(os.path.abspath(destination))
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
        self.folder = self.destination.with_name(self.destination.name + ".part")
        try:
            self._open(keep)
        except BlockingIOError:
            raise ConfigurationError(f"another process is preparing {self.folder}") from None
        except OSError as error:
            raise ConfigurationError(f"{self.folder} cannot be written: {error.strerror}") from None

    def _open(self, keep: Sequence[str]) -> None:
        """Make or resume the folder; of other settings nothing is kept but `keep`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        ours = any((self.folder / name).exists() for name in (LOCK, FILE))
        if not ours and any(self.folder.iterdir()):
            raise ConfigurationError(
                f"{self.folder} exists and was not made by this command: rename it, or choose "
                "another folder"
            )
        self._lock = open(self.folder / LOCK, "w")
        fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        stored = _read(self.folder / FILE)
        if stored.get("settings") == self.settings:
            self.results = stored["results"]
            return
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
        """Do `function(*args)` unless an earlier run has done it.

        Args:
            name: what the step is called; shown to the user.
            function: writes into the folder, each file whole or not at all; may run again. Its
                result, which JSON must be able to hold, is remembered.
        """
        if name not in self.results:
            print(f"{name} ...", file=sys.stderr, flush=True)
            self.results[name] = json.loads(json.dumps(function(*args)))
            self._save()
        return self.results[name]

    def finish(self, leave_out: Sequence[str] = ()) -> None:
        """Remove the folders named in `leave_out`, and give the folder its name."""
        for name in leave_out:
            shutil.rmtree(self.folder / name, ignore_errors=True)
        self._save()
        (self.folder / LOCK).unlink()
        os.replace(self.folder, self.destination)
        self.finished = True

    def _is_finished(self) -> bool:
        if not self.destination.exists():
            return False
        if self.destination.is_dir() and not any(self.destination.iterdir()):
            return False
        stored = _read(self.destination / FILE)
        if not stored:
            raise ConfigurationError(
                f"{self.destination} exists and was not made by this command (it has no sound "
                f"{FILE}): choose another folder"
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
        return True

    def _save(self) -> None:
        with written_whole(self.folder / FILE) as file:
            json.dump({"settings": self.settings, "results": self.results}, file, indent=2)
            file.write("\n")


def _read(path: Path) -> Dict[str, Any]:
    """What `_save` wrote; nothing if it is missing or, after a power cut, damaged."""
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        return {name: dict(stored[name]) for name in ("settings", "results")}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
