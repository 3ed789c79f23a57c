"""Intervals of means over a few seeds, against tables of Student's t and a worked example."""

import pytest

from fairseq_plugins.lab.reproduction.intervals import Difference, Sample, student, subtract


@pytest.mark.parametrize(
    "freedom, quantile", [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (30, 2.042)]
)
def test_quantiles_are_those_of_the_tables(freedom, quantile):
    assert student(freedom) == pytest.approx(quantile, abs=1e-3)


def test_welch_of_two_samples():
    """Means 5 and 2, errors 1 / 3 and 4 / 3: (5 / 3)^2 / ((1 / 9 + 16 / 9) / 2) = 2.941 degrees."""
    found = subtract(Sample.of([4.0, 5.0, 6.0]), Sample.of([0.0, 2.0, 4.0]))
    assert found.value == 3.0
    assert found.half == pytest.approx(student(2.9412) * (5 / 3) ** 0.5, rel=1e-4)
    assert found.sign == 0  # half is 4.15


def test_a_difference_is_clear_only_with_an_interval():
    one, three = Sample.of([9.0]), Sample.of([1.0, 1.1, 1.2])
    assert subtract(one, three) == Difference(pytest.approx(7.9), None)
    assert subtract(one, three).sign == 0
    assert subtract(Sample.of([9.0, 9.1, 9.2]), three).sign == 1
    assert subtract(three, Sample.of([9.0, 9.1, 9.2])).sign == -1
    assert subtract(Sample.of([2.0, 2.1]), Sample.of([1.0, 1.0])).sign == 1
