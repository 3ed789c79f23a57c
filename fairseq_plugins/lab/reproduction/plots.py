"""The plots of `reproduce`: scores, learning curves, scores against the size of the data."""

import functools
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fairseq_plugins.lab.reproduction.figures import (
    VALIDATION,
    distinct,
    epoch_seconds,
    has_paper,
    paper_ratio,
    ratio_function,
    scores,
)
from fairseq_plugins.lab.reproduction.intervals import Sample, half_interval
from fairseq_plugins.system.plotting import MARKERS, figure


class Curve(NamedTuple):
    """Validations of one run."""

    row: str
    seed: int
    hours: list[float]
    values: list[float]


def plot(
    results: dict[str, Any], folder: Path, beside: Sequence[dict[str, Any]] = ()
) -> list[Path]:
    """Plot the scores: against training time if the table has times, otherwise as bars.

    If logs of training hold validations, a second plot shows how each run came to its score.

    Args:
        results: the content of results.json.
        folder: where to write.
        beside: results of the same table on other numbers of training pairs; one more plot shows
            all scores against these numbers.

    Returns:
        the files written: bleu_against_time.svg, or such as accuracy.svg; learning_curves.svg;
        scores_against_pairs.svg.

    Raises:
        ImportError: matplotlib is missing.
    """
    if results["timed"]:
        plots = {"bleu_against_time": _draw_times}
    else:
        plots = {results["metrics"][0].replace(" ", "_"): _draw_bars}
    if learning_curves(results)[1]:
        plots["learning_curves"] = _draw_curves
    if beside:
        plots["scores_against_pairs"] = functools.partial(_draw_sizes, beside=beside)
    for name, draw in plots.items():
        draw(folder / f"{name}.svg", results)
    return [folder / f"{name}.svg" for name in plots]


def learning_curves(results: dict[str, Any]) -> tuple[str, list[Curve]]:
    """How the runs learned.

    Returns:
        the first of `VALIDATION` that all runs were validated by, and the curve of each run. Hours
        are updates times the run's median time of one, after those of its training on other data.
    """
    runs = [
        (row["name"], run["seed"], run["training"])
        for row in results["rows"]
        for run in row["runs"]
        if run["training"].get("valid") and run["training"]["epoch_seconds"]
    ]
    for measure in VALIDATION:
        if runs and all(measure in point for *_, trained in runs for point in trained["valid"]):
            break
    else:
        return "", []
    curves = []
    for row, seed, trained in runs:
        begun = trained.get("first_seconds", 0) / 3600  # on other data
        hours = trained["epoch_seconds"] / trained["updates_per_epoch"] / 3600
        # a run that was killed repeats some
        points = {point["num_updates"]: point[measure] for point in trained["valid"]}
        times = [begun + updates * hours for updates in sorted(points)]
        curves.append(Curve(row, seed, times, [points[updates] for updates in sorted(points)]))
    return measure, curves


