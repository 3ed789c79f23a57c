"""Measure speed, memory and operations of models and layers side by side.

    fairseq-plugins benchmark train-step DATA --arch transformer --arch transformer_ftc

Each figure is a ratio to the first contender: the median and quartiles of times that are measured
alternately in one process, and the ratio of operations. Peak memory is measured in new processes.
`benchmark COMMAND -h` shows the options. Tables go to standard output, progress to standard error.
"""

import importlib
import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import output_file
from fairseq_plugins.lab.benchmarks import FILES
from fairseq_plugins.options.arguments import read, subcommand
from fairseq_plugins.system.quiet import at_least


def find(command: str) -> tuple[str | None, type[Any], Callable[[Any], Any]]:
    """The description of a subcommand, the dataclass of its options, and what runs it."""
    module = importlib.import_module(f"fairseq_plugins.lab.benchmarks.{FILES[command][0]}")
    return (module.__doc__, *module.COMMANDS[command])


def main(argv: Sequence[str]) -> int:
    name = subcommand(argv, "benchmark", __doc__, {name: text for name, (_, text) in FILES.items()})
    needs_fairseq("benchmark")
    description, options, run = find(name)
    args = read(options, argv[1:], f"benchmark {name}", description)
    args.command = name
    from fairseq_plugins.lab.benchmarks import harness, machine, plots

    # hide log messages and warnings of libraries from the progress
    with warnings.catch_warnings(action="ignore"), at_least(logging.WARNING, ""):
        plots.check(args.plot)
        args.plot = args.plot and output_file("--plot", args.plot)
        args.json = args.json and output_file("--json", args.json)
        report = run(args)
        if args.plot:
            report.draw(args.plot)
    where = machine.describe(harness.choose_device(args), args.threads)
    print(
        "{device}, {threads} thread(s), {clock} clock, Python {python}, torch {torch}, "
        "fairseq {fairseq}, commit {commit}".format(clock=args.clock, **where)
    )
    for note in report.notes:
        print(note)
    print("\n" + report.table())
    if args.json:
        harness.write_report(args.json, args, where, report)
    if report.problem:
        raise ConfigurationError(report.problem)
    return 0
