"""Start a training in a process of its own, and report what a killed process cannot.

The environment of a process counts from its beginning: C's memory allocator and OpenMP read it.
Nothing here needs torch or fairseq.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

from fairseq_plugins.errors import TERMINATED, ConfigurationError, killed_by
from fairseq_plugins.system.cpu import available_threads
from fairseq_plugins.train.log import tell
from fairseq_plugins.train.request import TrainingRequest

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
QUIET = {
    "PYTHONUNBUFFERED": "1",
    "PYTHONIOENCODING": ":backslashreplace",
    # fairseq uses it while it is imported, before this package can act; told since torch 2.14
    "PYTHONWARNINGS": "ignore:`torch.jit.script`:FutureWarning",
    # threads that spin while waiting would take processor time from other programs
    "OMP_WAIT_POLICY": "PASSIVE",
}


def supervise(request: TrainingRequest, argv: Sequence[str]) -> int:
    """Train in a process of its own, which ends with this one; returns its exit status.

    Args:
        request: what `argv` asks for.
        argv: the arguments of the command.

    Raises:
        ConfigurationError: the process was killed, or asked to end by others.
        KeyboardInterrupt: this process was asked to end; the training has saved its state.
    """
    words = [sys.executable, "-m", "fairseq_plugins.cli.train", *argv]
    process = start(words, environment(request))
    try:
        status = process.wait()
    finally:
        end(process, f"{request.run.folder}: the training")
    if status == TERMINATED:
        raise ConfigurationError(f"{request.name}: stopped by SIGTERM")
    if status < 0:
        log = "" if request.dry_run else f"; its log is {request.run.log(request.machines[1])}"
        raise ConfigurationError(
            f"{request.name}: training failed: it was {killed_by(-status)}{log}"
        )
    return status


def environment(request: TrainingRequest) -> dict[str, str]:
    """The environment of the process that plans and trains."""
    variables = {**QUIET, **os.environ}
    on_cpu = request.cpu or not has_gpu_files()  # a guess before torch can tell
    return {**variables, **of_cpu(threads_of(request))} if on_cpu else variables


def threads_of(request: TrainingRequest, processes: int | None = None) -> int:
    """Processor threads of each process on a CPU."""
    return request.threads or available_threads(processes or request.processes or 1)


def of_cpu(threads: int) -> dict[str, str]:
    """Variables for a process that trains on the CPU with so many threads."""
    tunables = os.environ.get("GLIBC_TUNABLES", KEEP_MEMORY)
    return {"OMP_NUM_THREADS": str(threads), "GLIBC_TUNABLES": tunables}


def has_gpu_files() -> bool:
    """Whether the system shows a GPU; does not start the driver, which is slow."""
    names = "nvidia[0-9]*", "kfd", "dxg"  # of CUDA, of ROCm, of Windows
    return any(path for name in names for path in Path("/dev").glob(name))


def start(
    command: Sequence[str], environment: Mapping[str, str], output: IO[str] | None = None
) -> "subprocess.Popen[bytes]":
    """Start a program that ends when this process ends; see also `end`.

    Ctrl-C reaches only this process, which asks the other to end. All its output goes to a file,
    if there is one.
    """
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        env=environment,
        preexec_fn=end_with_the_parent,
        start_new_session=True,
    )


def end_with_the_parent() -> None:
    """Let this process get SIGTERM when its parent ends."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)  # PR_SET_PDEATHSIG


def end(process: "subprocess.Popen[bytes]", what: str) -> None:
    """Send SIGTERM, wait until the process has saved its state, and kill what is left of its group.

    Args:
        process: the leader of its group; it may have ended.
        what: its name, for a message if it does not end.
    """
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(SECONDS_TO_SAVE)
    if process.poll() is None:
        left = f"did not end within {SECONDS_TO_SAVE:.0f} s and was killed"
        tell(f"{what} {left}; a training resumes from its last checkpoint", sys.stderr)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
