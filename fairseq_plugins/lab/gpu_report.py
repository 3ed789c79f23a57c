"""Measure on a GPU, in prepared runs of at most 8 minutes each.

    python -m fairseq_plugins.lab.gpu_report --list                # the runs and their parts
    python -m fairseq_plugins.lab.gpu_report DATA --out DIR        # the next unfinished run
    python -m fairseq_plugins.lab.gpu_report DATA --out DIR --run 1
    python -m fairseq_plugins.lab.gpu_report DATA --out DIR --run 1 --toy   # without a GPU

It needs no network. DATA is a folder of a prepare-* command for translation. A run consists of
parts, each a process with its own time limit: if one fails or is too slow, the others still run,
and --run N repeats it. Rerun to resume: finished parts of this commit are kept. --out gets,
written after each part,

    report.md     tables of the parts, and the goals
    report.json   the same with every figure, and the end of each log

--work gets the logs and the figures of each part (RUN/PART.log, RUN/PART.json), and the models.
"""

import argparse
import contextlib
import importlib.util
import multiprocessing
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fairseq_plugins import commands
from fairseq_plugins.arguments import at_least
from fairseq_plugins.commands import needs_fairseq
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.files import alone_in, written_whole
from fairseq_plugins.json_files import read_json, write_json
from fairseq_plugins.lab.markdown import table_head, table_line
from fairseq_plugins.training.supervise import end_with_the_parent

FINISHED, STOPPED, INTERRUPTED = "finished", "stopped: its time was up", "interrupted"
NO_TIME = "no time was left"
# SIGTERM counts as Ctrl-C, so that pytest tells what failed before the time was up
PYTEST = """import signal, sys, pytest
signal.signal(signal.SIGTERM, signal.default_int_handler)
sys.exit(pytest.main(sys.argv[1:]))"""
LEAST = 5.0  # seconds; with less left no part begins
LINES = 40  # of each log that the report keeps


def run_words(words: Sequence[str], log: Path, environment: dict[str, str]) -> None:
    """The process of a part: runs a command line, with its output in a file."""
    os.setsid()
    end_with_the_parent()
    with open(log, "a", encoding="utf-8") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    os.environ.update(environment)
    if words[0] == "pytest":
        os.execv(sys.executable, [sys.executable, "-c", PYTEST, *words[1:]])
    try:
        status = commands.main(words)
    except ConfigurationError as error:
        print(f"error: {error}", file=sys.stderr)
        status = 1
    sys.stdout.flush()
    sys.exit(status)


class Processes:
    """Starts the process of each part.

    A process is a fork of this one, which has imported everything: imports take some ten seconds.
    Where CUDA does not work in a fork, each starts anew.
    """

    def __init__(self) -> None:
        self.method = "fork"

    def run(self, words: Sequence[str], log: Path, seconds: float, triton: Any = None) -> str:
        """Run a command line; returns how it ended."""
        environment = {"PYTHONUNBUFFERED": "1"}
        if triton is not None:
            environment["FAIRSEQ_PLUGINS_TRITON"] = str(int(triton))
        context: Any = multiprocessing.get_context(self.method)
        process = context.Process(target=run_words, args=(list(words), log, environment))
        process.start()
        status = STOPPED
        try:
            process.join(seconds)
        except KeyboardInterrupt:
            status = INTERRUPTED
        if process.exitcode is not None:
            ended = process.exitcode
            return FINISHED if ended == 0 else f"failed with exit status {ended}"
        process.terminate()
        process.join(40 if words[0] in ("train", "reproduce") else 8)  # a training saves its state
        with contextlib.suppress(ProcessLookupError):  # what it started, such as data loaders
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        process.join()
        return status

    def describe(self, folder: Path, toy: bool) -> dict[str, Any]:
        """The machine, told by a process of its own, as a process that used CUDA cannot fork.

        Raises:
            ConfigurationError: there is no GPU.
        """
        found = folder / "machine.json"
        words = ["benchmark", "layer", "--contender", "copy", "--dim", "8", "--tokens", "8"]
        words += ["--lengths", "8", "--rounds", "1", "--warmup", "0", "--json", str(found)]
        for method in ("fork", "spawn"):
            self.method = method
            found.unlink(missing_ok=True)
            self.run([*words, *(["--cpu"] if toy else [])], folder / "machine.log", 60)
            machine = (read_json(found) or {}).get("machine")
            if machine and (toy or machine["kind"] == "cuda"):
                return machine
        raise ConfigurationError(
            f"torch finds no GPU here: use --toy to try the runs without one ({folder}/machine.log)"
        )


