"""Reuse the subword model and the dictionaries of another prepared folder (`--like`)."""

import argparse
from pathlib import Path
from typing import Any, Dict, List, Sequence

from fairseq_plugins.errors import ConfigurationError, flag
from fairseq_plugins.files import write_bytes
from fairseq_plugins.prepared_folder import stored_settings


def take_settings(
    folder: Path, names: Sequence[str], args: argparse.Namespace, parser: argparse.ArgumentParser
) -> Dict[str, Any]:
    """The settings of a prepared folder with these names.

    Args:
        folder: the prepared folder.
        names: the settings; the folder may lack some.
        args: the options that were given.
        parser: of these options.

    Raises:
        ConfigurationError: an option was given that the folder has otherwise.
    """
    stored = stored_settings(folder)
    taken = {name: stored[name] for name in names if name in stored}
    for name, value in taken.items():
        given = getattr(args, name, None)
        if given not in (parser.get_default(name), value):
            raise ConfigurationError(
                f"{flag(name)} {given}: --like {folder} has {value}: leave it out"
            )
    return taken


def vocabulary_files(folder: Path, kind: Any, languages: Sequence[str]) -> List[Path]:
    """The subword model of a prepared folder, and its dictionaries.

    Args:
        folder: the prepared folder.
        kind: the class of the subword model, one of `subwords.KINDS`.
        languages: the names of the dictionaries, such as source and target.

    Raises:
        ConfigurationError: one is missing.
    """
    names = [kind.file_name, *(f"dict.{language}.txt" for language in languages)]
    for name in names:
        if not (folder / name).is_file():
            raise ConfigurationError(
                f"--like {folder} has no {name}: name a folder that was prepared by the same "
                "command, for the same languages"
            )
    return [folder / name for name in names]


def copy_model(kind: Any, source: Path, model: Path) -> int:
    """Copy a subword model; returns the number of its merges or pieces."""
    write_bytes(model, source.read_bytes())
    return len(kind(model))
