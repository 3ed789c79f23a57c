"""The table and the plot of a sweep. Their only input is its results.json."""

import re
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from fairseq_plugins.errors import counted
from fairseq_plugins.files import written_whole
from fairseq_plugins.system.markdown import table as markdown_table
from fairseq_plugins.system.plotting import figure

Row = dict[str, Any]
Run = dict[str, Any]


def scores(row: Row, metric: str) -> list[float]:
    """The score of each tested run of a row."""
    tested = (run["scoring"]["scores"] for run in row["runs"] if run.get("scoring"))
    return [each[metric]["score"] for each in tested if metric in each]


def median(row: Row, value: Callable[[dict[str, Any]], float | None]) -> float | None:
    """The median of a value of the trainings of a row."""
    known = [each for each in (value(run["training"]) for run in row["runs"]) if each is not None]
    return statistics.median(known) if known else None


def seconds(training: dict[str, Any]) -> float | None:
    """The time of an update."""
    return training.get("seconds")


def shown(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def spread(row: Row, metric: str) -> str:
    """The mean, deviation and number of the seeds, and the interval over the test texts."""
    values = scores(row, metric)
    if not values:
        return "-"
    cell = f"{statistics.mean(values):.2f}"
    if len(values) > 1:
        cell += f" ± {statistics.stdev(values):.2f} ({len(values)})"
    tested = [run["scoring"]["scores"][metric] for run in row["runs"] if run.get("scoring")]
    ends = [each["interval"] for each in tested if "interval" in each]
    return cell + (" [{:.2f}, {:.2f}]".format(*map(statistics.mean, zip(*ends))) if ends else "")


def is_published(results: dict[str, Any]) -> bool:
    """Whether a paper has figures of rows, or says which are higher."""
    return any(row["paper"] or row["claim"] for row in results["rows"])


def published(row: Row, place: int) -> str:
    """A figure of the paper, with its deviation if there is one; or what it says in words."""
    paper = row["paper"]
    if not paper:
        return f"{row['claim']} than {row['against']}" if row["claim"] else "-"
    deviations = paper.get("deviations")
    return f"{paper['scores'][place]:g}" + (f" ± {deviations[place]:.2f}" if deviations else "")


def table(results: dict[str, Any], conclusions: Sequence[str] = ()) -> str:
    """The Markdown table, with what must be known to read it.

    Args:
        results: the content of results.json.
        conclusions: lines between the table and its notes.
    """
    rows, metrics, paper = results["rows"], results["metrics"], is_published(results)
    times = [row["paper"] and row["paper"].get("epoch_seconds") for row in rows]
    timed = paper and bool(times[0])
    compared = any(run.get("p") for row in rows for run in row["runs"])
    head = [*results["columns"]]
    for metric in metrics:
        head += [f"{metric}, paper", f"{metric}, here"] if paper else [metric]
    head += ["p"] * compared + ["parameters, M", "operations", "s an update", "updates"]
    head += ["time, paper", "time, here"] * timed
    cells: list[list[str]] = []
    for row in results["cited"]:
        figures = [each for score in row["scores"] for each in (f"{score:g}", "cited")]
        cells.append([*row["labels"], *figures])
        cells[-1] += ["-"] * (len(head) - len(cells[-1]))
    for row, time in zip(rows, times):
        cells.append([*map(str, row["labels"])])
        for place, metric in enumerate(metrics):
            cells[-1] += [published(row, place)] * paper + [spread(row, metric)]
        p = [f"{next(iter(run['p'].values())):.3f}" for run in row["runs"] if run.get("p")]
        parameters = median(row, lambda training: training["parameters"] / 1e6)
        cells[-1] += [", ".join(p) or "-"] * compared + [
            shown(parameters, "{:.2f}"),
            shown(_ratio(row, rows[0], lambda each: each.get("operations")), "{:.3f}"),
            shown(median(row, seconds), "{:.3g}"),
            shown(median(row, lambda training: training["updates"]), "{:,.0f}"),
        ]
        if timed:
            cells[-1].append(shown(time and time / times[0], "{:.3f}"))
            cells[-1].append(shown(_ratio(row, rows[0], seconds), "{:.3f}"))
    title = results["title"] + ", reduced" * (results["reduced"] is True)
    listed = [f"- {note}" for note in notes(results)]
    return "\n".join([title, "", *markdown_table(head, cells), "", *conclusions, *listed]) + "\n"


def _ratio(row: Row, first: Row, value: Callable[[dict[str, Any]], float | None]) -> float | None:
    here, base = median(row, value), median(first, value)
    return here / base if here and base else None


def notes(results: dict[str, Any]) -> list[str]:
    """The data, how the figures were made, and what limits them."""
    rows, first, data = results["rows"], results["rows"][0]["name"], results["data"]
    runs = [(f"{row['name']} {run['seed']}", run) for row in rows for run in row["runs"]]
    here = {**data["pairs"], **({"classes": data["classes"]} if "classes" in data else {})}
    lines = [f"Data: {_counts(here)}, {data['name']}."]
    paper = results["data_of_paper"]
    if any(abs(here.get(name, 0) - count) > 0.001 * count for name, count in paper.items()):
        lines.append(
            f"The paper's data: {_counts(paper)}. Compare the rows here with each other, not with "
            "the paper's column."
        )
    lines += [
        "Scores: mean ± standard deviation (seeds) on the test set; [...] is the 95 % bootstrap "
        "interval over its texts, without the choice of the seed.",
        f"p: of the difference to {first} with the same seed, by paired bootstrap over the test "
        f"set, for each seed. operations and time: ratios to {first}; operations are those of the "
        "forward pass on the first validation examples, and time is that of an update, without "
        "validation and saving.",
        *results["remarks"],
    ]
    for what, value in CONDITIONS.items():
        lines += conditions(what, runs, value)
    for metric in results["metrics"]:
        tested = [(name, run) for name, run in runs if metric in run["scoring"]["scores"]]
        lines += conditions(metric, tested, partial(_signature, metric))
    for name, run in runs:
        if run["training"].get("first_updates"):
            lines.append(
                f"{name} was trained before on other data, which is not in the column: "
                f"{counted(run['training']['first_updates'], 'updates')}."
            )
    done = {name for name, _ in runs}
    missing = [
        f"{name} {seed}" for name, seed in results["planned"] if f"{name} {seed}" not in done
    ]
    lines += [f"Not run: {', '.join(missing)}."] if missing else []
    lines += [f"Settings: `{results['settings'] or 'none'}`."]
    if results["unfinished"]:
        lines.append(f"Not finished, rerun to resume: {', '.join(results['unfinished'])}.")
    return lines + [f"Failed: {each['run']}: {each['message']}" for each in results["failures"]]


def conditions(
    what: str, runs: Sequence[tuple[str, Run]], value_of: Callable[[Run], str]
) -> list[str]:
    """A note of a condition of the runs; it names the runs where they differ."""
    names: dict[str, list[str]] = {}
    for name, run in runs:
        names.setdefault(value_of(run), []).append(name)
    if len(names) < 2:
        return [f"{what}: {each}." for each in names]
    groups = (f"{value} ({', '.join(each)})" for value, each in names.items())
    return [f"{what} differs: {'; '.join(groups)}."]


def _tested(run: Run) -> str:
    words = " ".join(run["scoring"].get("generate", []))
    return run["scoring"]["checkpoint"] + (f", with `--generate`: `{words}`" if words else "")


def _precision(run: Run) -> str:
    command = " ".join(run["training"]["command"])
    half = re.search(r"(?<!\S)--(?:memory-efficient-)?(bf16|fp16|amp)(?!\S)", command)
    return half[1] if half else "fp32"


def _signature(metric: str, run: Run) -> str:
    return f"`{run['scoring']['scores'][metric]['signature']}`"


def _machine(run: Run) -> str:
    machine = dict(run["training"]["machine"])
    device = machine.pop("device")
    beside = run["training"]["parallel"]
    machine.update({"runs side by side": beside} if beside > 1 else {})
    return ", ".join([device, *(f"{name} {value}" for name, value in machine.items())])


CONDITIONS = {"Tested": _tested, "Precision of training": _precision, "Machine": _machine}


def _counts(counts: dict[str, int]) -> str:
    return " / ".join(f"{count:,} {name}" for name, count in counts.items())


def write_table(results: dict[str, Any], folder: Path, conclusions: Sequence[str] = ()) -> Path:
    with written_whole(folder / "table.md") as file:
        file.write(table(results, conclusions))
    return folder / "table.md"


def plot(results: dict[str, Any], path: Path) -> Path:
    """Draw the first score of each row: each seed and their mean, beside the paper's figures.

    Raises:
        ImportError: matplotlib is missing.
    """
    metric = results["metrics"][0] if results["metrics"] else ""
    rows = [row for row in results["rows"] if scores(row, metric)][::-1]
    panels = {"here": [scores(row, metric) for row in rows]}
    if all(row.get("paper") for row in rows):
        panels["paper"] = [row["paper"]["scores"][:1] for row in rows]
    with figure(path, len(panels), width=6.5, height=1.2 + 0.36 * len(rows)) as axes:
        for axis, (title, values) in zip(axes, panels.items()):
            for place, own in enumerate(values):
                axis.plot(own, [place] * len(own), "o", ms=4, color="#d55e00")
                axis.plot([statistics.mean(own)], [place], "|", ms=14, mew=3, color="#0072b2")
            axis.set_yticks(range(len(rows)), [" ".join(map(str, row["labels"])) for row in rows])
            axis.set_xlabel(f"test {metric}: each seed, and their mean")
            axis.set_title(title)
        axes[0].figure.suptitle(results["title"])
    return path
