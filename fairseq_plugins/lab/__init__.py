"""The laboratory: measurements, the tables of papers, synthetic corpora, baselines, runs on a GPU.

Training and serving do not need it, and nothing outside this package imports it. Its commands
are in `commands/`.

As fairseq's `--user-dir` it registers the plugin, and then the laboratory's own parts, which
`PARTS` names.
"""

import importlib
import sys
from pathlib import Path

NAME = "fairseq_plugins.lab"
PARTS = ["pair_classifier"]
PARTS += [f"recommendation.{each}" for each in ("criterion", "model", "task", "test_set")]


def register() -> None:
    """Make the plugin and the laboratory's own parts known to fairseq."""
    importlib.import_module("fairseq_plugins").register()
    for part in PARTS:
        importlib.import_module(f"{NAME}.{part}")


if __name__ != NAME:  # imported as a --user-dir, by the folder's name and from the folder above it
    above = Path(__file__).parent.parent
    sys.path[:] = [str(above.parent) if path == str(above) else path for path in sys.path]
    importlib.import_module(NAME).register()
