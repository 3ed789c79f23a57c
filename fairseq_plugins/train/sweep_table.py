"""A table of trainings: rows that differ in a few options, each with several seeds, in YAML.

title: Windows of TransformerFTC
recipe: transformer_ftc          # of all rows; a row may have its own
options: --dropout 0.2           # for fairseq-train, of all rows
settings: [reduced_cpu]          # recipes' settings, or files, of all rows
seeds: [1, 2, 3]
rows:                            # the others are compared with the first one
  transformer: {recipe: transformer}
  ftc:
  window-4: --time-window 4
grid:                            # all combinations become rows, too
  --feature-window: [2, 4]
  --feature-pooling: [mean, linear]
"""

import itertools
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_plugins.errors import ConfigurationError, check_known
from fairseq_plugins.options import recipes
from fairseq_plugins.train.sweep_request import arguments_in


class Row(NamedTuple):
    """A row of a table, with its recipe and options.

    Args:
        name: for `--rows`, and of the folders of its runs.
        recipe: a recipe's name or file.
        options: for fairseq-train, besides those of all rows.
        labels: its cells in the columns of the table.
        reduced: replaces `options` with `--reduced`, if given.
        begins: name of the `first_data` on which the model is trained first, with `options`.
            Training on the table's data then starts from only the parameters.
        then: more settings for the table's data, after `begins`.
        then_options: more options for the table's data, after `options`; later ones win.
        paper: published figures: `scores` per metric, their `deviations`, `epoch_seconds`.
        against: the row that the paper compares it with.
        claim: "higher", "lower" or "not lower" than that row, where a paper has no figures.
    """

    name: str
    recipe: str
    options: str = ""
    labels: Sequence[str] = ()
    reduced: str | None = None
    begins: str = ""
    then: str = ""
    then_options: str = ""
    paper: Mapping[str, Any] | None = None
    against: str = "transformer"
    claim: str = ""

    @property
    def last_options(self) -> str:
        """The options of the training that is tested."""
        return f"{self.options} {self.then_options}".strip()


class Table(NamedTuple):
    """Rows with the same settings for training and testing.

    Args:
        title: of the table.
        rows: what is run.
        columns: titles of the rows' labels.
        metrics: (score of `evaluate`, title) of what is shown; the first is compared and plotted.
            Without them all scores are shown.
        options: for fairseq-train, of all rows.
        settings: files or names of settings for all rows.
        reduced: more of them, for `--reduced`: a size for two CPU cores.
        generate: files or names of settings of generation, for `evaluate`.
        reduced_generate: the same, for `--reduced`.
        precision: of training, as for `train`.
        average: test the average of this many last checkpoints; 0 for the best checkpoint.
        seeds: of each row.
        runs: (row, seed) pairs in training order, instead of `seeds`.
        seeds_of_paper: runs behind each published figure; 0 if unknown.
        data_of_paper: size of the paper's data.
        cited: rows that the paper quotes, with `labels` and `scores`.
        by_pairs: published scores by the number of training pairs: `source`, `metric`, `points`.
        fixed: options that the user may not give, besides those of the rows.
        remarks: what else a reader must know.
    """

    title: str
    rows: Sequence[Row]
    columns: Sequence[str] = ("row",)
    metrics: Sequence[Sequence[str]] = ()
    options: str = ""
    settings: Sequence[str] = ()
    reduced: Sequence[str] = ("reduced_cpu",)
    generate: Sequence[str] = ()
    reduced_generate: Sequence[str] = ()
    precision: str = "auto"
    average: int = 0
    seeds: Sequence[int] = (1,)
    runs: Sequence[Sequence[Any]] = ()
    seeds_of_paper: int = 0
    data_of_paper: Mapping[str, Any] = {}
    cited: Sequence[Mapping[str, Any]] = ()
    by_pairs: Mapping[str, Any] | None = None
    fixed: Sequence[str] = ()
    remarks: Sequence[str] = ()

    def reduce(self) -> "Table":
        """The table for `--reduced`."""
        return self._replace(
            rows=[
                row if row.reduced is None else row._replace(options=row.reduced)
                for row in self.rows
            ],
            settings=[*self.settings, *self.reduced],
            generate=self.reduced_generate,
            average=0,  # so few updates leave too few checkpoints
            remarks=[
                *self.remarks,
                "Reduced setting: all rows alike, small models and few updates.",
            ],
        )

    def choose_rows(self, names: Sequence[str]) -> list[Row]:
        """The rows with these names, in the order of the table; all of them without names.

        Raises:
            ConfigurationError: the table has no row of that name.
        """
        known = {row.name: row for row in self.rows}
        wanted = names or list(known)
        check_known(wanted, known, "--rows ", "is not a row", f"rows are {', '.join(known)}")
        return [row for row in self.rows if row.name in wanted]

    def choose_runs(self, names: Sequence[str], seeds: Sequence[int]) -> list[tuple[Row, int]]:
        """Rows and seeds in training order.

        Without `seeds` the table sets the order, if it has one; rows that it does not list come
        last, with seed 1. Otherwise all rows of a seed come before the next seed, so that a
        complete table is available early.
        """
        rows = {row.name: row for row in self.choose_rows(names)}
        if self.runs and not seeds:
            listed = [(name, seed) for name, seed in self.runs if name in rows]
            others = [(name, 1) for name in rows if name not in dict(listed)]
            return [(rows[name], seed) for name, seed in [*listed, *others]]
        return [(row, seed) for seed in seeds or self.seeds for row in rows.values()]


