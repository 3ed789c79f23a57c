"""Run several programs at a time, each with a log; they end when their parent ends."""

import os
import platform
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fairseq_plugins.errors import ConfigurationError, killed_by
from fairseq_plugins.files import open_to_append
from fairseq_plugins.train.supervise import QUIET, end, start

SECONDS_BETWEEN_LINES = 20.0


class Jobs:
    """The programs that are running, each in its own process group.

    All of them end when this process ends, for whatever reason, and when `stop` is called.
    """

    def __init__(self) -> None:
        self._running: dict[subprocess.Popen[bytes], str] = {}  # with names for messages
        self._guard = threading.Lock()
        self._stopping = False

    def run(
        self,
        command: Sequence[str],
        log: Path,
        say: Callable[[str], None],
        gpus: Sequence[int] = (),
    ) -> None:
        """Run a program until it ends.

        Args:
            command: the program and its arguments.
            log: where its output is appended, after a line with the time and the command.
            say: called now and then with the last line of the log.
            gpus: the GPUs that the program sees, by their numbers in this process; empty: all.

        Raises:
            ConfigurationError: the program failed.
            KeyboardInterrupt: `stop` was called.
        """
        with open_to_append(log) as file:
            started = f"{time.strftime('%Y-%m-%d %H:%M:%S')} {platform.node()}"
            file.write(f"\n# {started}\n# {shlex.join(command)}\n")
            file.flush()
            before = log.stat().st_size
            with self._guard:
                if self._stopping:
                    raise KeyboardInterrupt
                process = start(command, _environment(gpus), file)
                self._running[process] = name = f"{log}: its program"
        try:
            while process.poll() is None:
                try:
                    process.wait(SECONDS_BETWEEN_LINES)
                except subprocess.TimeoutExpired:
                    for line in lines_of(log, before)[-1:]:
                        say(line)
        finally:
            end(process, name)
            del self._running[process]
        if self._stopping:
            raise KeyboardInterrupt
        if process.returncode:
            raise ConfigurationError(_reason(lines_of(log, before), process.returncode))

    def stop(self) -> None:
        """End all programs, which may save their state first; start no more."""
        with self._guard:
            self._stopping = True
            running = dict(self._running)
        for process in running:
            process.terminate()
        for process, name in running.items():
            end(process, name)


def _environment(gpus: Sequence[int]) -> dict[str, str]:
    environment = {**QUIET, **os.environ, "PYTHONIOENCODING": "utf-8"}
    if gpus:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        names = visible.split(",") if visible else None
        chosen = (names[gpu] if names else str(gpu) for gpu in gpus)
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(chosen)
    return environment


def lines_of(log: Path, start: int = 0) -> list[str]:
    """The lines with text of a log from a byte on, at most of its last 64 KiB."""
    with open(log, "rb") as file:
        file.seek(max(start, log.stat().st_size - 2**16))
        text = file.read().decode("utf-8", "replace")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _reason(lines: Sequence[str], status: int) -> str:
    """Why a program failed: the signal, the error that this package reports, or the last line."""
    if status < 0:
        return f"it was {killed_by(-status)}"
    errors = [line.removeprefix("error: ") for line in lines if line.startswith("error: ")]
    return [f"exit status {status}", *lines[-1:], *errors[-1:]][-1]
