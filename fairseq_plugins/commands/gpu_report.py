"""Run on a GPU: the GPU tests, the speed goals, and a table of `reproduce`.

    bash scripts/gpu_report.sh DATA --out DIR --minutes 8

It needs no network. Rerun to resume: what is finished is kept. DATA is a folder of a prepare-*
command for translation. DIR gets report.md and report.json, written as it goes, beside

    tests.log    the tests marked "gpu", in a checkout with pytest; at most a third of the time
    goals/       `benchmark goals`, each measurement with figures; at most another third
    TABLE/       `reproduce TABLE`; table.md and results.json tell how far it is

What had to be stopped gets up to twice its time in the next call. Options that are not listed below
go to `reproduce`, and so do the options after --.
"""

import argparse
import importlib.util
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Sequence

import torch

from fairseq_plugins.benchmarks import goals, machine, results
from fairseq_plugins.commands import reproduce, split
from fairseq_plugins.commands._log import only_warnings_of_fairseq
from fairseq_plugins.commands._numbers import at_least
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import written_whole
from fairseq_plugins.json_files import read_json, write_json
from fairseq_plugins.reproduction import runs
from fairseq_plugins.reproduction.tables import TABLES
from fairseq_plugins.training import planning
from fairseq_plugins.training.jobs import Jobs, alone_in

MODULE = [sys.executable, "-m", "fairseq_plugins"]
# SIGTERM counts as Ctrl-C, so that pytest tells what failed before the time was up
PYTEST = """import signal, sys, pytest
signal.signal(signal.SIGTERM, signal.default_int_handler)
sys.exit(pytest.main(sys.argv[1:]))"""
STOPPED = "stopped: its time was up"
TRANSLATION = ("translation", "multi30k", "low-resource", "ftc")  # tables for such data


class Step(NamedTuple):
    """A command with a log, and what became of it."""

    name: str
    command: List[str]
    seconds: float  # then it is ended, unless 0: the command has a limit of its own


def steps(
    args: argparse.Namespace,
    words: Sequence[str],
    left: Callable[[], float],
    done: Dict[str, Dict[str, Any]],
) -> Any:
    """The steps one after the other.

    Args:
        left: tells the seconds that are left when a step begins.
        done: what became of the steps in earlier calls.
    """

    def share(name: str) -> float:
        """A third of the time, or twice that in which the step was not ready; half is left over."""
        before = done.get(name, {})
        twice = 2 * before["seconds"] if before.get("status") == STOPPED else 0.0
        return min(max(20 * args.minutes, twice), left() / 2)

    device = ["--cpu"] if args.cpu else []
    tests = machine.ROOT / "tests"
    missing = [name for name in ("pytest", "pytest_timeout") if not importlib.util.find_spec(name)]
    if tests.is_dir() and missing:
        names = " and ".join(missing).replace("_", "-")
        print(f"tests: not run without {names}: bash scripts/install.sh --extras test")
    elif tests.is_dir():
        pytest = [sys.executable, "-c", PYTEST, "-q", "-m", "gpu and not slow"]
        # several processes: most of the time goes into compiling kernels
        pytest += ["-n", "4"] if importlib.util.find_spec("xdist") else []
        pytest += ["-p", "no:cacheprovider"]
        pytest += ["--rootdir", str(machine.ROOT), str(tests)]
        yield Step("tests", pytest, share("tests"))
    speed = [*MODULE, "benchmark", "goals", str(args.data), "--out", str(args.out / "goals")]
    yield Step("goals", [*speed, "--json", str(args.out / "goals.json"), *device], share("goals"))
    table = [*MODULE, "reproduce", args.table, str(args.data)]
    table += ["--out", str(args.out / args.table), "--minutes", f"{left() / 60:.3f}"]
    yield Step(args.table, [*table, "--parallel", str(args.parallel), *device, *words], 0)


