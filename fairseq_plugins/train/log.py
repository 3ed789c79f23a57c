"""The log of a program, which has all of its output, and lines for its user."""

import contextlib
import io
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from fairseq_plugins.files import open_to_append


class Log(io.FileIO):
    """A log file; where it cannot be written, such as on a full disk, its lines are lost."""

    def __init__(self, file: int, name: str, errors: IO[str] | None):
        super().__init__(file, "a")
        self._name, self._errors = name, errors

    def write(self, data: object) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            if self._errors is not None:
                why = f"{error.strerror}: free some space; the program continues"
                tell(f"{self._name} cannot be written: {why}", self._errors)
                self._errors = None
            return len(memoryview(data))  # type: ignore[arg-type]


def tell(line: str, file: IO[str] | None = None) -> None:
    """Print a line, by default to standard output, where there is room: programs go on without.

    A training whose reader is gone is asked to end: it saves its state.
    """
    try:
        print(line, file=file, flush=True)
    except BrokenPipeError:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, (file or sys.stdout).fileno())  # Python writes the rest at its end
        os.kill(os.getpid(), signal.SIGTERM)
    except OSError:  # such as a full disk; the next line tries again
        pass


@contextlib.contextmanager
def logged_to(path: Path | None) -> Iterator[Callable[[str], None]]:
    """Send all that this process and those it starts write to a log.

    Args:
        path: the log; None if standard error leads to it already.

    Yields:
        a function that prints a line to standard output.

    Raises:
        OSError: the log cannot be opened.
    """
    output, errors = sys.stdout, sys.stderr
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    with contextlib.ExitStack() as stack:
        if path is not None:
            file = stack.enter_context(open_to_append(path))
            before = os.dup(2)
            stack.callback(os.close, before)
            stack.callback(os.dup2, before, 2)
            os.dup2(file.fileno(), 2)
        raw = Log(os.dup(2), str(path), errors if path is not None else None)
        log = io.TextIOWrapper(
            io.BufferedWriter(raw), "utf-8", "backslashreplace", line_buffering=True
        )
        stack.enter_context(log)
        stack.enter_context(contextlib.redirect_stdout(log))
        stack.enter_context(contextlib.redirect_stderr(log))
        logging.basicConfig(  # as fairseq does; it leaves these handlers
            format="%(asctime)s | %(levelname)s | %(name)s | %(message)s",
            datefmt="%Y-%m-%d %H:%M:%S",
            level=os.environ.get("LOGLEVEL", "INFO").upper(),
            stream=log,
            force=True,
        )
        try:
            yield lambda line: tell(line, output)
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
