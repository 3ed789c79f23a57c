"""Parts of other packages: `--user-dir` of fairseq, for the commands and classes of this one."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.options.arguments import add_path

UserDirs = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def add_user_dir(parser: Any) -> None:
    """Add the option; its value is a list of folders."""
    text = "import your own parts, models and tasks from this folder, as fairseq does; repeatable"
    add_path(parser, "--user-dir", "DIR", text, action="append", default=[])


def import_user_dirs(folders: UserDirs) -> None:
    """Import folders as fairseq does, each once. No path that a checkpoint stores is imported.

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
