"""What a user asks of `reproduce`: rows, seeds and options."""

import difflib
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.lab.reproduction.tables import Row, Table
from fairseq_plugins.train import recipes

RECIPES = Path(__file__).resolve().parent.parent / "recipes"  # those that only the laboratory uses
BATCHES = 8  # of each row at most, that are timed
# options that a user may not give, besides those of a table's rows: they decide what the rows are,
# or the runs set or read them
FIXED = (
    "--arch -a --encoder-blocks --time-window --feature-window --time-pooling --feature-pooling "
    "--encoder-token-mixer --encoder-ffn --decoder-ffn --log-format --log-file --seed --cpu"
).split()


class ReproductionRequest(NamedTuple):
    """The table to reproduce, and the options of the reproduction."""

    table: str  # of `TABLES`
    data: Path
    out: Path
    rows: Sequence[str] = ()  # names; none for all
    seeds: Sequence[int] = ()  # none for those of the table
    reduced: bool = False  # the table's size for two CPU cores
    settings: Sequence[Path] = ()
    words: Sequence[str] = ()  # more options for fairseq-train
    max_update: int | None = None
    minutes: float | None = None  # time limit of this call
    parallel: int = 1
    processes: int = 1  # that share each training
    average: int | None = None  # None for the table's
    generate: Sequence[str] = ()  # more options for fairseq-generate
    interleaved: bool = True
    time_rounds: int = 5
    timing_skip: int = 100
    threads: int = 1  # of each process
    precision: str | None = None  # None for the table's
    cpu: bool = False


def find_recipe(name: str) -> Path:
    """The recipe of a row: the laboratory's, or the package's.

    Raises:
        ConfigurationError: there is none.
    """
    return recipes.find(name, [RECIPES])


def settings_of(name: str) -> list[Path]:
    """Where the settings of a recipe are found by name, the laboratory's first."""
    return [RECIPES, *recipes.folders(find_recipe(name))]


def choose_rows(table: Table, names: Sequence[str]) -> list[Row]:
    """The rows with these names, in the order of the table.

    A word may be a comma-separated list, or the name of a row that has a comma.

    Raises:
        ConfigurationError: the table has no row of that name.
    """
    known = {row.name: row for row in table.rows}
    split = [[name] if name in known else name.split(",") for name in names]
    wanted = [word for words in split for word in words if word] or list(known)
    for name in wanted:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=3) or list(known)
            raise ConfigurationError(f"--rows {name} is not a row: nearest are {', '.join(close)}")
    return [row for row in table.rows if row.name in wanted]


def choose_runs(table: Table, names: Sequence[str], seeds: Sequence[int]) -> list[tuple[Row, int]]:
    """Rows and seeds in training order.

    Without `seeds` the table sets the order, if it has one; rows that it does not list come last,
    with seed 1. Otherwise all rows of a seed come before the next seed, so that a complete table is
    available early.
    """
    rows = {row.name: row for row in choose_rows(table, names)}
    if table.runs and not seeds:
        others = [(name, 1) for name in rows if name not in dict(table.runs)]
        return [(rows[name], seed) for name, seed in [*table.runs, *others] if name in rows]
    return [(row, seed) for seed in seeds or table.seeds for row in rows.values()]


def refuse_fixed(table: Table, words: Iterable[str], where: str) -> None:
    """Raise a ConfigurationError if the words contain an option that the rows or runs fix."""
    rows = " ".join(row.last_words for row in table.rows)
    fixed = {*FIXED, *table.fixed, *(word for word in shlex.split(rows) if word[:2] == "--")}
    for word in words:
        option = word.split("=")[0]
        if option in fixed:
            instead = {"--seed": "use --seeds", "--cpu": "put --cpu before --"}
            raise ConfigurationError(f"{option} in {where}: " + instead.get(option, "rows set it"))
