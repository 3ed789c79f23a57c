"""A folder built step by step: a killed run goes on at the step it was in, and the folder gets its
name only when all is done.
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


class Preparation:
    """A folder in the making, `destination` with ".part" at its end.

    As a context manager it lets go of the folder at the end, for another run to go on.

    Args:
        destination: the folder that will be there in the end.
        settings: all that the result depends on. What was done with other settings is not used.
        keep: names in the folder that do not depend on the settings, such as downloads.

    Raises:
        ConfigurationError: `destination` is something else, or was made with other settings, or
            another process is making it.
    """

    def __init__(self, destination: Path, settings: Dict[str, Any], keep: Sequence[str] = ()):
        self.destination = Path(destination)
        self.folder = self.destination.with_name(self.destination.name + ".part")
        self.settings = json.loads(json.dumps(settings))
        self.results: Dict[str, Any] = {}
        self._lock: Optional[IO[str]] = None
        self.finished = self._is_finished()
        if self.finished:
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = open(self.folder / "lock", "w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise ConfigurationError(
                "another process is preparing {}".format(self.folder)
            ) from None
        stored = _read(self.folder / FILE)
        if stored.get("settings") == self.settings:
            self.results = stored["results"]
        else:
            self._clear(keep)

    def __enter__(self) -> "Preparation":
        return self

    def __exit__(self, *error: Any) -> None:
        if self._lock is not None:
            self._lock.close()

    def step(self, name: str, function: Callable[..., Any], *args: Any) -> Any:
        """Do `function(*args)` unless an earlier run has done it.

        Args:
            name: what the step is called; told to the user.
            function: writes into the folder, each file whole or not at all; may run again. Returns
                what is to be remembered of it, as JSON can hold it.
        """
        if name not in self.results:
            print("{} ...".format(name), file=sys.stderr, flush=True)
            self.results[name] = json.loads(json.dumps(function(*args)))
            self._save()
        return self.results[name]

    def finish(self, leave_out: Sequence[str] = ()) -> None:
        """Remove the folders named in `leave_out`, and give the folder its name."""
        for name in leave_out:
            shutil.rmtree(self.folder / name, ignore_errors=True)
        self._save()
        (self.folder / "lock").unlink()
        os.replace(self.folder, self.destination)
        self.finished = True

    def _is_finished(self) -> bool:
        if not self.destination.exists():
            return False
        if self.destination.is_dir() and not any(self.destination.iterdir()):
            return False
        stored = _read(self.destination / FILE)
        if "settings" not in stored:
            raise ConfigurationError(
                "{} exists and was not made by this script: choose another folder".format(
                    self.destination
                )
            )
        self.results = stored["results"]
        for name in sorted(set(stored["settings"]) | set(self.settings)):
            before, now = stored["settings"].get(name), self.settings.get(name)
            if before != now:
                raise ConfigurationError(
                    "{} was prepared with other settings ({} was {}, not {}): choose another "
                    "folder, or remove it".format(
                        self.destination,
                        name.replace("_", " "),
                        json.dumps(before),
                        json.dumps(now),
                    )
                )
        return True

    def _save(self) -> None:
        with written_whole(self.folder / FILE) as file:
            json.dump({"settings": self.settings, "results": self.results}, file, indent=2)
            file.write("\n")

    def _clear(self, keep: Sequence[str]) -> None:
        for path in self.folder.iterdir():
            if path.name in keep or path.name == "lock":
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def _read(path: Path) -> Dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConfigurationError("{} cannot be read: {}".format(path, error)) from None
