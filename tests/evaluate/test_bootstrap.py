"""The paired bootstrap: intervals and p of known samples."""

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from fairseq_plugins.evaluate.bootstrap import paired
from fairseq_plugins.evaluate.translation import resampled


def test_equal_systems_do_not_differ():
    drawn = np.random.RandomState(1).normal(50, 2, size=200)
    found = paired((50.0, 50.0), (drawn, drawn), "s")
    assert (found["difference"], found["p"], found["sides"]) == (0, 1, "two-sided")
    assert found["interval"] == found["baseline_interval"]


@pytest.mark.parametrize("sign", [1, -1])
def test_p_is_the_share_of_samples_that_depart_as_far(sign):
    baseline = np.zeros(99)
    ours = sign * np.concatenate([np.full(90, 7.0), np.full(9, 40.0)])  # their mean is 10
    found = paired((sign * 6.0, 0.0), (ours, baseline), "s")
    # 7 is 3 from the mean and 40 is 30, so the nine depart by 6 or more
    assert found["p"] == pytest.approx(10 / 100)
    assert found["difference"] == 6 * sign and found["baseline_interval"] == [0, 0]


@pytest.mark.parametrize("metric", [BLEU(), CHRF()])
def test_samples_of_bleu_and_chrf_are_those_of_sacrebleu(metric):
    words = np.random.RandomState(2).choice(list("abcdefg"), size=(2, 40, 9))
    lines, references = ([" ".join(line) for line in side] for side in words)
    drawn = resampled(metric, lines, [references], 50)
    test = PairedTest([("a", lines), ("b", lines)], {"m": metric}, [references], "bs", 50)
    _, results = test()
    (baseline, _) = [each for each in results.values() if not isinstance(each[0], str)][0]
    assert drawn.mean() == pytest.approx(baseline.mean) and np.ptp(drawn) > 0.1
