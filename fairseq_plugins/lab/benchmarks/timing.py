"""Time contenders in turn in one process, because ratios are stable while absolute times drift."""

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from fairseq_plugins.arguments import add_number
from fairseq_plugins.progress import progress_bar

Work = Callable[[Any], Any]
WAIT = 5_000_000  # cycles of a GPU, some 3 ms: longer than launching a layer takes


class Spread(NamedTuple):
    """Median and quartiles."""

    low: float
    median: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    return Spread(*statistics.quantiles(values, n=4, method="inclusive"))


def ratios(times: Sequence[float], baseline: Sequence[float]) -> list[float]:
    """The ratio of each time to the baseline's time from the same round and item."""
    return [own / base for own, base in zip(times, baseline)]


def seconds(
    work: Callable[[], Any], device: torch.device, clock: str = "wall", queued: bool = False
) -> float:
    """Duration of `work()` in seconds; on a GPU measured between two CUDA events.

    The clock "processor" counts only the CPU time of this process. Use it for one thread on a
    machine that other programs use, too.

    With `queued` a GPU waits first, while the host queues the work. So the time of small work is
    the GPU's, as in the middle of a model, and not that of launching it on an idle GPU.
    """
    if device.type == "cuda":
        torch.cuda.synchronize()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if queued:
            torch.cuda._sleep(WAIT)
        start.record()
        work()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / 1000
    now = time.process_time if clock == "processor" else time.perf_counter
    begin = now()
    work()
    return now() - begin


def add_arguments(parser: argparse.ArgumentParser, rounds: int) -> None:
    """Add --rounds, with this default, and --warmup, which `interleave` takes."""
    add_number(parser, "--rounds", "how often each work is timed on each batch", rounds)
    add_number(parser, "--warmup", "rounds before the timed ones", 1, 0)


def interleave(
    works: Sequence[Work],
    items: Sequence[Any],
    rounds: int,
    warmup: int,
    device: torch.device,
    description: str,
    clock: str = "wall",
    queued: bool = False,
) -> list[list[float]]:
    """Run all works on each item in turn, so that a change of machine speed affects all equally.

    Each round uses every item once. The order of the works rotates from round to round, because
    each work runs with the cache contents that the previous one left.

    Args:
        works: the functions to compare; each is called with an item.
        items: for example batches.
        rounds: how often each pair of work and item is timed.
        warmup: rounds before those, without timing.
        device: the torch device.
        description: text of the progress bar.
        clock: "wall" or "processor", see `seconds`.
        queued: whether a GPU gets all of a work before it begins, see `seconds`.

    Returns:
        for each work, rounds * len(items) times in seconds. Entry i of all works belongs to the
        same item and round.
    """
    times: list[list[float]] = [[] for _ in works]
    total = (warmup + rounds) * len(items) * len(works)
    with progress_bar(description=description, total=total, unit=" runs", leave=False) as bar:
        for turn in range(warmup + rounds):
            for item in items:
                took: dict[int, float] = {}
                for place in range(len(works)):
                    index = (turn + place) % len(works)
                    took[index] = seconds(partial(works[index], item), device, clock, queued)
                    bar.update(1)
                if turn >= warmup:
                    for index, value in took.items():
                        times[index].append(value)
    return times


def comparison(
    names: Sequence[str],
    times: Sequence[Sequence[float]],
    operations: Sequence[int | None],
) -> list[dict[str, Any]]:
    """One row per contender: its ratios of time and operations to the first contender.

    "ratio_to_flop_limit" is the ratio of times over the ratio of operations. It is 1 if a contender
    saves as much time as arithmetic, and above 1 if it saves less time than arithmetic.
    """
    rows = []
    for name, own, count in zip(names, times, operations):
        ratio = spread(ratios(own, times[0]))
        flop_ratio = count / operations[0] if count and operations[0] else None
        rows.append(
            {
                "contender": name,
                "time_ratio": ratio.median,
                "time_ratio_quartiles": [ratio.low, ratio.high],
                "flops": count,
                "flop_ratio": flop_ratio,
                "ratio_to_flop_limit": ratio.median / flop_ratio if flop_ratio else None,
                "median_seconds": statistics.median(own),
                "seconds": list(own),
            }
        )
    return rows
