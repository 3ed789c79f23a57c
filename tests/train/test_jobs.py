"""Jobs end as a group, are logged, and run one at a time in a folder."""

import os
import sys
import threading
import time

import pytest

from fairseq_plugins.train import jobs, supervise

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


@pytest.mark.parametrize("gpus", [[], [0]])
def test_stop_ends_what_runs(tmp_path, gpus):
    running, lines, outcome = jobs.Jobs(), [], []

    def work():
        try:
            running.on(gpus).run([sys.executable, "-c", SLEEPS], tmp_path / "log", lines.append)
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


@pytest.mark.parametrize(
    "exported, gpus, seen",
    [(None, [2], "2"), (None, [3, 0], "3,0"), ("5,MIG-a", [1], "MIG-a"), ("5,7", [], "5,7")],
)
def test_programs_see_only_their_gpus(tmp_path, monkeypatch, exported, gpus, seen):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if exported is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", exported)
    lines, running = [], jobs.Jobs()
    says = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]
    running.on(gpus).run(says, tmp_path / "log", lines.append)
    running.run(says, tmp_path / "log", lines.append)  # those of other runs do not change
    assert lines == [f"{seen}\n", f"{exported or ''}\n"]
    running.stop()
    with pytest.raises(KeyboardInterrupt):
        running.on(gpus).run(says, tmp_path / "log", lines.append)


def test_an_interrupt_ends_the_program(tmp_path):
    lines = []

    def interrupted(line):
        lines.append(line)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jobs.Jobs().run([sys.executable, "-c", SLEEPS], tmp_path / "log", interrupted)
    with pytest.raises(ProcessLookupError):
        os.kill(int(lines[0]), 0)


def test_the_log_keeps_what_a_program_says_while_it_ends(tmp_path):
    def interrupted(line):
        raise KeyboardInterrupt

    says = "trap 'echo is saved; exit 143' TERM; echo begins; sleep 1800 & wait"
    with pytest.raises(KeyboardInterrupt):
        jobs.Jobs().run(["sh", "-c", says], tmp_path / "log", interrupted)
    assert (tmp_path / "log").read_text().endswith("\nbegins\nis saved\n")


@pytest.mark.parametrize(
    "lines, expected",
    [
        (["# now", "# x", "ValueError: a", "INFO b"], "ValueError: a"),
        (["# now", "# x", "error: --lr 1: no"], "--lr 1: no"),
        (["ValueError: before", "# now", "# x", "a", "", "f.py: UserWarning: c", "d"], "a / d"),
    ],
)
def test_why_a_program_failed(tmp_path, lines, expected):
    (tmp_path / "log").write_text("\n".join(lines))
    assert jobs.failure_in(tmp_path / "log", 1) == expected


@pytest.mark.parametrize("name, reason", [("KILL", ", probably for lack of memory"), ("SEGV", "")])
def test_a_program_that_was_killed(tmp_path, name, reason):
    log = tmp_path / "log"
    status = jobs.Jobs().run(["sh", "-c", f"echo 5 / 188; kill -{name} $$"], log, lambda line: None)
    assert jobs.failure_in(log, status) == f"it was killed by SIG{name}{reason}"


def test_a_program_that_does_not_end_is_killed_and_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(supervise, "SECONDS_TO_SAVE", 0.1)

    def interrupted(line):
        raise KeyboardInterrupt

    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + SLEEPS
    with pytest.raises(KeyboardInterrupt):
        jobs.Jobs().run([sys.executable, "-c", deaf], tmp_path / "log", interrupted)
    told = capsys.readouterr().err
    assert told.startswith(f"{tmp_path / 'log'}: its program did not end") and "was killed" in told
