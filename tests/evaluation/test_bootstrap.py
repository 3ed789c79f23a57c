"""The paired bootstrap: intervals and p of known samples."""

import numpy as np
import pytest

from fairseq_plugins.evaluation.bootstrap import paired


def test_equal_systems_do_not_differ():
    drawn = np.random.RandomState(1).normal(50, 2, size=200)
    found = paired((50.0, 50.0), (drawn, drawn), "s")
    assert (found["difference"], found["p"], found["sides"]) == (0, 1, "two-sided")
    assert found["interval"] == found["baseline_interval"]


@pytest.mark.parametrize("sign", [1, -1])
def test_p_is_the_share_of_samples_that_depart_as_far(sign):
    baseline = np.zeros(99)
    ours = sign * np.concatenate([np.full(90, 2.0), np.full(9, 20.0)])  # their mean is 3.64
    found = paired((sign * 4.0, 0.0), (ours, baseline), "s")
    # 2 is 1.64 from the mean and 20 is 16.4, so the nine depart by 4 or more
    assert found["p"] == pytest.approx(10 / 100)
    assert found["difference"] == 4 * sign and found["baseline_interval"] == [0, 0]
