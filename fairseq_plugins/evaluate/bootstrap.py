"""Paired bootstrap (Koehn 2004): whether two systems differ in a score of a test set.

One rule for all scores: p is two-sided. It is the share of samples whose difference is at least as
far from the mean difference as the observed one is from zero.
"""

from typing import Any

import numpy as np

SAMPLES, SEED = 1000, 12345
TWO_SIDED = "two-sided"


def interval(drawn: np.ndarray) -> np.ndarray:
    """The ends of an interval that holds 95 % of the samples: samples x ... -> 2 x ..."""
    return np.percentile(drawn, [2.5, 97.5], axis=0)


def paired(
    seen: tuple[float, float], drawn: tuple[np.ndarray, np.ndarray], signature: str
) -> dict[str, Any]:
    """The comparison of two systems by one score.

    Args:
        seen: the score of each system.
        drawn: each system's scores in the same samples of the test set; one axis.
        signature: the signature of the score.

    Returns:
        scores, intervals that hold 95 % of the samples' scores, difference, p, its kind (`sides`)
            and the signature.
    """
    difference, apart = seen[0] - seen[1], drawn[0] - drawn[1]
    departs = np.abs(apart - apart.mean()) >= abs(difference)
    return {
        "score": seen[0],
        "interval": interval(drawn[0]).tolist(),
        "baseline": seen[1],
        "baseline_interval": interval(drawn[1]).tolist(),
        "difference": difference,
        "p": (1 + int(departs.sum())) / (1 + len(apart)),
        "sides": TWO_SIDED,
        "signature": signature,
    }