def check_text(data: Path) -> None:
    """Raise a ConfigurationError if the folder lacks the text that a test is scored with."""
    from fairseq_plugins.evaluate.translation import Translations

    Translations(data, "test")


def summarize(log: Path) -> list[str]:
    """The last table in a log, or its last lines."""
    if not log.is_file():
        return []
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    lines = [line.split("\r")[-1] for line in lines[-400:]]
    table = [number for number, line in enumerate(lines) if line.startswith("|")]
    if table and table[-1] >= len(lines) - 3:
        begin = table[-1]
        while begin > 0 and lines[begin - 1].startswith("|"):
            begin -= 1
        return lines[begin : table[-1] + 1]
    return [line for line in lines if line.strip()][-6:]


def write_report(out: Path, work: Path, report: dict[str, Any]) -> None:
    """report.md and report.json: what is known of each part, and the goals."""
    from fairseq_plugins.lab.benchmarks import gpu_runs

    report["goals"] = gpu_runs.judge(work)
    if report["machine"]["kind"] != "cuda":
        for goal in report["goals"]:
            goal["state"] = "not measured: a toy size on a CPU"
    write_json(out / "report.json", report)
    with written_whole(out / "report.md") as file:
        file.write("{device}, Python {python}, torch {torch}, commit {commit}\n".format(
            **report["machine"]
        ))  # fmt: skip
        for name, parts in report["runs"].items():
            file.write(f"\n## Run {name}: {gpu_runs.find(name).what}\n")
            for part, found in parts.items():
                file.write(f"\n{part}: {found['status']}, {found['seconds']:.0f} s\n\n")
                file.write("\n".join(found["summary"]) + "\n")
        file.write("\n## Goals\n\n")
        head = table_head(["what", "run", "before", "goal", "moonshot", "ratio", ""])
        lines = [
            table_line(
                [
                    goal["what"],
                    f"{goal['run']}, {goal['part']}",
                    *(
                        "-" if goal[name] is None else f"{goal[name]:.3g}"
                        for name in ("before", "limit", "moonshot", "time_ratio")
                    ),
                    goal["state"],
                ]
            )
            for goal in report["goals"]
        ]
        file.write("\n".join([*head, *lines]) + "\n")


def choose(asked: Any, report: dict[str, Any], places: dict[str, Any], commit: str) -> Any:
    """The run that is asked for, or the first with a part that can run and is not over."""
    from fairseq_plugins.lab.benchmarks import gpu_runs

    if asked:
        return gpu_runs.find(asked)
    unfinished = []
    for run in gpu_runs.RUNS:
        done = report["runs"].get(run.name, {})
        for part in run.parts:
            if obstacle(part, places, done, commit):
                continue
            if not is_over(part, done.get(part.name), commit):
                return run
            if not kept(done[part.name], commit):
                unfinished.append(f"{run.name} ({part.name}: {done[part.name]['status']})")
    if unfinished:
        raise ConfigurationError(
            f"no run is left, but these did not finish: {', '.join(unfinished)}: repeat with --run"
        )
    raise ConfigurationError("all runs are finished: repeat one with --run")


def obstacle(part: Any, places: dict[str, Any], done: dict[str, Any], commit: str) -> str:
    """Why a part cannot run, or nothing.

    Args:
        part: the part.
        places: the prepared folders.
        done: what is known of the parts of the run.
        commit: the one that runs.
    """
    from fairseq_plugins.lab.benchmarks import machine

    missing = [f"--{name.lower()} DIR" for name in part.needs if not places[name]]
    if missing:
        return f"needs {' and '.join(missing)}"
    if part.after and not kept(done.get(part.after), commit):
        return f"{part.after} is not finished"
    if part.words.startswith("pytest"):
        modules = ("pytest", "pytest_timeout", "xdist")
        if not (machine.ROOT / "tests").is_dir() or not all(map(importlib.util.find_spec, modules)):
            return "needs a checkout, pytest, pytest-timeout and pytest-xdist"
    return ""


