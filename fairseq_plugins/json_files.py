"""Read and write JSON files."""

import json
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import ConfigurationError, flag
from fairseq_plugins.files import written_whole


def read_json(path: Path) -> Any:
    """The content of a JSON file; None if it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):  # deep nesting
        return None


def json_object(option: str, text: str | None) -> dict[str, Any]:
    """The value of an option that is a JSON object; empty for an empty text.

    Raises:
        ConfigurationError: the text is not a JSON object.
    """
    try:
        parsed = json.loads(text or "{}")
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise ConfigurationError(
            f"{flag(option)} '{text}' is not a JSON object: write it as '{{\"name\": value}}'"
        )
    return parsed


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically; several machines may write it at once.

    Paths that are not UTF-8 come back from `read_json` as they were.
    """
    with written_whole(path, errors="backslashreplace") as file:  # which JSON reads as "\\udcff"
        json.dump(value, file, indent=1, ensure_ascii=False)
        file.write("\n")
