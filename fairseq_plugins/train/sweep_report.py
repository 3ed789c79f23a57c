"""The table and the plot of a sweep. Their only input is its results.json."""

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq_plugins.files import written_whole
from fairseq_plugins.system.plotting import figure

Row = dict[str, Any]


def scores(row: Row, metric: str) -> list[float]:
    """The score of each tested run of a row."""
    found = (run["scoring"]["scores"] for run in row["runs"] if run.get("scoring"))
    return [each[metric]["score"] for each in found if metric in each]


def median(row: Row, value: Callable[[dict[str, Any]], float | None]) -> float | None:
    """The median of a value of the trainings of a row."""
    found = [value(run["training"]) for run in row["runs"]]
    known = [each for each in found if each is not None]
    return statistics.median(known) if known else None


def step_seconds(training: dict[str, Any]) -> float | None:
    return statistics.median(training["step_seconds"]) if training["step_seconds"] else None


def spread(values: list[float]) -> str:
    """The mean, deviation and number of the seeds."""
    if not values:
        return "-"
    mean = f"{statistics.mean(values):.2f}"
    return mean + (f" ± {statistics.stdev(values):.2f} ({len(values)})" if len(values) > 1 else "")


def table(results: dict[str, Any]) -> str:
    """The Markdown table, with what must be known to read it."""
    rows, first = results["rows"], results["rows"][0]["name"]
    head = [*results["columns"], *results["metrics"], "p", "parameters, M", "operations"]
    lines = [results["title"], "", head + ["s an update", "updates"]]
    lines.append(["---"] * len(lines[-1]))
    base = median(rows[0], lambda training: training["operations"])
    for row in rows:
        p = [f"{next(iter(run['p'].values())):.3f}" for run in row["runs"] if run.get("p")]
        operations = median(row, lambda training: training["operations"])
        parameters = median(row, lambda training: training["parameters"])
        seconds, updates = median(row, step_seconds), median(row, lambda each: each["updates"])
        lines.append(
            [
                *map(str, row["labels"]),
                *(spread(scores(row, metric)) for metric in results["metrics"]),
                ", ".join(p) or "-",
                "-" if parameters is None else f"{parameters / 1e6:.2f}",
                f"{operations / base:.3f}" if operations and base else "-",
                "-" if seconds is None else f"{seconds:.3g}",
                "-" if updates is None else f"{updates:,.0f}",
            ]
        )
    notes = [
        f"Data: {results['data']['name']}, "
        + ", ".join(f"{count:,} {split}" for split, count in results["data"]["pairs"].items())
        + ".",
        "Scores: mean ± standard deviation (seeds) on the test set.",
        f"p: of the difference to {first} with the same seed, by paired bootstrap over the test "
        "set, for each seed.",
        f"operations: forward on the first validation examples, ratio to {first}.",
        *results["remarks"],
    ]
    signatures = {
        f"{metric}: `{run['scoring']['scores'][metric]['signature']}`."
        for row in rows
        for run in row["runs"]
        for metric in results["metrics"]
        if run.get("scoring") and metric in run["scoring"]["scores"]
    }
    notes += sorted(signatures)
    notes += [f"Settings: `{results['settings'] or 'none'}`."]
    if results["unfinished"]:
        notes.append(f"Not finished, rerun to resume: {', '.join(results['unfinished'])}.")
    notes += [f"Failed: {each['run']}: {each['message']}" for each in results["failures"]]
    text = [line if isinstance(line, str) else f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([*text, "", *(f"- {note}" for note in notes)]) + "\n"


def write_table(results: dict[str, Any], folder: Path) -> Path:
    with written_whole(folder / "table.md") as file:
        file.write(table(results))
    return folder / "table.md"


def plot(results: dict[str, Any], folder: Path) -> Path:
    """Draw the first score of each row: its mean, and each seed.

    Raises:
        ImportError: matplotlib is missing.
    """
    metric = results["metrics"][0] if results["metrics"] else ""
    rows = [row for row in results["rows"] if scores(row, metric)][::-1]
    path = folder / "scores.svg"
    with figure(path, width=7.5, height=1.2 + 0.36 * len(rows)) as (axis,):
        for place, row in enumerate(rows):
            values = scores(row, metric)
            axis.plot(values, [place] * len(values), "o", ms=4, color="#d55e00")
            axis.plot([statistics.mean(values)], [place], "|", ms=14, mew=3, color="#0072b2")
        axis.set_yticks(range(len(rows)), [" ".join(map(str, row["labels"])) for row in rows])
        axis.set_xlabel(f"test {metric}: each seed, and their mean")
        axis.set_title(results["title"])
    return path
