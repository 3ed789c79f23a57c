"""Jobs end as a group, are logged, and run one at a time in a folder."""

import contextlib
import errno
import os
import platform
import resource
import sys
import threading
import time
from types import SimpleNamespace
from unittest import mock

import pytest
import torch

from fairseq_plugins import files
from fairseq_plugins.commands import train as train_command
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


def test_work_in_this_process_has_the_gpu_and_the_end_of_the_jobs(monkeypatch):
    used = []
    monkeypatch.setattr(torch.cuda, "device", lambda gpu: contextlib.nullcontext(used.append(gpu)))
    running = jobs.Jobs()
    with running.here():
        assert used == []
    with running.on([3, 0]).here() as check:
        assert used == [3]
        check()
        running.stop()
        with pytest.raises(KeyboardInterrupt):
            check()
    with pytest.raises(KeyboardInterrupt), running.on([3]).here():
        raise AssertionError("work began after the jobs were stopped")
    assert used == [3]


def test_an_interrupt_ends_the_program(tmp_path):
    lines = []

    def interrupted(line):
        lines.append(line)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        jobs.Jobs().run([sys.executable, "-c", SLEEPS], tmp_path / "log", interrupted)
    with pytest.raises(ProcessLookupError):
        os.kill(int(lines[0]), 0)


@pytest.mark.parametrize("full_until", [3, 5])
def test_a_full_disk_ends_no_program(full_until, tmp_path, capsys):
    """Its lines are written as soon as there is room; without it, the run failed."""
    log, lines = tmp_path / "log", []
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)

    def on_line(line):
        lines.append(line)
        if len(lines) == 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 3, limits[1]))
        if len(lines) == full_until:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    program = ["sh", "-c", "for n in 1 2 3 4; do echo line $n; done"]
    try:
        if full_until == 3:
            assert jobs.Jobs().run(program, log, on_line) == 0
            assert log.read_text().endswith("\nline 1\nline 2\nline 3\nline 4\n")
        else:
            with pytest.raises(jobs.JobFailed, match=f"{log} cannot be written: File too large: "):
                jobs.Jobs().run(program, log, on_line)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert lines == [f"line {number}\n" for number in (1, 2, 3, 4)]
    told = f"{log} cannot be written: File too large: make room; the program goes on\n"
    assert capsys.readouterr().err == told


def test_a_full_disk_is_told_once_though_the_program_is_interrupted(tmp_path, monkeypatch, capsys):
    def on_line(line):
        raise KeyboardInterrupt

    monkeypatch.setattr(jobs.os, "write", mock.Mock(side_effect=OSError(errno.ENOSPC, "full")))
    says = "trap 'echo is saved; exit 143' TERM; echo begins; sleep 1800 & wait"
    with pytest.raises(KeyboardInterrupt):
        jobs.Jobs().run(["sh", "-c", says], tmp_path / "log", on_line)
    assert capsys.readouterr().err.count("cannot be written: full: make room") == 1