KINDS = {str: "text", int: "a whole number", bool: "true or false", list: "a list"}


def read_table(path: Path) -> Table:
    """Read a table.

    Raises:
        ConfigurationError: the file cannot be read, or is no table.
    """
    content = recipes.read_yaml(path)
    if not isinstance(content, dict):
        raise ConfigurationError(f"{path}: give `recipe`, and `rows` or `grid`")
    recipe, grid = content.pop("recipe", None), content.pop("grid", {})
    rows = content.pop("rows", None) or {}
    _check_fields(f"{path}: ", Table, content, ["recipe", "grid"])
    if not isinstance(rows, dict) or not isinstance(grid, dict) or not (rows or grid):
        raise ConfigurationError(f"{path}: give `rows`, by their names, or `grid`, by options")
    for option, values in grid.items():
        if not isinstance(values, list) or not values:
            raise ConfigurationError(f"{path}: grid {option}: give a list of values")
    combined = itertools.product(*grid.values()) if grid else ()
    for values in combined:
        pairs = list(zip(grid, map(str, values)))
        name = ",".join(f"{option.lstrip('-')}={value}" for option, value in pairs)
        rows[name] = {"options": shlex.join(word for pair in pairs for word in pair)}
    all_rows = [_row(path, str(name), row, recipe) for name, row in rows.items()]
    content.setdefault("title", path.stem)
    if not content.get("seeds", [1]):
        raise ConfigurationError(f"{path}: seeds []: give one or more")
    return Table(rows=all_rows, **content)


def _row(path: Path, name: str, given: Any, recipe: Any) -> Row:
    if not re.fullmatch(r"[\w+][\w.,=+-]*", name):
        raise ConfigurationError(
            f"{path}: row {name!r}: the name becomes a folder: give letters, digits and . , = + -"
        )
    own: Any = {"options": given or ""} if given is None or isinstance(given, str) else given
    if not isinstance(own, dict):
        raise ConfigurationError(f"{path}: row {name}: give its options, or its fields")
    fields: Any = {"recipe": recipe, "labels": [name], **own}
    if not fields["recipe"]:
        raise ConfigurationError(f"{path}: row {name} has no `recipe`, nor has the table")
    _check_fields(f"{path}: row {name}: ", Row, fields)
    return Row(name, **fields)


def _check_fields(where: str, kind: Any, given: dict[str, Any], more: Sequence[str] = ()) -> None:
    """Raise a ConfigurationError for a field that is unknown, or not of the type of its default."""
    known = [name for name in (*kind._fields, *more) if name != "name"]
    check_known(given, known, where, "is unknown", f"known are {', '.join(known)}")
    for name, value in given.items():
        default = kind._field_defaults.get(name, "")
        wanted = list if isinstance(default, tuple) else type(default)
        if wanted in KINDS and not isinstance(value, wanted):
            raise ConfigurationError(f"{where}{name} {value!r}: give {KINDS[wanted]}")
        words = arguments_in(f"{where}{name}", value) if name.endswith("options") else ()
        if "--seed" in words:
            raise ConfigurationError(f"{where}{name}: --seed: give `seeds` to the table")
