"""The process that starts a training: what it gives, passes on, and reports."""

import contextlib
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fairseq_plugins.errors import TERMINATED, ConfigurationError
from fairseq_plugins.train import log as training_log
from fairseq_plugins.train import supervise
from fairseq_plugins.train.request import TrainingRequest


@pytest.fixture
def request_of(tmp_path):
    return lambda **more: TrainingRequest(
        Path("x.yaml"), tmp_path, save_dir=tmp_path / "run", **more
    )


@pytest.fixture
def becomes(tmp_path, monkeypatch):
    """becomes(script): a shell script is the training."""

    def write(script):
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        monkeypatch.setattr(supervise.sys, "executable", str(path))

    return write


@pytest.mark.parametrize(
    "script, told",
    [
        ("kill -KILL $$", "it was killed by SIGKILL, probably for lack of memory; its log is "),
        ("kill -SEGV $$", "it was killed by SIGSEGV; its log is "),
        (f"exit {TERMINATED}", "stopped by SIGTERM"),
    ],
)
def test_what_a_killed_training_cannot_say(script, told, becomes, request_of):
    becomes(script)
    with pytest.raises(ConfigurationError, match=f"^x: .*{told}"):
        supervise.supervise(request_of(), [])


def test_the_status_of_a_training_is_passed_on(becomes, request_of, tmp_path):
    """What it leaves is ended: it holds a pipe, which can be read to its end then."""
    os.mkfifo(tmp_path / "held")
    for status in (0, 1):
        reader = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
        becomes(f"exec 3>{tmp_path}/held; sleep 1800 & exit {status}")
        assert supervise.supervise(request_of(), []) == status
        os.set_blocking(reader, True)
        assert os.read(reader, 1) == b""
        os.close(reader)


@pytest.fixture
def interrupted_at(monkeypatch):
    """interrupted_at(path): Ctrl-C while the command waits, once the training has made a file."""
    original = subprocess.Popen.wait

    def interrupt(path):
        def wait(process, timeout=None):
            monkeypatch.setattr(subprocess.Popen, "wait", original)
            while not path.exists():
                time.sleep(0.01)
            raise KeyboardInterrupt

        monkeypatch.setattr(subprocess.Popen, "wait", wait)

    return interrupt


def test_a_training_saves_before_an_interrupt_ends_it(
    becomes, request_of, interrupted_at, tmp_path
):
    becomes(f"trap 'sleep 0.2; touch {tmp_path}/saved; exit 143' TERM; touch {tmp_path}/runs\n"
            "while true; do sleep 0.01; done")  # fmt: skip
    interrupted_at(tmp_path / "runs")
    with pytest.raises(KeyboardInterrupt):
        supervise.supervise(request_of(), [])
    assert (tmp_path / "saved").exists()


def test_a_training_that_does_not_end_is_killed(
    becomes, request_of, interrupted_at, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(supervise, "SECONDS_TO_SAVE", 0.1)
    becomes(f"trap '' TERM; echo $$ > {tmp_path}/pid; while true; do sleep 0.1; done")
    interrupted_at(tmp_path / "pid")
    with pytest.raises(KeyboardInterrupt):
        supervise.supervise(request_of(), [])
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert "did not end within" in capsys.readouterr().err


ALLOCATES = """
import resource
for _ in range(5):
    bytearray(2**26)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_a_training_on_a_cpu_keeps_the_memory_of_its_tensors(monkeypatch, request_of):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    faults = [
        int(subprocess.run([sys.executable, "-c", ALLOCATES], env=env, capture_output=True).stdout)
        for env in (dict(os.environ), supervise.environment(request_of(cpu=True)))
    ]
    assert faults[0] - faults[1] > 3 * 2**26 / os.sysconf("SC_PAGE_SIZE")
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=0")  # the user's own count
    own = supervise.environment(request_of(cpu=True, threads=3))
    assert own["GLIBC_TUNABLES"] == "glibc.malloc.check=0" and own["OMP_NUM_THREADS"] == "3"


def test_a_full_disk_ends_no_training(tmp_path, capfd):
    """Neither under the log, which is reported once, nor under the output."""
    file = os.open("/dev/full", os.O_WRONLY)
    with training_log.Log(file, "train.log", sys.stderr) as log:
        assert [log.write(b"a line\n") for _ in range(2)] == [7, 7]
    with contextlib.suppress(OSError), open("/dev/full", "w") as full:  # closing it fails, too
        training_log.tell("a line", full)
    told = capfd.readouterr().err
    assert told == (
        "train.log cannot be written: No space left on device: free some space; "
        "the program continues\n"
    )


def test_a_training_is_asked_to_end_when_nobody_reads_its_output(monkeypatch):
    signals = []
    monkeypatch.setattr(training_log.os, "kill", lambda pid, number: signals.append(number))
    ours, theirs = os.pipe()
    os.close(ours)
    with open(theirs, "w") as file:
        training_log.tell("a line", file)
    assert signals == [signal.SIGTERM]


def test_the_log_has_all_and_the_output_has_the_progress(tmp_path, capfd):
    with training_log.logged_to(tmp_path / "log") as say:
        print("printed")
        os.write(2, b"from C\n")
        subprocess.run(["sh", "-c", "echo of a child >&2"], check=True)
        training_log.logging.getLogger("a").info("M\u00fcnchen")
        say("progress")
    print("after")
    log = (tmp_path / "log").read_text("utf-8")
    assert log.startswith("printed\nfrom C\nof a child\n") and log.endswith("| a | M\u00fcnchen\n")
    assert capfd.readouterr().out == "progress\nafter\n"


def test_a_log_that_is_a_link_leaves_the_file_it_leads_to(tmp_path):
    mine = tmp_path / "mine"
    mine.write_text("mine")
    (tmp_path / "train.log").symlink_to(mine)
    with pytest.raises(OSError), training_log.logged_to(tmp_path / "train.log"):
        pass
    assert mine.read_text() == "mine"
