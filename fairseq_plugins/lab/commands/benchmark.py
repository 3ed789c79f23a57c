"""Measure speed, memory and operations of models and layers side by side.

    fairseq-plugins benchmark train-step DATA --arch transformer --arch transformer_ftc

Each figure is a ratio to the first contender: the median and quartiles of times that are measured
alternately in one process, and the ratio of operations. Peak memory is measured in new processes.
`benchmark COMMAND -h` shows the options. Tables go to standard output, progress to standard error.
"""

import argparse
import importlib
import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import output_file
from fairseq_plugins.lab.benchmarks import FILES
from fairseq_plugins.options.arguments import parser_of
from fairseq_plugins.system.quiet import at_least


def find(command: str) -> tuple[str | None, Callable[[Any], None], Callable[[Any], Any]]:
    """The description of a subcommand, what adds its arguments, and what runs it."""
    module = importlib.import_module(f"fairseq_plugins.lab.benchmarks.{FILES[command][0]}")
    return (module.__doc__, *module.COMMANDS[command])


def main(argv: Sequence[str]) -> int:
    parser = parser_of("benchmark", __doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (_, about) in FILES.items():
        sub = commands.add_parser(
            name, help=about, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        if name in argv[:1]:
            needs_fairseq("benchmark")
            sub.description, add_arguments, run = find(name)
            add_arguments(sub)
    args = parser.parse_args(argv)
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
    print("\n" + harness.markdown(report.rows, report.columns))
    if args.json:
        harness.write_report(args.json, args, where, report)
    if report.problem:
        raise ConfigurationError(report.problem)
    return 0
