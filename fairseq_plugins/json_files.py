"""Read and write JSON files."""

import json
import os
import tempfile
from pathlib import Path
from typing import Any


def read_json(path: Path) -> Any:
    """The content of a JSON file; None if it is missing or damaged."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


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
