"""The folder of a training (--save-dir): the files beside the checkpoints.

Nothing here needs torch or fairseq.
"""

import platform
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import ConfigurationError, flag
from fairseq_plugins.files import read_json, write_json

# stored with the settings: how processes share the batch; the precision, which may have been chosen
# automatically; and whether a GPU captures the steps
SHARING, PRECISION, CAPTURED = "batch_of_a_process", "precision", "captured_steps"
REACHED = "reached"  # the end of a finished training, stored with its settings
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
        self._settings = folder / "settings.json"

    def checkpoints(self) -> list[Path]:
        """All checkpoint files."""
        return list(self.folder.glob("checkpoint*.pt"))

    def log(self, nodes: int = 1) -> Path:
        """The log of the training; each of several machines has its own."""
        return self.folder / ("train.log" if nodes == 1 else f"train.{platform.node()}.log")

    def check_same(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Refuse to resume with settings that differ from those of the folder's checkpoints.

        SHARING and CAPTURED are not compared, nor options that only one side has, as with another
        fairseq version.

        Returns:
            The settings of the checkpoints; empty if there are no checkpoints.

        Raises:
            ConfigurationError: the settings differ, or those of the checkpoints are unknown.
        """
        stored = self.stored()
        if self.checkpoints() and not stored:
            if self._settings.exists():
                raise ConfigurationError(
                    f"{self._settings} is damaged, so the settings of the checkpoints beside it "
                    "are unknown: restore it, or choose another --save-dir"
                )
            raise ConfigurationError(
                f"--save-dir {self.folder} has checkpoints but no settings of a recipe: choose "
                "another folder"
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
                if name == "data"
                else f"other settings ({PER_UPDATE.get(name, flag(name))} was {stored[name]}, "
                f"is {settings[name]}" + (f"; {len(changed) - 1} more" if changed[1:] else "") + ")"
            )
            raise ConfigurationError(
                f"--save-dir {self.folder} holds a training with {what}: choose another folder, or "
                "remove it to start over"
            )
        return stored

    def stored(self) -> dict[str, Any]:
        """The settings of the checkpoints; empty if there are none, or if they are unknown."""
        stored = read_json(self._settings) if self.checkpoints() else None
        return stored if isinstance(stored, dict) else {}

    def store(self, settings: dict[str, Any], reached: dict[str, Any] | None = None) -> None:
        """Write the settings beside the checkpoints, and the end that the training reached."""
        write_json(self._settings, {**dict(sorted(settings.items())), REACHED: reached})

    def reached(self, end: dict[str, Any]) -> bool:
        """Whether an earlier run reached at least this end."""
        before = self.stored().get(REACHED)
        if before is None:
            return False
        further = 0 < end["max_update"] <= before["max_update"]
        return before == end or (further and {**before, "max_update": end["max_update"]} == end)
