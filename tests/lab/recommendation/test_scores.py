"""Scores equal those of the MIND challenge's evaluation, by scikit-learn, which it uses as well."""

import numpy as np
import pytest
from sklearn.metrics import ndcg_score, roc_auc_score

from fairseq_plugins.lab.recommendation.scores import of_impression, ranks_of


def official(labels, ranks):
    """AUC, MRR, nDCG@5 and @10 of an impression; predictions are ranks."""
    labels, scores = np.array(labels), 1 / np.array(ranks)
    places = [place for place, n in enumerate(np.argsort(scores)[::-1], 1) if labels[n]]
    return (
        roc_auc_score(labels, scores),
        sum(1 / place for place in places) / labels.sum(),
        *(ndcg_score([labels], [scores], k=k) for k in (5, 10)),
    )


# labels and ranks, as in truth.txt and prediction.txt of the challenge
HAND_MADE = [
    ([1, 0, 0], [1, 2, 3]),
    ([0, 0, 1], [1, 2, 3]),
    ([0, 1, 0, 1, 0, 0], [4, 2, 1, 6, 5, 3]),
    ([1] + [0] * 11, [12, *range(1, 12)]),
    ([0] * 6 + [1] * 6, list(range(12, 0, -1))),
    ([1, 1, 0], [2, 3, 1]),
]


@pytest.mark.parametrize("labels, ranks", HAND_MADE)
def test_an_impression_is_scored_as_officially(labels, ranks):
    assert of_impression(labels, 1 / np.array(ranks)) == pytest.approx(official(labels, ranks))
    assert ranks_of(-np.array(ranks)).tolist() == ranks


def test_equal_scores_are_half_right_and_keep_their_order():
    assert of_impression([1, 0, 0], [0.5, 0.5, 0.5])[0] == 0.5
    labels, scores = [0, 1, 1, 0, 0], [2.0, 2.0, 1.0, 1.0, 0.0]
    assert of_impression(labels, scores)[0] == pytest.approx(roc_auc_score(labels, scores))
    assert ranks_of([0.5, 0.5, 0.7]).tolist() == [2, 3, 1]
