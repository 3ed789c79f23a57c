"""The harness of every benchmark: contenders take turns, and a report holds their ratios.

Ratios of contenders that are timed in turn in one process are stable, while absolute times drift.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import write_json
from fairseq_plugins.options.arguments import Command
from fairseq_plugins.options.fields import MOST, option, options_of
from fairseq_plugins.system.markdown import table
from fairseq_plugins.system.progress import progress_bar
from fairseq_plugins.train.operations import count_flops

Row = dict[str, Any]
Column = tuple[str, Callable[[Row], str]]
Work = Callable[[Any], Any]
CLOCKS = ("wall", "processor")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
WAIT = 5_000_000  # cycles of a GPU, some 3 ms: longer than launching a layer takes


# ---- options


@dataclass
class Measurement(Command):
    """The options of every subcommand."""

    command = ""  # the subcommand
    dtype = "fp32"
    threads: int = option(1, "the number of processor threads", least=1, most=MOST)
    cpu: bool = option(False, "do not use a GPU")
    clock: str = option(
        "wall", "processor: count processor time, for a machine shared with other programs; one "
        "thread only", choices=CLOCKS,
    )  # fmt: skip
    json: Path | None = option(None, "also write all figures to this file", metavar="FILE")
    plot: Path | None = option(None, "also plot them to this file (.svg or .png)", metavar="FILE")


@dataclass
class Typed(Measurement):
    """Of those that measure with one number type."""

    dtype: str = option("fp32", "the number type", choices=tuple(DTYPES))


@dataclass
class Timed(Typed):
    """Of those that time work in rounds."""

    rounds: int = option(5, "how often each work is timed on each batch", least=1)
    warmup: int = option(1, "the number of rounds before the timed ones", least=0)


def choose_device(args: Measurement) -> torch.device:
    """The GPU, or the CPU if there is no GPU or --cpu is given. Also sets torch's thread count.

    Raises:
        ConfigurationError: fp16 on a CPU, or --clock processor with a GPU or several threads.
    """
    torch.set_num_threads(args.threads)
    device = torch.device("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")
    if device.type == "cpu" and args.dtype == "fp16":
        raise ConfigurationError("--dtype fp16 needs a GPU: use bf16 or fp32 on a CPU")
    if args.clock == "processor" and (args.threads > 1 or device.type != "cpu"):
        raise ConfigurationError("--clock processor is for one thread on a CPU: use --clock wall")
    return device


# ---- times and operations


class Spread(NamedTuple):
    """Median and quartiles."""

    low: float
    median: float
    high: float


def spread(values: Sequence[float]) -> Spread:
    return Spread(*np.quantile(values, (0.25, 0.5, 0.75)).tolist())


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
        clock, queued: see `seconds`.

    Returns:
        for each work, rounds * len(items) times in seconds. Entry i of all works belongs to the
        same item and round.
    """
    times: list[list[float]] = [[] for _ in works]
    total = (warmup + rounds) * len(items) * len(works)
    with progress_bar(description=description, total=total, unit=" runs", leave=False) as bar:
        for turn in range(warmup + rounds):
            for item in items:
                for place in range(len(works)):
                    index = (turn + place) % len(works)
                    took = seconds(partial(works[index], item), device, clock, queued)
                    if turn >= warmup:
                        times[index].append(took)
                    bar.update(1)
    return times


def comparison(
    names: Sequence[str], times: Sequence[Sequence[float]], operations: Sequence[int | None]
) -> list[Row]:
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


def compare(
    names: Sequence[str],
    works: Sequence[Work],
    items: Sequence[Any],
    args: Any,
    device: torch.device,
    description: str,
    counted: Callable[[str], bool] = lambda name: True,
    queued: bool = False,
) -> list[Row]:
    """Time the works in turn, count the operations of those that `counted` picks, and compare."""
    times = interleave(
        works, items, args.rounds, args.warmup, device, description, args.clock, queued
    )
    flops = [
        count_flops(work, items) if counted(name) else None for name, work in zip(names, works)
    ]
    return comparison(names, times, flops)


def one_line(error: BaseException, line: int = 0) -> str:
    """A line of an error's message, the first one by default; its type without a message."""
    return (str(error).strip() or type(error).__name__).splitlines()[line]


# ---- reports


class Report(NamedTuple):
    """Rows of figures, the columns that format them, notes, and the function that draws a plot.

    With a `problem` the benchmark fails with this line, after it showed the table.
    """

    rows: list[Row]
    columns: Sequence[Column]
    notes: Sequence[str]
    draw: Callable[[Path], None]
    problem: str = ""

    def table(self) -> str:
        """The rows in Markdown."""
        titles, shows = zip(*self.columns)
        return "\n".join(table(titles, ([show(row) for show in shows] for row in self.rows)))


def arguments(args: Measurement) -> Row:
    """The arguments of a measurement as JSON values, without where its output goes."""
    names = [each.name for each in options_of(type(args)) if each.name not in ("json", "plot")]
    shown = {name: getattr(args, name) for name in names}
    return {n: str(value) if isinstance(value, Path) else value for n, value in shown.items()}


def write_report(path: Path, args: Measurement, where: Row, report: Report) -> None:
    """Write the report with its command, arguments and machine, atomically."""
    write_json(
        path,
        {
            "command": args.command,
            "arguments": arguments(args),
            "machine": where,
            "notes": list(report.notes),
            "rows": report.rows,
        },
    )


def text(name: str) -> Callable[[Row], str]:
    return lambda row: str(row.get(name, ""))


def code(name: str) -> Callable[[Row], str]:
    return lambda row: f"`{row[name]}`"


def number(name: str, form: str = ".3f", scale: float = 1.0) -> Callable[[Row], str]:
    """A column that formats a figure of the row, or shows "-" without one."""
    return lambda row: "-" if row.get(name) is None else format(row[name] * scale, form)


def quartiles(name: str) -> Callable[[Row], str]:
    return lambda row: "-" if row.get(name) is None else "{:.3f} - {:.3f}".format(*row[name])


COMPARISON: list[Column] = [
    ("contender", code("contender")),
    ("time, ratio", number("time_ratio")),
    ("quartiles", quartiles("time_ratio_quartiles")),
    ("operations, ratio", number("flop_ratio")),
    ("time over operations", number("ratio_to_flop_limit")),
    ("median, ms", number("median_seconds", ".1f", 1000)),
]
