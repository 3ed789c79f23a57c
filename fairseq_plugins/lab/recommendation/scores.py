"""AUC, MRR and nDCG of an impression, as in the evaluation of the MIND challenge."""

from typing import Any

import numpy as np

METRICS = ("AUC", "MRR", "nDCG@5", "nDCG@10")


def of_impression(clicked: Any, scores: Any) -> tuple[float, float, float, float]:
    """`METRICS` of an impression, each from 0 to 1.

    With the rank r of each news by falling score (of equal ones the first comes first) and y = 1
    for a click, else 0::

        AUC    = share of the pairs of a click and another news with the click's score higher;
                 equal scores count half
        MRR    = sum(y / r) / sum(y)
        nDCG@k = DCG@k / (DCG@k of the best order), DCG@k = sum over r <= k of
                 (2^y - 1) / log2(r + 1)

    Args:
        clicked: a bool for each news, with a True and a False.
        scores: a number for each news.
    """
    clicked, scores = np.asarray(clicked, dtype=bool), np.asarray(scores, dtype=float)
    differences = scores[clicked][:, None] - scores[~clicked]
    auc = ((differences > 0) + 0.5 * (differences == 0)).mean()
    gains = clicked[np.argsort(-scores, kind="stable")].astype(float)  # 2^y - 1 = y
    ranks = np.arange(1, len(gains) + 1)
    discounted, best = gains / np.log2(ranks + 1), np.sort(gains)[::-1] / np.log2(ranks + 1)
    mrr = (gains / ranks).sum() / gains.sum()
    return auc, mrr, *(discounted[:k].sum() / best[:k].sum() for k in (5, 10))


def ranks_of(scores: Any) -> np.ndarray:
    """The rank of each news, from 1, as the MIND challenge wants predictions."""
    ranks = np.empty(len(scores), dtype=int)
    ranks[np.argsort(-np.asarray(scores), kind="stable")] = np.arange(1, len(scores) + 1)
    return ranks
