"""Run programs: one at a time in a folder, with a log; they end when their parent ends."""

import contextlib
import copy
import ctypes
import os
import platform
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Optional

from fairseq_plugins.errors import ConfigurationError, killed_by
from fairseq_plugins.files import lock, open_to_append

LIBC = ctypes.CDLL(None)
LOST = "Connection (closed|reset) by peer"
# seconds; data loaders of a killed training hold the lock for 5 s, until they notice
PATIENCE = 8.0
# seconds that a training gets to save its state when it is asked to end; more than the 30 after
# which torchrun kills its processes
SECONDS_TO_SAVE = 40.0
# On a CPU, glibc returns the memory of large tensors to the system, which clears it before the
# next step uses it. Keeping it, in large pages and one arena, trains small models in 0.87 to 0.89
# of the time.
KEEP_MEMORY = ":".join(
    f"glibc.malloc.{name}={value}"
    for name, value in {
        "mmap_threshold": 2**32,
        "trim_threshold": 2**33,
        "arena_max": 1,
        "hugetlb": 1,  # glibc 2.35 and later; older ones ignore it
    }.items()
)


def tell(line: str, file: IO[str] | None = None) -> None:
    """Print a line, by default to standard output, where there is room: programs go on without."""
    try:
        print(line, file=file, flush=True)
    except BrokenPipeError:
        raise
    except OSError:  # such as a full disk; the next line tries again
        pass


class JobFailed(ConfigurationError):
    """A program failed; the message names the cause and the log."""


@contextlib.contextmanager
def alone_in(folder: Path, work: str, patience: float | None = None) -> Iterator[IO[str]]:
    """Hold the lock of a folder until the block ends; yields the lock's file.

    Args:
        folder: created if it does not exist.
        work: what the process does there, such as "training", for the message.
        patience: seconds to wait for another process to end (default: `PATIENCE`).

    Raises:
        ConfigurationError: another process holds the lock, or the folder cannot be written.
    """
    path = folder / "lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open_to_append(path)
    except OSError as error:
        what = f"{path} is a link: remove it" if path.is_symlink() else error.strerror
        raise ConfigurationError(f"{folder} cannot be written: {what}") from None
    until = time.monotonic() + (PATIENCE if patience is None else patience)
    with file:
        while True:
            try:
                lock(file, folder, work)
                break
            except BlockingIOError:
                if time.monotonic() > until:
                    raise ConfigurationError(
                        f"another {work} is running in {folder}: wait for it, or stop it"
                    ) from None
                time.sleep(0.2)
        yield file


