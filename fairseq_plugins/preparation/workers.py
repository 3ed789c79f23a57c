"""The same function on every line, by several processes, in order, with a progress bar."""

import itertools
import multiprocessing
import os
from typing import Any, Callable, Iterable, Iterator, List, Optional

from fairseq_plugins.preparation.progress import progress_bar

LINES_PER_CHUNK = 500
CHUNKS_PER_WINDOW = 64  # so that a corpus is never in memory as a whole

_function: Optional[Callable[[str], str]] = None


def default_workers() -> int:
    """The cores this process may use, at most 16."""
    if hasattr(os, "sched_getaffinity"):
        return min(16, len(os.sched_getaffinity(0)))
    return min(16, os.cpu_count() or 1)


def map_lines(
    function: Callable[[str], str],
    lines: Iterable[str],
    workers: int,
    description: str,
    total: Optional[int] = None,
) -> Iterator[str]:
    """`map(function, lines)`, in the order of `lines`.

    Args:
        function: from line to line; its result must depend on the line alone.
        lines: read as they are needed.
        workers: processes; 1 does everything in this one.
        description: what the progress bar says.
        total: how many lines there are, for the bar.
    """
    bar = progress_bar(description=description, total=total, unit=" lines", unit_scale=True)
    lines = iter(lines)
    chunks = iter(lambda: list(itertools.islice(lines, LINES_PER_CHUNK)), [])
    with bar:
        if workers <= 1 or (total is not None and total <= LINES_PER_CHUNK):
            for chunk in chunks:
                yield from map(function, chunk)
                bar.update(len(chunk))
            return
        # forked: the function, with what it has loaded, needs no pickling
        context = multiprocessing.get_context("fork")
        with context.Pool(workers, _remember, (function,)) as pool:
            while True:
                window = list(itertools.islice(chunks, CHUNKS_PER_WINDOW))
                if not window:
                    break
                for results in pool.imap(_apply, window):
                    yield from results
                    bar.update(len(results))


def _remember(function: Callable[[str], str]) -> None:
    global _function
    _function = function


def _apply(chunk: List[str]) -> List[Any]:
    assert _function is not None
    return [_function(line) for line in chunk]
