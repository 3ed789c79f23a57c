"""Apply a function to every line in several processes, in order, with a progress bar."""

import collections
import contextlib
import functools
import gc
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import Any

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import in_groups
from fairseq_plugins.options.fields import MOST, option
from fairseq_plugins.system.progress import progress_bar

# Limits of a chunk, and how many chunks are in memory per process: never a whole corpus.
LINES_PER_CHUNK = 500
CHARACTERS_PER_CHUNK = 1 << 20
CHUNKS_PER_WORKER = 4

_function: Callable[..., Any] | None = None


def default_workers() -> int:
    """The number of cores that this process may use, at most 16."""
    return min(16, len(os.sched_getaffinity(0)))


@dataclass
class Workers:
    """The option of commands that prepare data."""

    workers: int = option(default_workers(), "the number of processes", least=1, most=MOST)


def map_lines(
    function: Callable[[Any], Any],
    lines: Iterable[Any],
    workers: int,
    description: str,
    total: int | None = None,
    most: int | None = None,
    show: bool = True,
    option: str = "--workers",
) -> Iterator[Any]:
    """`map(function, lines)`, in the order of `lines`.

    Args:
        function: maps a line to its result, which must depend on that line only.
        lines: strings or tuples of strings, read on demand.
        workers: number of processes; 1 uses this process only.
        description: the text of the progress bar.
        total: the number of lines, for the bar.
        most: lines that a process gets at a time, where not `LINES_PER_CHUNK`.
        show: whether to show the bar.
        option: the user's option that sets `workers`, for an error; empty if there is none.

    Raises:
        ConfigurationError: a process was killed.
    """
    most = most or LINES_PER_CHUNK
    with progress_bar(
        description=description, total=total, show=show, unit=" lines", unit_scale=True
    ) as bar:
        if workers <= 1 or (total is not None and total <= most):
            for line in lines:
                yield function(line)
                bar.update()
            return
        pending: collections.deque[Any] = collections.deque()
        with _pool(function, workers, killed(workers, description, option)) as pool:
            for chunk in in_groups(lines, most, CHARACTERS_PER_CHUNK):
                pending.append(pool.submit(_apply, chunk))
                if len(pending) > CHUNKS_PER_WORKER * workers:
                    yield from _results(pending, bar)
            while pending:
                yield from _results(pending, bar)


def map_batches(
    begin: Callable[[], Callable[[Any], Any]],
    batches: Iterable[Any],
    processes: int,
    spawn: bool = False,
) -> Iterator[Any]:
    """Like `map(begin(), batches)`, in several processes and in order.

    Args:
        begin: makes the function, in each process, before a batch is read.
        batches: read on demand, two per process.
        processes: their number.
        spawn: whether they start anew, as a fork cannot use a GPU or the threads of its parent;
            then `begin` is pickled.

    Raises:
        ConfigurationError: a process was killed.
    """
    pending: collections.deque[Any] = collections.deque()
    message = (
        f"one of {processes} processes was killed, perhaps for lack of memory: give fewer "
        "--processes"
    )
    context = spawn_context() if spawn else None
    with _pool(begin, processes, message, context, _remember_maker) as pool:
        for task in [pool.submit(_make) for _ in range(processes)]:
            task.result()  # an error comes before a batch is read
        for batch in batches:
            pending.append(pool.submit(_apply_made, batch))
            if len(pending) == 2 * processes:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


def on_share(begin: Callable[[], Any], processes: int, cpu: bool) -> Any:
    """`begin()`, for torch in one process of several: on its GPU, or with its share of the cores.

    What it prints is no output of the command.
    """
    import torch

    gpus = 0 if cpu else torch.cuda.device_count()
    if gpus:
        torch.cuda.set_device(multiprocessing.current_process()._identity[0] % gpus)
    else:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // processes))
    sys.stdout = sys.stderr
    return begin()


@contextlib.contextmanager
def _pool(
    function: Callable[..., Any],
    processes: int,
    killed: str,
    context: Any = None,
    remember: Callable[..., None] | None = None,
) -> Iterator[ProcessPoolExecutor]:
    """Processes that know a function. Any error, or an interrupt, stops what they compute.

    Raises:
        ConfigurationError: a process was killed; its text is `killed`.
    """
    # fork, so that the function and its models need no pickling
    context = context or multiprocessing.get_context("fork")
    with ProcessPoolExecutor(processes, context, remember or _remember, (function,)) as pool:
        try:
            yield pool
        except BaseException as error:  # also of a caller that wants no more results
            terminate(pool)
            if isinstance(error, BrokenProcessPool):
                raise ConfigurationError(killed) from None
            raise


def spawn_context() -> Any:
    """The "spawn" of multiprocessing, with a tracker of semaphores that a closed terminal spares.

    SIGHUP would end Python's tracker, and a new one prints a traceback for each semaphore.
    """
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # which the tracker inherits
    try:
        resource_tracker.ensure_running()
    finally:
        signal.signal(signal.SIGHUP, before)
    return multiprocessing.get_context("spawn")


def terminate(pool: ProcessPoolExecutor) -> None:
    """End the processes of a pool at once; otherwise its shutdown waits for their tasks."""
    for process in list((pool._processes or {}).values()):
        process.terminate()


def killed(workers: int, description: str, option: str = "--workers") -> str:
    """The message if one of several processes was killed."""
    fewer = f" or give fewer {option}" if option else ""
    return (
        f"one of {workers} processes was killed ({description}), perhaps for lack of memory: free "
        f"memory{fewer}, and rerun"
    )


def _results(pending: collections.deque[Any], bar: Any) -> Iterator[Any]:
    results = pending.popleft().result()
    yield from results
    bar.update(len(results))


def _remember(function: Callable[..., Any]) -> None:
    global _function
    _function = function
    belong_to_parent()


def _remember_maker(begin: Callable[[], Any]) -> None:
    _remember(functools.lru_cache(begin))


def belong_to_parent() -> None:
    """Let this worker process ignore Ctrl-C, which its parent handles, and end with its parent.

    It collects no garbage of its parent: what owns threads, such as onnxruntime's sessions, waits
    for them when it goes, and a fork has none of them.
    """
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # not the handler of the parent's command
    # otherwise a worker would outlive a killed parent and keep the folder locked
    threading.Thread(target=_exit_with_parent, daemon=True).start()


def _exit_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _make() -> None:
    assert _function is not None
    _function()


def _apply_made(batch: Any) -> Any:
    assert _function is not None
    return _function()(batch)


def _apply(chunk: list[Any]) -> list[Any]:
    assert _function is not None
    return [_function(line) for line in chunk]
