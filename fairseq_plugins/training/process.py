"""The process that plans a training and then runs it, so that fairseq is imported once.

    python -m fairseq_plugins.training.process

Its standard input is a socket to the command `train`. The command needs neither torch nor fairseq,
reads the output, keeps the log and outlives a killed training. It sends a `TrainingRequest` and
receives the `Plan` or an error. It then sends the arguments of fairseq-train and the lock of the
folder, which this process holds until it ends, or it closes the socket.
"""

import argparse
import contextlib
import logging
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Sequence
from multiprocessing import reduction
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO

from fairseq_plugins.cpu import available_threads
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.training.jobs import Jobs
from fairseq_plugins.training.request import Plan, TrainingRequest


class Planned:
    """A planning process, as its parent sees it.

    Args:
        request: what to train.
        jobs: runs the process, and ends it.

    Attributes:
        plan: the plan of the training.

    Raises:
        ConfigurationError: the data, an option or their combination cannot work.
    """

    def __init__(self, request: TrainingRequest, jobs: Jobs):
        # a guess before torch can tell whether there is a GPU; if wrong, the process only plans
        on_cpu = request.cpu or not has_gpu_files()
        threads = request.threads or available_threads(request.processes or 1)
        self.environment = jobs.environment(threads if on_cpu else None)
        self.connection, theirs = multiprocessing.Pipe()
        with theirs:
            self.process = jobs.start(
                [sys.executable, "-m", "fairseq_plugins.training.process"],
                self.environment,
                request.run.log(request.nodes),
                stdin=theirs.fileno(),
                stderr=None,
            )
        try:
            self.connection.send(request)
            answer = self.connection.recv()
        except (EOFError, OSError):
            raise ConfigurationError("planning the training failed: see above") from None
        if isinstance(answer, Exception):
            raise answer
        self.plan: Plan = answer

    def begin(self, words: Sequence[str], held: IO[str] | None) -> None:
        """Let the process train with these arguments and hold this lock."""
        self.connection.send((list(words), held is not None))
        if held is not None:
            reduction.send_handle(self.connection, held.fileno(), self.process.pid)

    def dismiss(self) -> None:
        """Let a process that did not begin end by itself: killed, it leaves semaphores."""
        self.connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)


def has_gpu_files() -> bool:
    """Whether the system shows a GPU; does not start the driver, which is slow."""
    names = "nvidia[0-9]*", "kfd", "dxg"  # of CUDA, of ROCm, of Windows
    return any(found for name in names for found in Path("/dev").glob(name))


def main() -> None:
    """Plan, and train if asked to."""
    connection = Connection(os.dup(0))
    request = connection.recv()
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    try:
        import fairseq_plugins

        fairseq_plugins.register("train")
        from fairseq_plugins.training import planning

        todo = planning.plan(request)
    except (ConfigurationError, OSError) as error:
        connection.send(error)
        return
    connection.send(todo._replace(given=argparse.Namespace()))
    try:
        words, locked = connection.recv()
    except EOFError:  # nothing to train, or not in this process
        return
    lock = reduction.recv_handle(connection) if locked else None  # noqa: F841  open until the end
    os.dup2(1, 2)
    logging.getLogger().handlers.clear()  # from planning; fairseq-train adds its own
    sys.argv = ["fairseq-train", *words]
    from fairseq_cli import train

    train.cli_main()


if __name__ == "__main__":
    main()
