"""Measure speed, memory and operations of models and layers side by side.

    python -m fairseq_plugins benchmark train-step DATA --arch transformer --arch transformer_ftc

Each figure is a ratio to the first contender: the median and quartiles of times that are measured
alternately in one process, and the ratio of operations. Peak memory is measured in new processes.
`benchmark COMMAND -h` shows the options. Tables go to standard output, progress to standard error.
"""

import argparse
import importlib
import logging
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins.arguments import parser_of
from fairseq_plugins.commands import needs_fairseq, summary
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.quiet import at_least

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"
# the file a_b.py of the folder is the command a-b
COMMANDS = (
    "train-step", "layer", "generate", "memory", "growth", "figure2", "table3", "blocks", "goals",
    "speed", "gpu-part",
)  # fmt: skip


def find(command: str) -> Any:
    """The module of a command."""
    return importlib.import_module(f"fairseq_plugins.lab.benchmarks.{command.replace('-', '_')}")


def main(argv: Sequence[str]) -> int:
    parser = parser_of("benchmark", __doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in COMMANDS:
        file = FOLDER / f"{name.replace('-', '_')}.py"
        sub = commands.add_parser(
            name, help=summary(file), formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name in argv[:1]:
            needs_fairseq("benchmark")
            module = find(name)
            sub.description = module.__doc__
            module.add_arguments(sub)
    args = parser.parse_args(argv)
    from fairseq_plugins.lab.benchmarks import machine, plots, results

    # hide log messages and warnings of libraries from the progress
    with warnings.catch_warnings(action="ignore"), at_least(logging.WARNING, ""):
        plots.check(args.plot)
        args.plot = results.check_place("--plot", args.plot)
        args.json = results.check_place("--json", args.json)
        report = module.run(args)
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
    if report.problem:
        raise ConfigurationError(report.problem)
    return 0
