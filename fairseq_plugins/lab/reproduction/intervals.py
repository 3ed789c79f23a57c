"""Differences of means over a few seeds, with intervals."""

import math
import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Sample(NamedTuple):
    """The mean over `seeds` runs and their standard deviation (0 and unknown for one run)."""

    mean: float
    deviation: float
    seeds: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Sample":
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        return cls(statistics.mean(values), deviation, len(values))


class Difference(NamedTuple):
    """A difference of two means; half of its 95 % interval, or None if that is unknown."""

    value: float
    half: float | None

    @property
    def sign(self) -> int:
        """1 or -1 if the interval excludes 0, otherwise 0."""
        clear = self.half is not None and abs(self.value) > self.half
        return int(math.copysign(1, self.value)) if clear else 0


def student(freedom: float) -> float:
    """The 97.5 % quantile of Student's t distribution."""
    from scipy.stats import t  # of fairseq; a slow import

    return float(t.ppf(0.975, freedom))


def subtract(ours: Sample, theirs: Sample) -> Difference:
    """The difference of two means, with Welch's interval: deviations of the two may differ."""
    value = ours.mean - theirs.mean
    if min(ours.seeds, theirs.seeds) < 2:
        return Difference(value, None)
    errors = [sample.deviation**2 / sample.seeds for sample in (ours, theirs)]
    if not sum(errors):  # equal figures on every seed say nothing of their spread
        return Difference(value, 0.0 if value == 0 else None)
    freedom = sum(errors) ** 2 / sum(
        error**2 / (sample.seeds - 1) for error, sample in zip(errors, (ours, theirs))
    )
    return Difference(value, student(freedom) * math.sqrt(sum(errors)))
