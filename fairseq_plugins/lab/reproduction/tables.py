"""The tables that `reproduce` can measure, by their names: files in `lab/tables`."""

from functools import cache
from pathlib import Path

from fairseq_plugins.train.sweep_table import Table, read_table

LAB = Path(__file__).resolve().parent.parent
RECIPES = LAB / "recipes"  # those that only the laboratory uses
FILES = {path.stem: path for path in sorted((LAB / "tables").glob("*.yaml"))}


@cache
def table_of(name: str) -> Table:
    """The table of a name."""
    return read_table(FILES[name])
