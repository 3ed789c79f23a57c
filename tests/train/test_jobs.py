"""Jobs end as a group, are logged, and see their GPUs; why one failed is told in one line."""

import os
import sys
import threading
import time

import pytest

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.train import jobs

SLEEPS = "import os, time; print(os.getpid(), flush=True); time.sleep(1800)"


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "SECONDS_BETWEEN_LINES", 0.01)
    return tmp_path / "log"


def text_of(log):
    """What the last program wrote."""
    return log.read_text(encoding="utf-8").split("\n# ")[-1].partition("\n")[2]


def test_stop_ends_what_runs(log):
    running, outcome, lines = jobs.Jobs(), [], []

    def work():
        try:
            running.run([sys.executable, "-c", SLEEPS], log, lines.append)
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
        running.run(["true"], log, lines.append)


@pytest.mark.parametrize(
    "exported, gpus, seen",
    [(None, [2], "2"), (None, [3, 0], "3,0"), ("5,MIG-a", [1], "MIG-a"), ("5,7", [], "5,7")],
)
def test_programs_see_only_their_gpus(log, monkeypatch, exported, gpus, seen):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if exported is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", exported)
    jobs.Jobs().run(["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"], log, print, gpus)
    assert text_of(log) == f"{seen}\n"


def test_an_interrupt_ends_the_program_and_the_log_has_its_last_words(log):
    def interrupt(line):
        raise KeyboardInterrupt

    says = "trap 'echo is saved; exit 143' TERM; echo begins; sleep 1800 & wait"
    with pytest.raises(KeyboardInterrupt):
        jobs.Jobs().run(["sh", "-c", says], log, interrupt)
    assert text_of(log) == "begins\nis saved\n"


@pytest.mark.parametrize(
    "says, reason",
    [
        ("echo error: --lr 1: no; echo bye; exit 1", "--lr 1: no"),
        ("echo a; echo ValueError: b; exit 1", "ValueError: b"),
        ("exit 3", "exit status 3"),
        ("echo 5 / 188; kill -KILL $$", "it was killed by SIGKILL, probably for lack of memory"),
        ("kill -SEGV $$", "it was killed by SIGSEGV"),
    ],
)
def test_why_a_program_failed(log, says, reason):
    log.write_text("error: of an earlier program\n")
    with pytest.raises(ConfigurationError) as error:
        jobs.Jobs().run(["sh", "-c", says], log, print)
    assert str(error.value) == reason
