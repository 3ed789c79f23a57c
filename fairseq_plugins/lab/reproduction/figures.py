"""Figures of the rows in results.json: scores, times and ratios, here and in the paper."""

import statistics
from collections.abc import Callable
from typing import Any

from fairseq_plugins.lab.reproduction.intervals import Sample
from fairseq_plugins.lab.reproduction.tables import BASELINE

# what a log may tell of a validation, and which value is best
VALIDATION: dict[str, Callable[..., float]] = {
    "bleu": max, "accuracy": max, "auc": max, "nll_loss": min
}  # fmt: skip


def scores(row: dict[str, Any], metric: str) -> list[float]:
    """The score of each tested run of a row."""
    found = (run["scoring"]["scores"] for run in row["runs"] if run.get("scoring"))
    return [each[metric]["score"] for each in found if metric in each]


def paper_sample(results: dict[str, Any], row: dict[str, Any], place: int) -> Sample | None:
    """The published figure of a row; without a published deviation it counts as one run."""
    if not row["paper"]:
        return None
    deviations, count = row["paper"]["deviations"], results.get("seeds_of_paper", 0)
    if deviations and count > 1:
        return Sample(row["paper"]["scores"][place], deviations[place], count)
    return Sample(row["paper"]["scores"][place], 0.0, 1)


def epoch_seconds(row: dict[str, Any]) -> float | None:
    """Seconds per epoch from the training logs: the median over the seeds of a row."""
    measured = [run["training"]["epoch_seconds"] for run in row["runs"]]
    measured = [seconds for seconds in measured if seconds is not None]
    return statistics.median(measured) if measured else None


def baseline_row(results: dict[str, Any]) -> dict[str, Any]:
    return next(row for row in results["rows"] if row["name"] == BASELINE)


def logged_ratio(results: dict[str, Any], row: dict[str, Any]) -> float | None:
    baseline = baseline_row(results)
    here, there = epoch_seconds(row), epoch_seconds(baseline)
    return here / there if here and there else None


def interleaved_ratio(results: dict[str, Any], row: dict[str, Any]) -> float | None:
    found = ((results["interleaved"] or {}).get("rows") or {}).get(row["name"])
    return found["time_ratio"] if found else None


def ratio_function(results: dict[str, Any]) -> Callable[[dict[str, Any], dict[str, Any]], Any]:
    """The function that computes the table's time ratio: the interleaved one if measured."""
    return interleaved_ratio if results["interleaved"] else logged_ratio


def paper_ratio(results: dict[str, Any], row: dict[str, Any]) -> float:
    baseline = baseline_row(results)
    return row["paper"]["epoch_seconds"] / baseline["paper"]["epoch_seconds"]


def has_paper(results: dict[str, Any]) -> bool:
    return all(row["paper"] or row["claim"] or row["against"] == row["name"]
               for row in results["rows"])  # fmt: skip


def extent(values: list[int]) -> str:
    """The range of some numbers, as text."""
    if not values:
        return "-"
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def distinct(values: list[Any]) -> list[Any]:
    """The different values, in the order of their first."""
    return [value for number, value in enumerate(values) if value not in values[:number]]
