"""Reuse the subword model and the dictionaries of another prepared folder (`--like`)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.data.prepared_folder import Prepared
from fairseq_plugins.errors import ConfigurationError, flag
from fairseq_plugins.files import digest
from fairseq_plugins.text.subwords import KINDS


def settings_like(
    folder: Path | None, languages: Sequence[str], names: Sequence[str], given: dict[str, Any]
) -> dict[str, Any]:
    """The settings of a preparation with the subword model and the dictionaries of `folder`.

    Args:
        folder: the prepared folder; without one there are no settings.
        languages: the names of the dictionaries, such as source and target.
        names: the settings; the folder may lack some.
        given: options that the user gave; flags that were given are True.

    Raises:
        ConfigurationError: the folder was not prepared by this package, a file is missing, it has
            other languages, or an option differs from the folder's.
    """
    if folder is None:
        return {}
    prepared = Prepared(folder)
    if set(prepared.languages) != set(languages):
        raise ConfigurationError(
            f"--like {folder} was prepared for {' and '.join(prepared.languages)}: give a folder "
            f"of {' and '.join(languages)}"
        )
    model = KINDS[prepared.processing.subword].file_name
    files = [folder / name for name in (model, *(f"dict.{lang}.txt" for lang in languages))]
    for path in files:
        if not path.is_file():
            raise ConfigurationError(f"--like {folder} has no {path.name}: give a folder with it")
    taken = {name: prepared.settings[name] for name in names if name in prepared.settings}
    for name, value in taken.items():
        if given.get(name, value) == value:
            continue
        if isinstance(given[name], bool):
            ours, theirs = flag(name), "without it"
            if not given[name]:
                ours, theirs = flag(f"no-{name}"), f"with {ours}"
            raise ConfigurationError(f"{ours}: --like {folder} was prepared {theirs}: remove it")
        raise ConfigurationError(
            f"{flag(name)} {given[name]}: --like {folder} has {value}: remove it"
        )
    return {**taken, "like": [digest(path) for path in files]}
