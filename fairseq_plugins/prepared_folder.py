"""The folder that a prepare-* command made: its record, and the dictionaries in it."""

from pathlib import Path
from typing import Any, Dict, List

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
