"""Progress bars."""

import io
import sys

import pytest

from fairseq_plugins.system.progress import SECONDS_BETWEEN_LINES, progress_bar


@pytest.mark.parametrize("stderr", [None, io.StringIO()], ids=["closed", "a log"])
@pytest.mark.parametrize("show", [True, False])
def test_a_bar_counts_wherever_stderr_leads(stderr, show, monkeypatch):
    """Python's sys.stderr is None for daemons, with `2>&-` and in pythonw."""
    monkeypatch.setattr(sys, "stderr", stderr)
    assert list(progress_bar("ab", description="letters", show=show)) == ["a", "b"]
    with progress_bar(description="letters", total=2, show=show, unit=" letters") as bar:
        bar.update(2)


def test_no_line_of_a_log_comes_early(monkeypatch):
    """By itself, tqdm repeats a line 10 seconds later."""
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress_bar(description="letters", total=2) as bar:
        assert bar.mininterval == bar.maxinterval == bar.delay == SECONDS_BETWEEN_LINES
