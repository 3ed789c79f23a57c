"""The table of `reproduce`. Its only input is its results.json."""

import statistics
from pathlib import Path
from typing import Any

from fairseq_plugins.files import written_whole
from fairseq_plugins.lab.markdown import table_head, table_line
from fairseq_plugins.lab.reproduction.agreement import agreement
from fairseq_plugins.lab.reproduction.figures import (
    distinct,
    epoch_seconds,
    extent,
    has_paper,
    paper_ratio,
    ratio_function,
    scores,
)
from fairseq_plugins.lab.reproduction.notes import notes


def table(results: dict[str, Any]) -> str:
    """The Markdown table, beside the paper's figures if there are any, and what can be concluded.

    Args:
        results: the content of results.json.
    """
    printed = has_paper(results)
    titles = [*results["columns"]]
    timing = ["s/epoch", "time ratio"] if results["timed"] else []
    for title in [*results["metrics"], *timing]:
        titles += [f"{title}, paper", f"{title}, here"] if printed else [title]
    lines = [f"{results['title']}{', reduced' if results.get('reduced') else ''}", ""]
    lines += table_head([*titles, "parameters", "updates"])
    missing = len(titles) + 2 - len(results["columns"]) - 2 * len(results["metrics"])
    for row in results["cited"]:
        digits = 1 if results["timed"] else 2
        given = [value for score in row["scores"] for value in (f"{score:.{digits}f}", "cited")]
        lines.append(table_line([*row["labels"], *given, *["-"] * missing]))
    for row in results["rows"]:
        here = [spread(row, metric) for metric in results["metrics"]]
        theirs = [published(results, row, place) for place in range(len(here))]
        if timing:
            ratio = ratio_function(results)
            here += [cell(epoch_seconds(row), "{:.4g}"), cell(ratio(results, row), "{:.3f}")]
            if printed:
                theirs += [f"{row['paper']['epoch_seconds']}", f"{paper_ratio(results, row):.3f}"]
        figures = [each for pair in zip(theirs, here) for each in pair] if printed else here
        parameters = distinct([run["training"]["parameters"] for run in row["runs"]])
        figures.append(cell(parameters[0] / 1e6 if parameters else None, "{:.2f} M"))
        figures.append(extent([run["training"]["updates"] for run in row["runs"]]))
        lines.append(table_line([*row["labels"], *figures]))
    lines += agreement(results) if printed else []
    lines += ["", *(f"- {note}" for note in notes(results)), *unfinished(results)]
    return "\n".join(lines) + "\n"


def cell(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def spread(row: dict[str, Any], metric: str) -> str:
    """The mean, deviation and number of the seeds, and the interval of the test texts."""
    values = scores(row, metric)
    if not values:
        return "-"
    shown = f"{statistics.mean(values):.2f}"
    if len(values) > 1:
        shown += f" ± {statistics.stdev(values):.2f} ({len(values)})"
    tested = [run["scoring"]["scores"] for run in row["runs"] if run.get("scoring")]
    ends = [each[metric]["interval"] for each in tested if "interval" in each.get(metric, {})]
    if ends:
        shown += " [{:.2f}, {:.2f}]".format(*map(statistics.mean, zip(*ends)))
    return shown


def published(results: dict[str, Any], row: dict[str, Any], place: int) -> str:
    """A published figure, with its deviation if there is one; or what the paper says in words."""
    paper = row["paper"]
    if not paper:
        return f"{row['claim']} than {row['against']}" if row["claim"] else "-"
    digits = 1 if results["timed"] else 2
    shown = f"{paper['scores'][place]:.{digits}f}"
    return shown + (f" ± {paper['deviations'][place]:.2f}" if paper["deviations"] else "")


def unfinished(results: dict[str, Any]) -> list[str]:
    """A line with the runs that are to be trained further."""
    names = results["unfinished"]
    return ["", f"Not finished, rerun to resume: {', '.join(names)}."] if names else []


def write_table(results: dict[str, Any], folder: Path) -> Path:
    with written_whole(folder / "table.md") as file:
        file.write(table(results))
    return folder / "table.md"
