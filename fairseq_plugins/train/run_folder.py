"""The folder of a training (--save-dir): the files beside the checkpoints.

Nothing here needs torch or fairseq.
"""

import platform
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, Any

from fairseq_plugins.errors import ConfigurationError, flag
from fairseq_plugins.files import alone_in, read_json, write_json

# stored with the settings: how processes share the batch; the precision, which may have been chosen
# automatically; and whether a GPU captures the steps
SHARING, PRECISION, CAPTURED = "batch_of_a_process", "precision", "captured_steps"
TOKENS = "tokens_of_the_data"
# stored as the total per update, as any number of processes may share it
PER_UPDATE = {name: f"{flag(name)} x --update-freq" for name in ("max_tokens", "batch_size")}
# Options that determine when a training ends.
END = ("max_update", "max_epoch", "stop_time_hours", "stop_min_lr", "patience")


class Run:
    """The folder of a training; it need not exist yet.

    Args:
        folder: the --save-dir.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self._settings, self._finished = folder / "settings.json", folder / "finished"

    def checkpoints(self) -> list[Path]:
        """All checkpoint files."""
        return list(self.folder.glob("checkpoint*.pt"))

    def log(self, nodes: int = 1) -> Path:
        """The log of the training; each of several machines has its own."""
        return self.folder / ("train.log" if nodes == 1 else f"train.{platform.node()}.log")

    def lock(self, work: str, patience: float | None = None) -> AbstractContextManager[IO[str]]:
        """Work here alone; see `files.alone_in`."""
        return alone_in(self.folder, work, patience)

    def check_same(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Refuse to resume with settings that differ from those of the folder's checkpoints.

        SHARING and CAPTURED are not compared, nor options that only one side has, as with another
        fairseq version.

        Returns:
            The settings of the checkpoints; empty if there are no checkpoints.

        Raises:
            ConfigurationError: the settings differ, or those of the checkpoints are unknown.
        """
        if not self.checkpoints():
            return {}
        if not self._settings.exists():
            raise ConfigurationError(
                f"--save-dir {self.folder} has checkpoints but no settings of a recipe: choose "
                "another folder"
            )
        stored = read_json(self._settings)
        if not isinstance(stored, dict):
            raise ConfigurationError(
                f"{self._settings} is damaged, so the settings of the checkpoints beside it are "
                "unknown: restore it, or choose another --save-dir"
            )
        changed = sorted(
            name
            for name in settings.keys() & stored
            if settings[name] != stored[name] and name not in (SHARING, CAPTURED)
        )
        if changed:
            name = changed[0]
            what = (
                "other data"
                if name in ("data", TOKENS)
                else f"other settings ({PER_UPDATE.get(name, flag(name))} was {stored[name]}, "
                f"is {settings[name]}" + (f"; {len(changed) - 1} more" if changed[1:] else "") + ")"
            )
            raise ConfigurationError(
                f"--save-dir {self.folder} holds a training with {what}: choose another folder, or "
                "remove it to start over"
            )
        return stored

    def stored(self, name: str) -> str | None:
        """A setting of the checkpoints; None if there are no checkpoints, or it is unknown."""
        stored = read_json(self._settings) if self.checkpoints() else None
        return stored.get(name) if isinstance(stored, dict) else None

    def store(self, settings: dict[str, Any]) -> None:
        """Write the settings beside the checkpoints."""
        write_json(self._settings, dict(sorted(settings.items())))

    def mark_finished(self, end: dict[str, Any]) -> None:
        """Record that the training reached this end."""
        write_json(self._finished, end)

    def mark_unfinished(self) -> None:
        """Forget the end that the training reached, because it continues."""
        self._finished.unlink(missing_ok=True)

    def reached(self, end: dict[str, Any]) -> bool:
        """Whether an earlier run reached at least this end; a damaged record does not count."""
        before = read_json(self._finished)
        if not isinstance(before, dict) or set(before) != set(END):
            return False
        further = 0 < end["max_update"] <= before["max_update"]
        return before == end or (further and {**before, "max_update": end["max_update"]} == end)