class Jobs:
    """The programs that are running, each in its own process group.

    All of them end when this process ends, for whatever reason, and when `stop` is called.
    """

    def __init__(self) -> None:
        self._running: dict[subprocess.Popen[str], Path] = {}  # with their logs
        self._guard = threading.Lock()
        self._stopping = threading.Event()
        self._gpus: Sequence[int] = ()  # numbers in this process; empty: all

    def on(self, gpus: Sequence[int]) -> "Jobs":
        """The same jobs, with programs that see only these GPUs.

        Args:
            gpus: their numbers in this process, which may itself see only some of the machine's
                GPUs; if empty, programs see what this process sees.
        """
        jobs = copy.copy(self)
        jobs._gpus = gpus
        return jobs

    @contextlib.contextmanager
    def here(self) -> Iterator[Callable[[], None]]:
        """Work in this process, on the first of the GPUs of `on`.

        Yields:
            a function to call between steps; it raises KeyboardInterrupt after `stop`.
        """

        def check() -> None:
            if self._stopping.is_set():
                raise KeyboardInterrupt

        check()
        import torch  # slow, and not needed to watch a training

        with torch.cuda.device(self._gpus[0]) if self._gpus else contextlib.nullcontext():
            yield check

    def start(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
        held: IO[str] | None = None,
        stdin: int = subprocess.DEVNULL,
        stderr: int | None = subprocess.STDOUT,
    ) -> "subprocess.Popen[str]":
        """Start a program; `run` reads its output and waits for it.

        Args:
            command: the program and its arguments.
            environment: of `environment`.
            log: named in the message if the program does not end.
            held: the lock of the folder; the program inherits it, as it may outlive this process.
            stdin, stderr: its standard input and standard error.

        Raises:
            KeyboardInterrupt: `stop` was called.
        """
        with self._guard:
            if self._stopping.is_set():
                raise KeyboardInterrupt
            process = subprocess.Popen(
                command,
                stdin=stdin,
                stdout=subprocess.PIPE,
                stderr=stderr,
                encoding="utf-8",
                errors="replace",
                env=environment,
                preexec_fn=end_with_the_parent,
                start_new_session=True,
                pass_fds=[held.fileno()] if held else [],
            )
            self._running[process] = log
        return process

    def run(
        self,
        command: Sequence[str],
        log: Path,
        on_line: Callable[[str], None],
        held: IO[str] | None = None,
        threads: int | None = None,
        begun: Optional["subprocess.Popen[str]"] = None,
    ) -> int:
        """Run a program; returns its exit status.

        Args:
            command: the program and its arguments.
            log: where its output is appended, after a line with the time and the command.
            on_line: called with each line of the output.
            held: the lock of the folder, for `start`.
            threads: number of threads of a program that computes on the CPU; None leaves it to
                OMP_NUM_THREADS and torch.
            begun: a process that `start` returned for this command.

        Raises:
            KeyboardInterrupt: `stop` was called.
            JobFailed: the log cannot be written even when the program has ended.
        """
        with open_to_append(log) as file:
            file.write(f"\n# {time.strftime('%Y-%m-%d %H:%M:%S')} {platform.node()}\n# ")
            file.write(shlex.join(command) + "\n")
            file.flush()
            process = begun or self.start(command, self.environment(threads), log, held)
            output = process.stdout
            assert output is not None

            unwritten = bytearray()

            def write() -> None:
                while unwritten:
                    del unwritten[: os.write(file.fileno(), unwritten)]

            def read(on_line: Callable[[str], None]) -> None:
                for line in output:
                    if file.closed:  # children of a killed program still write
                        return
                    told = bool(unwritten)
                    unwritten.extend(line.encode())
                    try:
                        write()
                    except OSError as error:  # the program goes on, and the line is kept
                        why = f"{error.strerror}: make room; the program goes on"
                        if not told:
                            tell(f"{log} cannot be written: {why}", sys.stderr)
                    on_line(line)

            rest = threading.Thread(target=read, args=(lambda line: None,), daemon=True)
            try:
                read(on_line)
                process.wait()
            except BaseException:
                rest.start()  # log what it writes while it ends
                raise
            finally:
                self.end(process)
                if rest.ident is not None:
                    rest.join(1)  # in case another process holds the pipe
                if not rest.is_alive():
                    output.close()
            if self._stopping.is_set():
                raise KeyboardInterrupt
            try:
                write()
            except OSError as error:
                raise JobFailed(
                    f"{log} cannot be written: {error.strerror}: make room, and rerun"
                ) from None
        return process.returncode

    def end(self, process: "subprocess.Popen[str]") -> None:
        """End a process from `start`, and its children."""
        with self._guard:
            log = self._running.pop(process, None)
        if log is not None:
            _end({process: log})

    def environment(self, threads: int | None) -> dict[str, str]:
        """The environment of a program; see `run`."""
        environment = dict(os.environ, PYTHONUNBUFFERED="1", PYTHONIOENCODING="utf-8")
        # fairseq uses it while it is imported, before this package can act; told since torch 2.14
        environment.setdefault("PYTHONWARNINGS", "ignore:`torch.jit.script`:FutureWarning")
        # threads that spin while waiting would take processor time from other programs
        environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
        if self._gpus:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            names = visible.split(",") if visible else None
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(
                names[gpu] if names else str(gpu) for gpu in self._gpus
            )
        if threads is not None:
            environment["OMP_NUM_THREADS"] = str(threads)
            environment.setdefault("GLIBC_TUNABLES", KEEP_MEMORY)
        return environment

    def stop(self) -> None:
        """End all programs after up to `SECONDS_TO_SAVE`; start no more."""
        with self._guard:
            self._stopping.set()
            running = dict(self._running)
        _end(running)


def end_with_the_parent() -> None:
    """Let this process get SIGTERM when its parent ends (Linux only)."""
    with contextlib.suppress(AttributeError):  # only Linux has prctl
        LIBC.prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def _end(processes: Mapping["subprocess.Popen[str]", Path]) -> None:
    """End running processes with SIGTERM, then the rest of their groups with SIGKILL."""
    running = [process for process in processes if process.poll() is None]
    for process in running:
        process.terminate()
    until = time.monotonic() + SECONDS_TO_SAVE
    while any(process.poll() is None for process in running) and time.monotonic() < until:
        time.sleep(0.05)
    for process in running:
        if process.poll() is None:
            tell(
                f"{processes[process]}: its program did not end within {SECONDS_TO_SAVE:.0f} s and "
                "was killed; a training resumes from its last checkpoint",
                sys.stderr,
            )
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    for process in running:
        process.wait()


def failure_in(log: Path, status: int) -> str:
    """Why the last run in a log failed, by its exit status and the error in the log (if any)."""
    if status < 0:
        return f"it was {killed_by(-status)}"
    lines: list[str] = []
    killed = ""
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("# "):
            lines.clear()
            killed = ""
        else:
            lines.append(re.sub(r"^\[rank\d+\]: ?", "", line))
        killed = killed or _killed(lines[-2:])
    if killed:  # the other processes only report losing it
        return killed
    errors = [
        line
        for line in lines
        if re.match(r"error: |([A-Za-z_]+\.)*[A-Za-z_]*(Error|Exception)\b", line)
        and "ChildFailedError" not in line
    ]
    # of several processes, the others only report losing the one that failed
    errors = [line for line in errors if not re.search(LOST, line)] or errors
    told = [line.strip() for line in lines if line.strip() and not re.search(r"Warning\b", line)]
    return re.sub("^error: ", "", errors[-1]) if errors else " / ".join(told[-3:])


def _killed(lines: Sequence[str]) -> str:
    """How a process was killed, by torchrun's two lines about it; empty for others."""
    found = re.search(r"rank +: (\d+) .*\n +exitcode +: -(\d+)", "\n".join(lines))
    if found is None or int(found[2]) == signal.SIGTERM:  # with which torchrun ends the others
        return ""
    return f"process {found[1]} was {killed_by(int(found[2]))}"
