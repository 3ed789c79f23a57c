"""Jobs end as a group, are logged, and run one at a time in a folder."""

import os
import sys
import threading
import time

import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.training import jobs

SLEEPS = "import os, time; print(os.getpid(), flush=True); time.sleep(1800)"


def test_output_is_logged_and_passed_on(tmp_path):
    program = "import sys; print('one'); print('two', file=sys.stderr); sys.exit(3)"
    lines = []
    for _ in range(2):
        assert jobs.Jobs().run([sys.executable, "-c", program], tmp_path / "log", lines.append) == 3
    assert lines == ["one\n", "two\n"] * 2
    log = (tmp_path / "log").read_text()
    assert log.count("\none\ntwo\n") == 2 and log.count("\n# ") == 4


def test_output_is_utf8_whatever_the_locale_says(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    lines = []
    program = "print('M\u00fcnchen')"
    assert jobs.Jobs().run([sys.executable, "-c", program], tmp_path / "log", lines.append) == 0
    assert lines == ["M\u00fcnchen\n"]


def test_stop_ends_what_runs(tmp_path):
    running, lines, outcome = jobs.Jobs(), [], []

    def work():
        try:
            running.run([sys.executable, "-c", SLEEPS], tmp_path / "log", lines.append)
        except BaseException as error:
            outcome.append(type(error))

    thread = threading.Thread(target=work)
    thread.start()
    while not lines:
        time.sleep(0.01)
    running.stop()
    thread.join()
    assert outcome == [KeyboardInterrupt]
    with pytest.raises(ProcessLookupError):
        os.kill(int(lines[0]), 0)
    with pytest.raises(KeyboardInterrupt):
        running.run(["true"], tmp_path / "log", lines.append)


def test_an_interrupt_ends_the_program(tmp_path):
    lines = []

    def interrupted(line):
        lines.append(line)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jobs.Jobs().run([sys.executable, "-c", SLEEPS], tmp_path / "log", interrupted)
    with pytest.raises(ProcessLookupError):
        os.kill(int(lines[0]), 0)


@pytest.mark.parametrize(
    "lines, expected",
    [
        (["# now", "# x", "[rank0]: ValueError: a", "INFO b"], "ValueError: a"),
        (["# now", "# x", "error: --lr 1: no"], "--lr 1: no"),
        (["ValueError: before", "# now", "# x", "a", "", "f.py: UserWarning: c", "d"], "a / d"),
        (
            ["torch.SomeError: big", "x.ChildFailedError: "],
            "torch.SomeError: big",
        ),
    ],
)
def test_why_a_program_failed(tmp_path, lines, expected):
    (tmp_path / "log").write_text("\n".join(lines))
    assert jobs.failure_in(tmp_path / "log") == expected


def test_one_at_a_time_in_a_folder(tmp_path):
    with jobs.alone_in(tmp_path / "new", "training"):
        with pytest.raises(ConfigurationError, match="another training is running in .*new"):
            with jobs.alone_in(tmp_path / "new", "training", patience=0):
                pass
    with jobs.alone_in(tmp_path / "new", "training", patience=0):
        pass
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="file/new cannot be written"):
        with jobs.alone_in(tmp_path / "file" / "new", "training"):
            pass
