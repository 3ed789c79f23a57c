"""Scores of labels are those of scikit-learn, and intervals follow from the bootstrap."""

import random

import pytest
from sklearn.metrics import accuracy_score, f1_score

from fairseq_plugins.evaluate.classification import Labels
from tests.labelled import prepare


@pytest.fixture(scope="module")
def labels(tmp_path_factory):
    return Labels(prepare(tmp_path_factory.mktemp("labelled"))[0], "test")


def answers(labels, wrong):
    """The references, the first `wrong` of them changed."""
    other = {"bad": "good", "good": "bad"}
    found = [other[x] if n < wrong else x for n, x in enumerate(labels.references)]
    return {"hypothesis": found, "probability": [0.75] * len(found)}


@pytest.mark.parametrize("seed", range(4))
def test_scores_are_those_of_scikit_learn(seed, labels, monkeypatch):
    generator = random.Random(seed)
    references = [generator.choice("abbbc") for _ in range(80)]
    given = [generator.choice([x, "a", "d"[: seed % 2] or x]) for x in references]
    monkeypatch.setattr(labels, "references", references)
    found = labels.score({"hypothesis": given})
    assert found["accuracy"]["score"] == pytest.approx(100 * accuracy_score(references, given))
    f1 = f1_score(references, given, average="macro")
    assert found["macro F1"]["score"] == pytest.approx(100 * f1)


def test_systems_are_compared_in_pairs(labels):
    ours, theirs = answers(labels, 1), answers(labels, 9)
    result = labels.compare(ours, theirs)["accuracy"]
    assert result["difference"] == pytest.approx(100 * 8 / 15) and result["p"] < 0.05
    assert result["score"] == pytest.approx(100 * 14 / 15)
    assert result["baseline"] == pytest.approx(100 * 6 / 15)
    assert result["interval"][0] < result["score"] <= result["interval"][1]
    same = labels.compare(ours, ours)["macro F1"]
    assert (same["difference"], same["p"]) == (0, 1)
