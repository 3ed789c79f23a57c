"""Run several programs at a time, each with a log; they end when their parent ends."""

import copy
import os
import platform
import re
import shlex
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fairseq_plugins.errors import killed_by
from fairseq_plugins.files import open_to_append
from fairseq_plugins.train.log import Log
from fairseq_plugins.train.supervise import QUIET, end, end_with_the_parent


class Jobs:
    """The programs that are running, each in its own process group.

    All of them end when this process ends, for whatever reason, and when `stop` is called.
    """

    def __init__(self) -> None:
        self._running: dict[subprocess.Popen[str], str] = {}  # with names for messages
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

    def run(self, command: Sequence[str], log: Path, on_line: Callable[[str], None]) -> int:
        """Run a program; returns its exit status.

        Args:
            command: the program and its arguments.
            log: where its output is appended, after a line with the time and the command.
            on_line: called with each line of the output.

        Raises:
            KeyboardInterrupt: `stop` was called.
        """
        started = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {platform.node()}"
        with (
            open_to_append(log) as opened,
            Log(os.dup(opened.fileno()), str(log), sys.stderr) as file,
        ):
            file.write(f"\n# {started}\n# {shlex.join(command)}\n".encode())
            with self._guard:
                if self._stopping.is_set():
                    raise KeyboardInterrupt
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    encoding="utf-8",
                    errors="replace",
                    env=self._environment(),
                    preexec_fn=end_with_the_parent,
                    start_new_session=True,
                )
                self._running[process] = name = f"{log}: its program"
            output = process.stdout
            assert output is not None

            def read(on_line: Callable[[str], None]) -> None:
                for line in output:
                    if file.closed:  # children of a killed program still write
                        return
                    file.write(line.encode())
                    on_line(line)

            rest = threading.Thread(target=read, args=(lambda line: None,), daemon=True)
            try:
                read(on_line)
                process.wait()
            except BaseException:
                rest.start()  # log what it writes while it ends
                raise
            finally:
                end(process, name)
                del self._running[process]
                if rest.ident is not None:
                    rest.join(1)  # in case another process holds the pipe
                if not rest.is_alive():
                    output.close()
            if self._stopping.is_set():
                raise KeyboardInterrupt
        return process.returncode

    def _environment(self) -> dict[str, str]:
        found = {**QUIET, **os.environ, "PYTHONIOENCODING": "utf-8"}
        if self._gpus:
            visible = os.environ.get("CUDA_VISIBLE_DEVICES")
            names = visible.split(",") if visible else None
            found["CUDA_VISIBLE_DEVICES"] = ",".join(
                names[gpu] if names else str(gpu) for gpu in self._gpus
            )
        return found

    def stop(self) -> None:
        """End all programs, which may save their state first; start no more."""
        with self._guard:
            self._stopping.set()
            running = dict(self._running)
        for process in running:
            process.terminate()
        for process, name in running.items():
            end(process, name)


def failure_in(log: Path, status: int) -> str:
    """Why the last run in a log failed, by its exit status and the error in the log (if any)."""
    if status < 0:
        return f"it was {killed_by(-status)}"
    lines: list[str] = []
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("# "):
            lines.clear()
        else:
            lines.append(line)
    errors = [
        line
        for line in lines
        if re.match(r"error: |([A-Za-z_]+\.)*[A-Za-z_]*(Error|Exception)\b", line)
    ]
    told = [line.strip() for line in lines if line.strip() and not re.search(r"Warning\b", line)]
    return re.sub("^error: ", "", errors[-1]) if errors else " / ".join(told[-3:])
