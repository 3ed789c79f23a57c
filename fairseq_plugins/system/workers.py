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
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import resource_tracker
from typing import Any

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import in_groups
from fairseq_plugins.options.fields import MOST, option
from fairseq_plugins.system.cpu import available_threads
from fairseq_plugins.system.progress import progress_bar

# Limits of a chunk, and how many chunks are in memory per process: never a whole corpus.
LINES_PER_CHUNK = 500
CHARACTERS_PER_CHUNK = 1 << 20
CHUNKS_PER_WORKER = 4

_function: Callable[[], Any] | None = None  # makes the function, once


def default_workers() -> int:
    """The number of cores that this process may use, at most 16."""
    return min(16, len(os.sched_getaffinity(0)))


@dataclass
class Workers:
    """The option of commands that prepare data."""

    workers: int = option(default_workers(), "the number of processes", least=1, most=MOST)


def map_lines(
    function: Callable[[Any], Any], lines: Iterable[Any], *how: Any, **more: Any
) -> Iterator[Any]:
    """`map(function, lines)`; see `map_groups` for the other arguments."""
    groups = map_groups(lambda group: list(map(function, group)), lines, *how, **more)
    with contextlib.closing(groups):
        for results in groups:
            yield from results


def map_groups(
    function: Callable[[list[Any]], Any],
    lines: Iterable[Any],
    workers: int,
    description: str,
    total: int | None = None,
    most: int | None = None,
    show: bool = True,
    option: str = "--workers",
) -> Generator[Any, None, None]:
    """The results of a function for groups of lines, in the order of `lines`.

    Args:
        function: maps a list of lines to its result.
        lines: strings or tuples of strings, read on demand.
        workers: number of processes; 1 uses this process only.
        description: the text of the progress bar.
        total: the number of lines, for the bar.
        most: lines of a group, where not `LINES_PER_CHUNK`.
        show: whether to show the bar.
        option: the user's option that sets `workers`, for an error; empty if there is none.

    Raises:
        ConfigurationError: a process was killed.
    """
    most = most or LINES_PER_CHUNK
    groups = in_groups(lines, most, CHARACTERS_PER_CHUNK)
    with progress_bar(
        description=description, total=total, show=show, unit=" lines", unit_scale=True
    ) as bar:
        if workers <= 1 or (total is not None and total <= most):
            for group in groups:
                yield function(group)
                bar.update(len(group))
            return
        begin: Any = lambda: lambda group: (len(group), function(group))  # noqa: E731
        message = killed(workers, description, option)
        results = map_batches(begin, groups, workers, False, CHUNKS_PER_WORKER, message)
        with contextlib.closing(results):
            for size, result in results:
                yield result
                bar.update(size)


def map_batches(
    begin: Callable[[], Callable[[Any], Any]],
    batches: Iterable[Any],
    processes: int,
    spawn: bool = False,
    ahead: int = 2,
    message: str = "",
) -> Generator[Any, None, None]:
    """Like `map(begin(), batches)`, in several processes and in order.

    Args:
        begin: makes the function, in each process, before a batch is read.
        batches: read on demand.
        processes: their number.
        spawn: whether they start anew, as a fork cannot use a GPU or the threads of its parent;
            then `begin` is pickled.
        ahead: batches that are read at a time, for each process.
        message: of the error; empty for that of a command with --processes.

    Raises:
        ConfigurationError: a process was killed.
    """
    message = message or killed(processes, "", "--processes")
    # fork, so that the function and its models need no pickling
    context = spawn_context() if spawn else multiprocessing.get_context("fork")
    pending: collections.deque[Any] = collections.deque()
    with ProcessPoolExecutor(processes, context, _remember, (begin,)) as pool:
        try:
            for task in [pool.submit(_make) for _ in range(processes)]:
                task.result()  # an error comes before a batch is read
            for batch in batches:
                pending.append(pool.submit(_apply, batch))
                if len(pending) == ahead * processes:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        except BaseException as error:  # also of a caller that wants no more results
            for process in list((pool._processes or {}).values()):
                process.terminate()  # else the pool waits for what they compute
            if isinstance(error, BrokenProcessPool):
                raise ConfigurationError(message) from None
            raise


def on_share(begin: Callable[[], Any], processes: int, cpu: bool) -> Any:
    """`begin()`, for torch in one process of several: on its GPU, or with its share of the cores.

    What it prints is no output of the command.
    """
    import torch

    gpus = 0 if cpu else torch.cuda.device_count()
    if gpus:
        torch.cuda.set_device(multiprocessing.current_process()._identity[0] % gpus)
    else:
        torch.set_num_threads(available_threads(processes))
    sys.stdout = sys.stderr
    return begin()


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


def killed(workers: int, description: str = "", option: str = "--workers") -> str:
    """The message if one of several processes was killed."""
    fewer, what = f" or give fewer {option}" * bool(option), f" ({description})" * bool(description)
    return (
        f"one of {workers} processes was killed{what}, perhaps for lack of memory: free "
        f"memory{fewer}, and rerun"
    )


def _remember(begin: Callable[[], Any]) -> None:
    global _function
    _function = functools.cache(begin)
    belong_to_parent()


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


def _apply(batch: Any) -> Any:
    assert _function is not None
    return _function()(batch)
