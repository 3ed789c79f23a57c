"""Measure speed, memory and operations of models and layers side by side.

    python -m fairseq_plugins benchmark train-step DATA --arch transformer --arch transformer_ftc

Each figure is a ratio to the first contender: the median and quartiles of times that are measured
alternately in one process, and the ratio of operations. Peak memory is measured in new processes.
`benchmark COMMAND -h` shows the options. Tables go to standard output, progress to standard error.
"""

import argparse
import contextlib
import logging
import warnings
from typing import Iterator, Sequence

from fairseq_plugins.benchmarks import (
    figure2,
    generate,
    goals,
    growth,
    layer,
    machine,
    memory,
    plots,
    results,
    table3,
    train_step,
)

COMMANDS = {
    "train-step": train_step,
    "layer": layer,
    "generate": generate,
    "memory": memory,
    "growth": growth,
    "figure2": figure2,
    "table3": table3,
    "goals": goals,
}


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep what libraries log and warn of out of the progress."""
    root = logging.getLogger()
    level = root.level
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        root.setLevel(logging.WARNING)
        try:
            yield
        finally:
            root.setLevel(level)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_plugins benchmark",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module in COMMANDS.items():
        sub = commands.add_parser(
            name,
            help=(module.__doc__ or "").splitlines()[0],
            description=module.__doc__,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(sub)
    args = parser.parse_args(argv)
    with quiet():
        plots.check(args.plot)
        results.check_place("--plot", args.plot)
        results.check_place("--json", args.json)
        report = COMMANDS[args.command].run(args)
        if args.plot:
            report.draw(args.plot)
    where = machine.describe(machine.choose_device(args), args.threads)
    print(
        "{device}, {threads} thread(s), {clock} clock, Python {python}, torch {torch}, "
        "fairseq {fairseq}, commit {commit}".format(clock=args.clock, **where)
    )
    for note in report.notes:
        print(note)
    print("\n" + results.markdown(report.rows, report.columns))
    if args.json:
        results.write_report(args.json, args, where, report)
    return 0
