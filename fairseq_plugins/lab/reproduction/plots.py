"""Scores of a table against the number of training pairs."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.system.plotting import MARKERS, figure
from fairseq_plugins.train.sweep_report import scores


def by_pairs(all_results: Sequence[dict[str, Any]], metric: str) -> dict[str, dict[int, float]]:
    """The mean score over the seeds of each row, by the number of training pairs."""
    points: dict[str, dict[int, float]] = {}
    for results in sorted(all_results, key=lambda each: each["data"]["pairs"]["train"]):
        for row in results["rows"]:
            values = scores(row, metric)
            if values:
                pairs = results["data"]["pairs"]["train"]
                points.setdefault(row["name"], {})[pairs] = statistics.mean(values)
    return points


def plot(results: dict[str, Any], beside: Sequence[dict[str, Any]], folder: Path) -> Path:
    """Draw the scores of a table on several numbers of training pairs, beside published ones.

    Raises:
        ImportError: matplotlib is missing.
    """
    published, path = results["by_pairs"], folder / "scores_against_pairs.svg"
    metric = published["metric"] if published else results["metrics"][0]
    draw_sizes(path, by_pairs([results, *beside], metric), published, metric)
    return path


def draw_sizes(
    path: Path, points: dict[str, dict[int, float]], published: Any, metric: str
) -> None:
    """Draw the scores of rows, each by the number of training pairs, and the published ones."""
    with figure(path, width=6.5, height=4.2) as (axis,):
        for number, (row, values) in enumerate(points.items()):
            pairs = sorted(values)
            marker = MARKERS[number % len(MARKERS)]
            axis.plot(pairs, [values[each] for each in pairs], marker=marker, label=row)
        if published:
            line = {"color": "black", "marker": ".", "label": published["source"]}
            axis.plot(*zip(*published["points"]), "--", **line)
        axis.set_xscale("log")
        axis.set_xlabel("training pairs")
        axis.set_ylabel(f"test {metric}")
        axis.legend(fontsize=8)
