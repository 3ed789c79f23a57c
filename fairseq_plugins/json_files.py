"""Read and write JSON files."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any, Dict, Optional

from fairseq_plugins.errors import ConfigurationError, flag


def read_json(path: Path) -> Any:
    """The content of a JSON file; None if it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def json_object(option: str, text: Optional[str]) -> Dict[str, Any]:
    """The value of an option that is a JSON object; an empty one for no text.

    Raises:
        ConfigurationError: the text is something else.
    """
    try:
        parsed = json.loads(text or "{}")
    except ValueError:
        parsed = None
    if not isinstance(parsed, dict):
        raise ConfigurationError(
            f"{flag(option)} '{text}' is not a JSON object: write it as '{{\"name\": value}}'"
        )
    return parsed


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file atomically; several machines may write it at once."""
    handle, temporary = tempfile.mkstemp(prefix=path.name, suffix=".part", dir=str(path.parent))
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(value, file, indent=1, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())  # otherwise a power cut could leave an empty file with this name
    os.chmod(temporary, 0o644)
    os.replace(temporary, str(path))
