"""Scores of labels follow from their definitions, and intervals from the bootstrap."""

import random

import pytest

from fairseq_plugins.evaluate.classification import Labels
from tests.labelled import prepare


def slow_scores(references, labels):
    """Accuracy and macro F1, class after class."""
    right = sum(a == b for a, b in zip(references, labels)) / len(labels)
    found = []
    for name in {*references, *labels}:
        hits = sum(a == b == name for a, b in zip(references, labels))
        precision = hits / max(1, labels.count(name))
        recall = hits / max(1, references.count(name))
        found.append(2 * precision * recall / (precision + recall) if hits else 0.0)
    return 100 * right, 100 * sum(found) / len(found)


@pytest.fixture(scope="module")
def labels(tmp_path_factory):
    return Labels(prepare(tmp_path_factory.mktemp("labelled"))[0], "test")


def answers(labels, wrong):
    """The references, the first `wrong` of them changed."""
    other = {"bad": "good", "good": "bad"}
    found = [other[x] if n < wrong else x for n, x in enumerate(labels.references)]
    return {"hypothesis": found, "probability": [0.75] * len(found)}


@pytest.mark.parametrize("seed", range(4))
def test_scores_follow_from_their_definitions(seed, labels, monkeypatch):
    generator = random.Random(seed)
    references = [generator.choice("abbbc") for _ in range(80)]
    given = [generator.choice([x, "a", "d"[: seed % 2] or x]) for x in references]
    monkeypatch.setattr(labels, "references", references)
    found = labels.score({"hypothesis": given})
    expected = slow_scores(references, given)
    assert [each["score"] for each in found.values()] == pytest.approx(expected)
    sklearn = pytest.importorskip("sklearn.metrics")
    assert expected[1] == pytest.approx(100 * sklearn.f1_score(references, given, average="macro"))


def test_systems_are_compared_in_pairs(labels):
    ours, theirs = answers(labels, 1), answers(labels, 9)
    result = labels.compare(ours, theirs)["accuracy"]
    assert result["difference"] == pytest.approx(100 * 8 / 15) and result["p"] < 0.05
    assert result["score"] == pytest.approx(100 * 14 / 15)
    assert result["baseline"] == pytest.approx(100 * 6 / 15)
    assert result["interval"][0] < result["score"] <= result["interval"][1]
    same = labels.compare(ours, ours)["macro F1"]
    assert (same["difference"], same["p"]) == (0, 1)
