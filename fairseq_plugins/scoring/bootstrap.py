"""The bootstrap (Koehn 2004): intervals of scores, and whether two systems differ.

It draws samples of as many texts as the test set has, with replacement, the same for all scores
and systems.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

SAMPLES, SEED = 1000, 12345


class Metric(NamedTuple):
    """A score of a test set: a function of sums over its texts.

    Attributes:
        statistics: what each text of an output adds: texts x values.
        score: the score of such sums.
        signature: everything that changes the score.
        has_interval: whether its interval is reported.
        of_text: the score of a single text's sums; None if it has no meaning for a single text.
    """

    name: str
    statistics: Callable[[Any], np.ndarray]
    score: Callable[[np.ndarray], float]
    signature: str
    has_interval: bool = True
    of_text: Callable[[np.ndarray], float] | None = None


def means(
    names: Sequence[str],
    values: Callable[[Any], np.ndarray],
    outputs: Sequence[Any],
    signature: str,
) -> list[Metric]:
    """Metrics that are means over texts, in percent.

    Args:
        names: of the metrics.
        values: maps an output to texts x names, 0 to 1; called once for each of `outputs`.
    """
    known = {id(output): values(output) for output in outputs}

    def statistics(column: int, output: Any) -> np.ndarray:
        found = known[id(output)][:, column]
        return np.stack([found, np.ones_like(found)], axis=1)

    def percent(sums: np.ndarray) -> float:
        return float(100 * sums[0] / sums[1])

    return [
        Metric(name, partial(statistics, number), percent, signature, of_text=percent)
        for number, name in enumerate(names)
    ]


def resampled(score: Callable[[np.ndarray], Any], statistics: np.ndarray) -> np.ndarray:
    """A score on each of `SAMPLES` samples; it may be an array."""
    random, texts = np.random.RandomState(SEED), len(statistics)  # its stream never changes
    drawn = (
        np.bincount(random.randint(texts, size=texts), minlength=texts) for _ in range(SAMPLES)
    )
    return np.array([score(counts @ statistics) for counts in drawn])


def interval(drawn: np.ndarray) -> np.ndarray:
    """The ends of an interval that holds 95 % of the samples: samples x ... -> 2 x ..."""
    return np.percentile(drawn, [2.5, 97.5], axis=0)


def scores(metrics: list[Metric], output: Any) -> dict[str, dict[str, Any]]:
    """Score, interval and signature of an output by each metric."""
    found: dict[str, dict[str, Any]] = {}
    for metric in metrics:
        statistics = metric.statistics(output)
        found[metric.name] = {"score": float(metric.score(statistics.sum(axis=0)))}
        if metric.has_interval:
            found[metric.name]["interval"] = interval(resampled(metric.score, statistics)).tolist()
        found[metric.name]["signature"] = metric.signature
    return found


def compare(metrics: list[Metric], ours: Any, baseline: Any) -> dict[str, dict[str, Any]]:
    """Compare two outputs by each metric.

    p is two-sided: the share of samples whose difference is at least as far from the mean
    difference as the observed one is from zero.

    Returns:
        for each metric the scores, intervals that hold 95 % of the samples' scores, difference, p,
            its kind (`sides`) and the signature.
    """
    found = {}
    for metric in metrics:
        statistics = [metric.statistics(output) for output in (ours, baseline)]
        first, second = (float(metric.score(each.sum(axis=0))) for each in statistics)
        drawn = [resampled(metric.score, each) for each in statistics]
        apart = drawn[0] - drawn[1]
        departs = np.abs(apart - apart.mean()) >= abs(first - second)
        bootstrap = "" if "|bs:" in metric.signature else f"|bs:{SAMPLES}|seed:{SEED}"
        found[metric.name] = {
            "score": first,
            "interval": interval(drawn[0]).tolist(),
            "baseline": second,
            "baseline_interval": interval(drawn[1]).tolist(),
            "difference": first - second,
            "p": (1 + int(departs.sum())) / (1 + SAMPLES),
            "sides": "two-sided",
            "signature": metric.signature + bootstrap,
        }
    return found
