"""Bundled models: folders that `export` wrote, each with a `CARD.md`, found by name."""

import os
from pathlib import Path

from fairseq_plugins.errors import ConfigurationError, did_you_mean

FOLDER = Path(__file__).resolve().parent
ADVICE = "give the folder of a training, a checkpoint, or an exported folder"
CONFIG = "config.json"  # of an export
CHECKPOINTS = ("checkpoint_best.pt", "checkpoint_last.pt")


def names() -> list[str]:
    """The names of the models."""
    return sorted(path.parent.name for path in FOLDER.glob(f"*/{CONFIG}"))


def is_export(path: Path) -> bool:
    """Whether a folder was written by `export`: `CONFIG` is there, and no checkpoint."""
    return (Path(path) / CONFIG).is_file() and not any(Path(path).glob("*.pt"))


def find(model: str | Path, option: str = "--model") -> Path:
    """The path of a model, which may be a name; a path that exists is preferred.

    Args:
        model: the path or name.
        option: the name of this argument for the user.

    Raises:
        ConfigurationError: there is neither.
    """
    if not isinstance(model, (str, os.PathLike)):
        kind = type(model).__name__
        raise ConfigurationError(f"{option} {model!r} is of type {kind}: {ADVICE}")
    if os.path.exists(model):  # False for a name that no file can have
        return Path(model)
    if str(model) in names():
        return FOLDER / model
    near = did_you_mean(model, names(), ADVICE)
    raise ConfigurationError(f"{option} {model} does not exist: {near}")


def find_checkpoint(path: str | Path, option: str = "--model", hint: str | None = None) -> Path:
    """A checkpoint file, or the checkpoint of a folder: the best one, otherwise the last one.

    Args:
        path: the file or folder.
        option: the user's name for this argument.
        hint: what the user can give; None for any model.

    Raises:
        ConfigurationError: the checkpoint does not exist.
    """
    path = Path(path)
    if path.is_file():
        return path
    for name in CHECKPOINTS:
        if (path / name).is_file():
            return path / name
    reason = f"has neither {' nor '.join(CHECKPOINTS)}" if path.is_dir() else "does not exist"
    raise ConfigurationError(f"{option} {path} {reason}: {hint or ADVICE}")
