"""The folder that a prepare-* command made: its record, and the dictionaries in it."""

import hashlib
from pathlib import Path
from typing import Any, Dict, List, Mapping

from fairseq_plugins.json_files import read_json

RECORD = "preparation.json"  # the settings, what each step counted, and the sizes of files


def stored_settings(folder: Path) -> Dict[str, Any]:
    """The settings in a folder's record; empty if this package did not prepare the folder."""
    record = read_json(Path(folder) / RECORD)
    found = record.get("settings") if isinstance(record, dict) else None
    return found if isinstance(found, dict) else {}


def is_for_summarization(settings: Dict[str, Any]) -> bool:
    """Whether these are settings of documents and summaries: only they have a sentence boundary."""
    return "boundary" in settings


def dictionaries(folder: Path) -> List[Path]:
    """The dictionaries in a prepared folder: those of languages, or of texts and labels."""
    places = ("dict.*.txt", "input0/dict.txt", "label/dict.txt")
    return sorted(path for place in places for path in folder.glob(place))


def digests_of_words(folder: Path) -> Dict[str, str]:
    """The SHA-256 of the words of each dictionary in a prepared folder, without their counts.

    Raises:
        OSError, UnicodeDecodeError: a dictionary cannot be read.
    """
    found = {}
    for dictionary in dictionaries(folder):
        lines = dictionary.read_text(encoding="utf-8").split("\n")
        words = "\n".join(line.rpartition(" ")[0] for line in lines)
        name = dictionary.relative_to(folder).as_posix()
        found[name] = hashlib.sha256(words.encode("utf-8")).hexdigest()
    return found


def differing(known: Mapping[str, str], here: Mapping[str, str]) -> List[str]:
    """The dictionaries that both have, with different words; see `digests_of_words`."""
    return [name for name, digest in here.items() if known.get(name, digest) != digest]