def _draw_curves(path: Path, results: dict[str, Any]) -> None:
    measure, curves = learning_curves(results)
    rows = distinct([curve.row for curve in curves])
    with figure(path, width=6.5, height=4.2) as (axis,):
        for curve in curves:
            first = curve.seed == min(other.seed for other in curves if other.row == curve.row)
            axis.plot(
                curve.hours, curve.values, color=f"C{rows.index(curve.row)}", linewidth=1,
                label=curve.row if first else None,
            )  # fmt: skip
        # the first quarter of each run is left out: it is far below where the runs differ
        ends = sorted(value for curve in curves for value in curve.values[len(curve.values) // 4 :])
        room = 0.1 * (ends[-1] - ends[0]) or 1.0
        axis.set_ylim(ends[0] - room, ends[-1] + room)
        axis.set_xlabel("hours of training, without validation and saving")
        axis.set_ylabel(f"{measure} on valid, one checkpoint")
        axis.set_title("a line for each seed")
        axis.legend(frameon=False, fontsize=8)


def by_pairs(all_results: Sequence[dict[str, Any]], metric: str) -> dict[str, dict[int, float]]:
    """The mean score over the seeds of each row, by the number of training pairs."""
    found: dict[str, dict[int, float]] = {}
    for results in sorted(all_results, key=lambda each: each["data"]["pairs"]["train"]):
        for row in results["rows"]:
            values = scores(row, metric)
            if values:
                pairs = results["data"]["pairs"]["train"]
                found.setdefault(row["name"], {})[pairs] = statistics.mean(values)
    return found


def _draw_sizes(path: Path, results: dict[str, Any], beside: Sequence[dict[str, Any]]) -> None:
    """Scores against the number of training pairs, beside published ones."""
    published = results["by_pairs"]
    metric = published["metric"] if published else results["metrics"][0]
    draw_sizes(path, by_pairs([results, *beside], metric), published, metric)


def draw_sizes(
    path: Path, points: dict[str, dict[int, float]], published: Any, metric: str
) -> None:
    """Draw the scores of rows, each by the number of training pairs, and the published ones."""
    with figure(path, width=6.5, height=4.2) as (axis,):
        for number, (row, found) in enumerate(points.items()):
            pairs = sorted(found)
            marker = MARKERS[number % len(MARKERS)]
            axis.plot(pairs, [found[each] for each in pairs], marker=marker, label=row)
        if published:
            line = {"color": "black", "marker": ".", "label": published["source"]}
            axis.plot(*zip(*published["points"]), "--", **line)
        axis.set_xscale("log")
        axis.set_xlabel("training pairs")
        axis.set_ylabel(f"test {metric}")
        axis.legend(fontsize=8)


def _draw_bars(path: Path, results: dict[str, Any]) -> None:
    """Bars of the first metric: here with intervals over seeds and each seed, and in the paper."""
    metric, rows = results["metrics"][0], results["rows"][::-1]
    panels = [("here", [scores(row, metric) for row in rows])]
    if all(row["paper"] for row in rows):
        panels.insert(0, ("paper", [row["paper"]["scores"][:1] for row in rows]))
    with figure(path, len(panels), width=4.6, height=1 + 0.36 * len(rows)) as axes:
        for axis, (title, values) in zip(axes, panels):
            _add_bars(axis, title, values, rows)
            axis.set_xlabel(f"test {metric} (the axis does not begin at 0)")
            axis.set_yticks(range(len(rows)), [""] * len(rows))
        axes[0].set_yticklabels([" ".join(row["labels"]) for row in rows])
        lines = "black: 95 % interval over seeds; orange: each seed"
        if len(panels) == 2:
            lines = f"here, {lines}; paper, black: its standard deviation, if published"
        axes[0].figure.suptitle(lines, fontsize=7)


def _add_bars(
    axis: Any, title: str, values: Sequence[Sequence[float]], rows: Sequence[dict[str, Any]]
) -> None:
    ends: list[float] = []
    for place, (row, own) in enumerate(zip(rows, values)):
        if not own:
            axis.text(0.02, place, "not run", va="center", transform=axis.get_yaxis_transform())
            continue
        sample = Sample.of(own)
        half = half_interval(sample)
        if title == "paper":
            deviations = row["paper"]["deviations"]
            half = deviations[0] if deviations else None
        axis.barh(place, sample.mean, height=0.62, color="#9ecae1")
        axis.errorbar(sample.mean, place, xerr=half, color="black", capsize=3, linestyle="none")
        if title == "here":
            axis.plot(own, [place] * len(own), "o", ms=3, color="#d55e00")
        ends += [sample.mean - (half or 0), sample.mean + (half or 0), *own]
    if ends:
        room = 0.08 * (max(ends) - min(ends)) or 1.0
        axis.set_xlim(min(ends) - 3 * room, max(ends) + room)
    axis.set_title(title)


def _draw_times(path: Path, results: dict[str, Any]) -> None:
    """BLEU against training time, with a second panel for the paper's figures."""
    ratio = ratio_function(results)
    relative = any(ratio(results, row) for row in results["rows"])
    panels = 2 if has_paper(results) else 1
    with figure(path, panels, width=4.5, height=4.2) as axes:
        _add_times(axes, results, ratio, relative)


def _add_times(axes: Sequence[Any], results: dict[str, Any], ratio: Any, relative: bool) -> None:
    here, paper = axes[-1], axes[0] if len(axes) == 2 else None
    kinds: dict[str, int] = {}  # last row number of each first label; a label has one colour
    for row in results["rows"]:
        kind = row["labels"][0]
        number = kinds[kind] = kinds.get(kind, -1) + 1
        style: dict[str, Any] = {
            "color": f"C{list(kinds).index(kind)}",
            "marker": MARKERS[number % len(MARKERS)],
            "linestyle": "none",
            "label": row["name"],
        }
        values = scores(row, results["metrics"][0])
        time = ratio(results, row) if relative else epoch_seconds(row)
        if values and time:
            deviation = statistics.stdev(values) if len(values) > 1 else 0
            here.errorbar(time, statistics.mean(values), yerr=deviation or None, **style)
        else:
            here.plot([], [], **style)
        if paper:
            paper.plot(paper_ratio(results, row), row["paper"]["scores"][0], **style)
    relative_label = "time of an epoch, ratio to the Transformer"
    if paper:
        paper.set_title("paper")
        paper.set_xlabel(relative_label)
    here.set_title(f"here, {results['data']['pairs']['train']:,} pairs")
    here.set_xlabel(relative_label if relative else "seconds per epoch")
    for each in axes:
        each.set_ylabel(f"test {results['metrics'][0]}")
    handles, labels = axes[0].get_legend_handles_labels()
    here.figure.legend(handles, labels, loc="outside right center", frameon=False, fontsize=8)