def run(step: Step, folder: Path) -> Dict[str, Any]:
    """Run a step; returns how it ended, with the lines of this run in its log."""
    jobs, lines, started = Jobs(), [], time.monotonic()
    timer = threading.Timer(step.seconds, jobs.stop)
    timer.daemon = True
    if step.seconds:
        timer.start()

    def line(text: str) -> None:
        lines.append(text.rstrip())
        if not step.seconds:
            print(text, end="", flush=True)

    try:
        status = f"exit status {jobs.run(step.command, folder / f'{step.name}.log', line)}"
    except KeyboardInterrupt:
        if not step.seconds or time.monotonic() - started < step.seconds:
            raise
        status = STOPPED
    finally:
        timer.cancel()
    return {
        "status": status.replace("exit status 0", "finished"),
        "seconds": time.monotonic() - started,
        "command": step.command,
        "lines": lines,
    }


def write_report(folder: Path, report: Dict[str, Any]) -> None:
    """report.md and report.json: what is known of each step."""
    report["goals_table"] = read_json(folder / "goals.json")
    tables = [name for name in report["steps"] if name in TABLES]
    report["tables"] = {name: read_json(folder / name / "results.json") for name in tables}
    write_json(folder / "report.json", report)
    with written_whole(folder / "report.md") as file:
        file.write("{device}, Python {python}, torch {torch}, commit {commit}\n".format(
            **report["machine"]
        ))  # fmt: skip
        for name, step in report["steps"].items():
            file.write(f"\n## {name}\n\n{step['status']}, {step['seconds']:.0f} s\n\n")
            table = folder / name / "table.md"
            if name in tables and table.is_file():
                file.write(table.read_text(encoding="utf-8"))
            elif name == "goals" and report["goals_table"]:
                rows = report["goals_table"]["rows"]
                file.write(results.markdown(rows, goals.COLUMNS) + "\n")
            else:
                file.write("\n".join(step["lines"][-15:]) + "\n")


def check_table(args: argparse.Namespace, words: List[str]) -> None:
    """Check the options of `reproduce` and the data, before the minutes of the other steps.

    Raises:
        ConfigurationError: they cannot work.
    """
    given = [args.table, str(args.data), *(["--cpu"] if args.cpu else []), *words]
    with tempfile.TemporaryDirectory() as scratch, only_warnings_of_fairseq():
        options = reproduce.read_arguments(given)
        options.out = Path(scratch)
        request = reproduce.read_request(options)
        runs.Reproduction(request, lambda line: print(line, flush=True))


def main(argv: Sequence[str]) -> int:
    own, extra = split(argv)
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_plugins gpu-report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("data", type=Path, metavar="DATA", help="the prepared folder")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where to work")
    parser.add_argument(
        "--table", choices=TRANSLATION, default="translation", help="default: %(default)s"
    )
    parser.add_argument(
        "--minutes", type=at_least(0.1, float), default=8.0, metavar="M",
        help="stop after this many minutes, plus up to one to start and to save (default: 8)",
    )  # fmt: skip
    parser.add_argument(
        "--parallel",
        type=at_least(1),
        default=4,
        metavar="N",
        help="trainings at the same time (default: 4)",
    )
    parser.add_argument("--cpu", action="store_true", help="try the command without a GPU")
    args, more = parser.parse_known_args(own)
    if not (args.cpu or torch.cuda.is_available()):
        raise ConfigurationError("torch sees no GPU: use --cpu to try the command without one")
    planning.check_data(args.data)
    end = time.monotonic() + 60 * args.minutes
    words = [*more, "--", *extra] if extra else more
    check_table(args, words)  # it comes last
    with alone_in(args.out, "report"):
        report = read_json(args.out / "report.json") or {"steps": {}}
        here = machine.describe(torch.device("cpu" if args.cpu else "cuda"), 1)
        device = report.get("machine", here)["device"]
        if device != here["device"]:
            raise ConfigurationError(f"--out {args.out} has a report of a {device}: choose another")
        report["machine"] = here
        done = report["steps"]
        for step in steps(args, words, lambda: max(1.0, end - time.monotonic()), done):
            before = done.get(step.name, {})
            kept = before.get("status") == "finished" and before.get("commit") == here["commit"]
            if step.name == "tests" and kept:
                print("tests: kept", flush=True)
                continue
            print(f"{step.name}: its log is {args.out / step.name}.log", flush=True)
            done[step.name] = {**run(step, args.out), "commit": here["commit"]}
            print(f"{step.name}: {done[step.name]['status']}", flush=True)
            write_report(args.out, report)
    print(f"written: {args.out / 'report.md'} {args.out / 'report.json'}")
    return int(any(step["status"].startswith("exit") for step in done.values()))
