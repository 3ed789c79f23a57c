"""Checks of options: messages name the option, its value and what would work."""

import pytest

from fairseq_plugins.errors import ConfigurationError, check_range, flag, nearest


def test_the_limits_themselves_are_allowed():
    check_range("--heads", 1, 1, 8)
    check_range("--heads", 8, 1, 8)
    check_range("--rounds", 10**9, 1)


@pytest.mark.parametrize(
    ("value", "limits", "message"),
    [
        (0, (1,), "--heads 0: must be at least 1"),
        (0, (1, 8), "--heads 0: must be from 1 to 8"),
        (9, (1, 8), "--heads 9: must be from 1 to 8"),
        (float("nan"), (1,), "--heads nan: must be at least 1"),
    ],
)
def test_values_outside_are_refused(value, limits, message):
    with pytest.raises(ConfigurationError) as error:
        check_range("--heads", value, *limits)
    assert str(error.value) == message


def test_options_are_named_as_on_the_command_line():
    assert flag("batch_size") == "--batch-size"


def test_nearest_allowed_values():
    assert nearest(5, [1, 2, 4, 8, 16]) == "4 or 8"
    assert nearest(1, [2, 4]) == "2"
    assert nearest(3, []) == "none"