def is_unfinished(words: Sequence[str]) -> bool:
    """Whether the time of a table, by --minutes, was up before its last run."""
    if words[0] != "reproduce":
        return False
    results = Path(words[words.index("--out") + 1]) / "results.json"
    return bool((read_json(results) or {}).get("unfinished"))


def kept(before: Any, commit: str) -> bool:
    return bool(before) and before["status"] == FINISHED and before["commit"] == commit


def is_over(part: Any, before: Any, commit: str) -> bool:
    """Whether a part finished, failed or was too slow, so that it is repeated only if asked."""
    if not before or before["commit"] != commit:
        return False
    status = before["status"]
    return status.startswith((FINISHED, "failed")) or (status == STOPPED and not part.resumes)


def figures_of(words: Sequence[str]) -> list[dict[str, Any]]:
    """A row with what a training or a test measured, which have no --json."""
    from fairseq_plugins.lab.reproduction.training_log import log_of

    if words[0] == "train":
        folder = Path(words[words.index("--save-dir") + 1])
        text = (folder / "train.log").read_text(encoding="utf-8", errors="replace")
        # of fairseq: all seconds up to the update, also of earlier starts
        seconds = float(re.findall(r"\bwall[ =]([\d.]+(?:e\+\d+)?)", text)[-1])
        figure = f"{log_of(folder).updates} updates in {seconds:.0f} s"
        return [{"contender": words[1], "seconds": seconds, "figure": figure}]
    written = Path(words[2]).glob("evaluation/*/scores.json")
    scores = (read_json(max(written, key=lambda path: path.stat().st_mtime)) or {})["scores"]
    bleu = scores["BLEU"]["score"]
    return [{"contender": "test", "bleu": bleu, "figure": f"BLEU {bleu:.2f}"}]


def short_table(name: str, parts: dict[str, Any]) -> list[str]:
    """A line for each figure of a run."""
    lines = table_head([f"run {name}", "s", "what", "ratio", "ms", ""])
    for part, found in parts.items():
        rows = (found["figures"] or {}).get("rows", [])
        told = found["status"] if rows else "; ".join([found["status"], *found["summary"][-4:]])
        lines.append(table_line([part, f"{found['seconds']:.0f}", "", "", "", told]))
        for row in rows:
            ratio, took = row.get("time_ratio"), row.get("median_seconds")
            told = str(row.get("figure") or row.get("problem") or "")
            if row.get("recordings") is not None:
                told = f"{row['recordings']} recordings; {told}"
            lines.append(
                table_line(
                    [
                        "",
                        "",
                        str(row.get("contender", ""))[:90],
                        "" if ratio is None else f"{ratio:.3f}",
                        "" if took is None else f"{took * 1000:.3f}",
                        told[:150],
                    ]
                )
            )
    return lines


def read_arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_plugins.lab.gpu_report",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("data", type=Path, nargs="?", metavar="DATA", help="the prepared folder")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the report goes")
    parser.add_argument(
        "--work", type=Path, metavar="DIR", help="where the parts work (default: --out)"
    )
    parser.add_argument("--list", action="store_true", help="show the runs and their parts")
    parser.add_argument("--run", metavar="N", help="default: the next unfinished run")
    parser.add_argument(
        "--part", action="append", default=[], metavar="NAME",
        help="only this part of the run, also if it is finished; repeatable",
    )  # fmt: skip
    parser.add_argument(
        "--minutes", type=at_least(0.1, float), default=8.0, metavar="M",
        help="stop after this many minutes, plus up to one to save (default: 8)",
    )  # fmt: skip
    parser.add_argument(
        "--summaries", type=Path, metavar="DIR", help="prepared documents and summaries, for run 5"
    )
    parser.add_argument("--multi30k", type=Path, metavar="DIR", help="prepared, for run 4f")
    parser.add_argument("--toy", action="store_true", help="try the runs at a toy size on a CPU")
    args = parser.parse_args(argv)
    if not args.list and (args.data is None or args.out is None):
        parser.error("give DATA and --out, or --list")
    return args


