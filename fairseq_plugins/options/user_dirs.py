"""Parts of other packages: fairseq's `--user-dir`, `user_dir` in YAML files, and entry points.

Only what the user names or installs is imported, never a path that a checkpoint stores.
"""

import argparse
import os
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from fairseq_plugins.errors import ConfigurationError, first_cause

GROUP = "fairseq_plugins.parts"  # of the entry points of installed packages

UserDirs = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def import_user_dirs(folders: UserDirs) -> None:
    """Import folders as fairseq does, each once.

    Args:
        folders: one or several. Call `register` before, and build parsers and models afterwards.

    Raises:
        ConfigurationError: a folder does not exist or cannot be imported.
    """
    from fairseq import utils

    for folder in [folders] if isinstance(folders, (str, os.PathLike)) else folders:
        if not Path(folder).is_dir():
            raise ConfigurationError(f"--user-dir {folder}: no such folder")
        try:
            utils.import_user_module(argparse.Namespace(user_dir=str(folder)))
        except ImportError as error:
            raise ConfigurationError(f"--user-dir {folder}: {error}") from error


def import_installed_parts() -> None:
    """Import what installed packages name in entry points of the group `GROUP`.

    Raises:
        ConfigurationError: it cannot be imported.
    """
    for each in metadata.entry_points(group=GROUP):
        try:
            each.load()
        except Exception as error:  # whatever another package raises
            package = each.dist.name if each.dist else each.value
            raise ConfigurationError(
                f"{package}: its entry point {each.name} of {GROUP} cannot be imported: "
                f"{first_cause(error)}: repair or uninstall the package"
            ) from error


def user_dirs_of(files: Sequence[Path], given: Sequence[Path]) -> list[Path]:
    """The folders that recipes and settings name as `user_dir`, and those of the option.

    Args:
        files: YAML files, in whose group `common` fairseq has `user_dir`.
        given: the value of the option.
    """
    from fairseq_plugins.options import recipes  # yaml is slow

    named = recipes.merge(files).get("user_dir") or []
    if isinstance(named, tuple):  # the words of a file that is not YAML
        named = [word.removeprefix("--user-dir=") for word in named if word != "--user-dir"]
    return list(dict.fromkeys([*map(Path, named if isinstance(named, list) else [named]), *given]))