def test_a_full_disk_under_the_output_ends_no_training(tmp_path, monkeypatch):
    """`train ... > out.txt` fills the same disk as its log."""
    lines = []

    def train(plan, running, say, planned):
        for line in ("update 1", "update 2"):
            say(line)
            lines.append(line)

    planned = mock.Mock(plan=SimpleNamespace(command=["fairseq-train"]))
    monkeypatch.setattr(train_command.process, "Planned", lambda request, running: planned)
    monkeypatch.setattr(train_command.launch, "train", train)
    with contextlib.suppress(OSError), open("/dev/full", "w") as full:  # closing it fails, too
        monkeypatch.setattr(sys, "stdout", full)
        assert train_command.main(["transformer_ftc", str(tmp_path)]) == 0
    assert lines == ["update 1", "update 2"]


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
        (["# now", "# x", "[rank0]: ValueError: a", "INFO b"], "ValueError: a"),
        (["# now", "# x", "error: --lr 1: no"], "--lr 1: no"),
        (["ValueError: before", "# now", "# x", "a", "", "f.py: UserWarning: c", "d"], "a / d"),
        (
            ["[rank0]: OSError: a", "[rank1]: RuntimeError: [gloo/x] Connection closed by peer"],
            "OSError: a",
        ),
        (["RuntimeError: Connection reset by peer"], "RuntimeError: Connection reset by peer"),
        (["torch.SomeError: big", "x.ChildFailedError: "], "torch.SomeError: big"),
        (
            [
                "[rank0]: RuntimeError: [gloo/transport/tcp/pair.cc:534] Connection closed by peer",
                "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
                "  rank      : 0 (local_rank: 0)",
                "  exitcode  : 1 (pid: 12)",
                "  rank      : 1 (local_rank: 1)",
                "  exitcode  : -9 (pid: 13)",
            ],
            "process 1 was killed by SIGKILL, probably for lack of memory",
        ),
        (
            ["ValueError: a", "  rank      : 1 (local_rank: 1)", "  exitcode  : -15 (pid: 13)"],
            "ValueError: a",
        ),
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


@pytest.mark.parametrize("asked, expected", [(3, "3\n"), (None, "2\n")])
def test_threads_that_are_asked_for_count_more_than_exported_ones(
    tmp_path, monkeypatch, asked, expected
):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    lines = []
    command = ["sh", "-c", "echo $OMP_NUM_THREADS"]
    jobs.Jobs().run(command, tmp_path / "log", lines.append, threads=asked)
    assert lines == [expected]


ALLOCATES = """
import resource
for _ in range(5):
    bytearray(2**26)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_a_program_on_a_cpu_keeps_the_memory_of_its_tensors(tmp_path, monkeypatch):
    monkeypatch.delenv("GLIBC_TUNABLES", raising=False)
    faults = []
    for threads in (None, 1):
        command = [sys.executable, "-c", ALLOCATES]
        status = jobs.Jobs().run(command, tmp_path / "log", faults.append, threads=threads)
        assert status == 0
    given, kept = map(int, faults)
    assert given - kept > 3 * 2**26 / os.sysconf("SC_PAGE_SIZE")


def test_the_users_own_memory_settings_are_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.check=0")
    lines = []
    command = ["sh", "-c", "echo $GLIBC_TUNABLES"]
    jobs.Jobs().run(command, tmp_path / "log", lines.append, threads=1)
    assert lines == ["glibc.malloc.check=0\n"]


def test_a_program_that_does_not_end_is_killed_and_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(jobs, "SECONDS_TO_SAVE", 0.1)

    def interrupted(line):
        raise KeyboardInterrupt

    deaf = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + SLEEPS
    with pytest.raises(KeyboardInterrupt):
        jobs.Jobs().run([sys.executable, "-c", deaf], tmp_path / "log", interrupted)
    told = capsys.readouterr().err
    assert told.startswith(f"{tmp_path / 'log'}: its program did not end") and "was killed" in told


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


def test_a_file_system_without_locks_is_told(tmp_path, monkeypatch, capsys):
    def refuse(file, operation):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(files.fcntl, "flock", refuse)
    with jobs.alone_in(tmp_path, "training"):
        told = capsys.readouterr().err
    assert told == (
        f"{tmp_path} cannot be locked (Function not implemented): make sure that no other training "
        "runs there\n"
    )


def test_a_lock_or_log_that_is_a_link_leaves_the_file_it_leads_to(tmp_path):
    mine, folder = tmp_path / "mine", tmp_path / "run"
    folder.mkdir()
    mine.write_text("mine")
    for name in ("lock", "train.log"):
        (folder / name).symlink_to(mine)
    with pytest.raises(ConfigurationError, match=f"{folder}/lock is a link: remove it"):
        with jobs.alone_in(folder, "training"):
            pass
    with pytest.raises(OSError):
        jobs.Jobs().run(["echo", "output"], folder / "train.log", print)
    assert mine.read_text() == "mine"