def main(argv: Sequence[str]) -> int:
    args = read_arguments(argv)
    needs_fairseq("gpu-report")
    from fairseq_plugins.lab.benchmarks import gpu_runs

    if args.list:
        for run in gpu_runs.RUNS:
            print(f"{run.name:3} {run.what}")
            for part in run.parts:
                print(f"      {part.name:18} {part.seconds:4.0f} s  {part.words}")
        return 0
    from fairseq_plugins.training import planning

    # so that asking for a GPU does not begin to use it, after which processes cannot fork
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"
    end = time.monotonic() + 60 * args.minutes
    planning.check_data(args.data)
    work = (args.work or args.out).resolve()
    places = {
        gpu_runs.DATA: args.data.resolve(),
        gpu_runs.SUMMARIES: args.summaries and args.summaries.resolve(),
        gpu_runs.MULTI30K: args.multi30k and args.multi30k.resolve(),
    }
    work.mkdir(parents=True, exist_ok=True)
    with alone_in(args.out, "report"):
        report = read_json(args.out / "report.json") or {"runs": {}}
        processes = Processes()
        here = processes.describe(work, args.toy)
        if report.get("machine", here)["device"] != here["device"]:
            device = report["machine"]["device"]
            raise ConfigurationError(f"--out {args.out} has a report of a {device}: choose another")
        report["machine"] = here
        commit = here["commit"]
        run = choose(args.run, report, places, commit)
        names = [part.name for part in run.parts]
        for name in args.part:
            if name not in names:
                raise ConfigurationError(
                    f"--part {name} is not in run {run.name}: give one of {', '.join(names)}"
                )
        if run.tests:
            check_text(args.data)
        print(f"run {run.name}: {run.what}", flush=True)
        folder = work / run.name
        folder.mkdir(exist_ok=True)
        done = report["runs"].setdefault(run.name, {})
        first = None
        for part in run.parts:
            before = done.get(part.name)
            if args.part:
                skipped = part.name not in args.part
            else:
                skipped = kept(before, commit) if args.run else is_over(part, before, commit)
            if skipped:
                continue
            left = end - time.monotonic()
            reason = obstacle(part, places, done, commit)
            reason = reason or (NO_TIME if left < LEAST else "")
            if reason:
                print(f"{part.name}: {reason}", flush=True)
                empty = {"seconds": 0.0, "figures": None, "summary": [], "commit": commit}
                done.setdefault(part.name, {"status": reason, **empty})
                continue
            words = part.command({**places, gpu_runs.WORK: folder}, args.toy)
            figures, log = folder / f"{part.name}.json", folder / f"{part.name}.log"
            # forget results of an earlier model or commit
            for later in run.parts:
                if later.after == part.name:
                    done.pop(later.name, None)
                    (folder / f"{later.name}.json").unlink(missing_ok=True)
            if words[0] != "benchmark" or not part.resumes:
                figures.unlink(missing_ok=True)
            if words[0] == "benchmark":
                words += ["--json", str(figures)]
            first = first or part
            begin = time.monotonic()
            status = processes.run(words, log, min(part.seconds, left), part.triton)
            if status == FINISHED and is_unfinished(words):
                status = STOPPED
            if status == STOPPED and left < part.seconds and part is not first:
                status = NO_TIME  # it is the next one
            if status == FINISHED and words[0] in ("train", "evaluate"):
                try:
                    rows = figures_of(words)
                except (OSError, LookupError, ValueError):  # missing, damaged or without them
                    status = "failed: no figures"
                else:
                    write_json(figures, {"rows": rows})
            done[part.name] = {
                "status": status,
                "seconds": time.monotonic() - begin,
                "command": words,
                "commit": commit,
                "figures": read_json(figures),
                "summary": summarize(log),
                "log": log.read_text(encoding="utf-8", errors="replace").splitlines()[-LINES:],
            }
            print(f"{part.name}: {status}, {done[part.name]['seconds']:.0f} s", flush=True)
            write_report(args.out, work, report)
            if status == INTERRUPTED:
                raise KeyboardInterrupt
        write_report(args.out, work, report)
    print("\n" + "\n".join(short_table(run.name, done)))
    print(f"written: {args.out / 'report.md'} {args.out / 'report.json'}")
    return int(any(found["status"].startswith("failed") for found in done.values()))


if __name__ == "__main__":
    sys.exit(commands.run("gpu-report", main, sys.argv[1:]))
