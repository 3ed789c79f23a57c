"""Several tables of `reproduce` with the same rows as the columns of one, with their mean."""

import statistics
from collections.abc import Sequence
from typing import Any

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.system.markdown import table
from fairseq_plugins.train.sweep_report import scores


def joined(tables: Sequence[dict[str, Any]]) -> str:
    """The first metric of each table in Markdown: the mean of the seeds, and the paper's figure.

    The last column is the mean of the others, where a row has all of them.

    Args:
        tables: the contents of results.json of each.

    Raises:
        ConfigurationError: the tables have other rows than the first.
    """
    rows = [row["name"] for row in tables[0]["rows"]]
    for other in tables[1:]:
        if [row["name"] for row in other["rows"]] != rows:
            raise ConfigurationError(
                f"{other['table']} has other rows than {tables[0]['table']}: join tables of one "
                "paper that have the same"
            )
    titles = [t["title"].rpartition(", ")[2] for t in tables]
    titles = [title + ", reduced" * t["reduced"] for title, t in zip(titles, tables)]
    lines = []
    for each in zip(*(t["rows"] for t in tables)):
        values = [scores(row, t["metrics"][0]) for row, t in zip(each, tables)]
        here: list[float | None] = [statistics.mean(v) if v else None for v in values]
        paper = [row["paper"]["scores"][0] if row["paper"] else None for row in each]
        cells = map(_cell, [*here, _mean(here)], [*paper, _mean(paper)])
        lines.append([*each[0]["labels"], *cells])
    seeds = sorted({run["seed"] for t in tables for row in t["rows"] for run in row["runs"]})
    titles_of_all = [*tables[0]["columns"], *titles, f"mean of {len(tables)}"]
    notes = ["", f"{tables[0]['metrics'][0]} here (in the paper); seeds {seeds}. Data:"]
    notes += [f"- {title}: {t['data']['name']}" for title, t in zip(titles, tables)]
    return "\n".join([*table(titles_of_all, lines), *notes]) + "\n"


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean; None unless all are known."""
    known = [value for value in values if value is not None]
    return statistics.mean(known) if len(known) == len(values) else None


def _cell(here: float | None, paper: float | None) -> str:
    shown = "-" if here is None else f"{here:.2f}"
    return shown if paper is None else f"{shown} ({paper:.2f})"
