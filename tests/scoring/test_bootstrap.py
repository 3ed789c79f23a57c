"""The bootstrap: intervals and p of known statistics."""

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from fairseq_plugins.evaluate.translation import of_sacrebleu
from fairseq_plugins.scoring.bootstrap import SAMPLES, compare, interval, means, resampled, scores

VALUES = np.random.RandomState(7).normal(0.4, 0.1, size=(400, 2))


def mean_of(*outputs):
    return means(["a", "b"], lambda output: output, outputs, "s")


def test_the_interval_of_a_mean_is_that_of_the_normal_distribution():
    found = scores(mean_of(VALUES), VALUES)
    assert found == scores(mean_of(VALUES), VALUES)  # the seed is fixed
    error = 1.96 * VALUES.std(axis=0) / np.sqrt(len(VALUES))
    for column, name in enumerate("ab"):
        middle = VALUES[:, column].mean()
        assert found[name]["score"] == pytest.approx(100 * middle)
        bounds = 100 * (middle - error[column]), 100 * (middle + error[column])
        assert found[name]["interval"] == pytest.approx(bounds, abs=0.15)


def test_equal_systems_do_not_differ():
    found = compare(mean_of(VALUES, VALUES), VALUES, VALUES)["a"]
    assert (found["difference"], found["p"], found["sides"]) == (0, 1, "two-sided")
    assert found["interval"] == found["baseline_interval"]
    assert found["signature"] == "s|bs:1000|seed:12345"


@pytest.mark.parametrize("sign", [1, -1])
def test_p_is_the_share_of_samples_that_depart_as_far(sign):
    ours, baseline = VALUES, VALUES - sign * np.linspace(-0.1, 0.12, 400)[:, None]
    found = compare(mean_of(ours, baseline), ours, baseline)["a"]
    drawn = np.random.RandomState(12345).randint
    samples = [(ours - baseline)[drawn(400, size=400), 0].mean() for _ in range(SAMPLES)]
    departs = np.abs(samples - np.mean(samples)) >= abs(np.mean((ours - baseline)[:, 0]))
    assert found["p"] == pytest.approx((1 + departs.sum()) / 1001) and 0.001 < found["p"] < 0.2
    assert np.sign(found["difference"]) == sign
    assert found["baseline_interval"] == pytest.approx(
        interval(resampled(lambda sums: sums / 4, baseline))[:, 0].tolist()
    )


@pytest.mark.parametrize("metric", [BLEU(), CHRF()])
def test_scores_of_bleu_and_chrf_and_their_samples_are_those_of_sacrebleu(metric):
    words = np.random.RandomState(2).choice(list("abcdefg"), size=(2, 200, 9))
    lines, references = ([" ".join(line) for line in side] for side in words)
    ours = of_sacrebleu("m", metric, {"hypothesis": references})
    statistics = ours.statistics({"hypothesis": lines})
    expected = metric.corpus_score(lines, [references])
    assert ours.score(statistics.sum(axis=0)) == expected.score
    assert ours.signature == str(metric.get_signature())
    drawn = resampled(ours.score, statistics)
    test = PairedTest([("a", lines), ("b", lines)], {"m": metric}, [references], "bs", SAMPLES)
    (baseline, _) = [each for each in test()[1].values() if not isinstance(each[0], str)][0]
    assert drawn.mean() == pytest.approx(baseline.mean, abs=0.1) and np.ptp(drawn) > 0.1
