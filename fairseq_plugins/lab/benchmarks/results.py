"""Results of a subcommand: a Markdown table, and JSON with arguments, machine and all figures."""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_plugins.files import output_file
from fairseq_plugins.json_files import write_json
from fairseq_plugins.lab.markdown import table_head, table_line

Row = dict[str, Any]
Column = tuple[str, Callable[[Row], str]]


class Report(NamedTuple):
    """Rows of figures, the columns that format them, notes, and the function that draws a plot.

    With a `problem` the benchmark fails with this line, after it showed the table.
    """

    rows: list[Row]
    columns: Sequence[Column]
    notes: Sequence[str]
    draw: Callable[[Path], None]
    problem: str = ""


def markdown(rows: Sequence[Row], columns: Sequence[Column]) -> str:
    """A table of these rows."""
    lines = table_head([title for title, _ in columns])
    lines += [table_line([show(row) for _, show in columns]) for row in rows]
    return "\n".join(lines)


def check_place(option: str, path: Path | None) -> Path | None:
    """Check an output path before the measurement starts; returns it as `output_file`.

    Raises:
        ConfigurationError: the path is a folder, or cannot be written.
    """
    return None if path is None else output_file(option, path)


def arguments(args: argparse.Namespace) -> Row:
    """The arguments of a measurement as JSON values, without where its output goes."""
    own = ("command", "json", "plot")
    return {name: _plain(value) for name, value in vars(args).items() if name not in own}


def write_report(path: Path, args: argparse.Namespace, where: Row, report: Report) -> None:
    """Write the report with its command, arguments and machine, atomically."""
    found = {
        "command": args.command,
        "arguments": arguments(args),
        "machine": where,
        "notes": list(report.notes),
        "rows": report.rows,
    }
    write_json(path, found)


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value


def text(name: str) -> Callable[[Row], str]:
    return lambda row: str(row[name])


def code(name: str) -> Callable[[Row], str]:
    return lambda row: f"`{row[name]}`"


def number(name: str, form: str = ".3f", scale: float = 1.0) -> Callable[[Row], str]:
    """A column that formats a figure of the row, or shows "-" without one."""
    return lambda row: "-" if row.get(name) is None else format(row[name] * scale, form)


def quartiles(name: str) -> Callable[[Row], str]:
    def show(row: Row) -> str:
        return "-" if row.get(name) is None else "{:.3f} - {:.3f}".format(*row[name])

    return show


COMPARISON: list[Column] = [
    ("contender", code("contender")),
    ("time, ratio", number("time_ratio")),
    ("quartiles", quartiles("time_ratio_quartiles")),
    ("operations, ratio", number("flop_ratio")),
    ("time over operations", number("ratio_to_flop_limit")),
    ("median, ms", number("median_seconds", ".1f", 1000)),
]
