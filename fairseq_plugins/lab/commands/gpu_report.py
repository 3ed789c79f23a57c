"""Measure on a GPU, in prepared runs of at most 8 minutes each.

    fairseq-plugins gpu-report --list                # the runs and their parts
    fairseq-plugins gpu-report DATA --out DIR        # the next unfinished run
    fairseq-plugins gpu-report DATA --out DIR --run 1
    fairseq-plugins gpu-report DATA --out DIR --run 1 --toy   # without a GPU

It needs no network. DATA is a folder of a prepare-* command for translation. A run consists of
parts, each a process with its own time limit: if one fails or is too slow, the others still run,
and --run N repeats it. Rerun to resume: finished parts of this commit are kept. --out gets,
written after each part,

    report.md     tables of the parts, and the goals
    report.json   the same with every figure, and the end of each log

--work gets the logs and the figures of each part (RUN/PART.log, RUN/PART.json), and the models.
"""

import importlib.util
import itertools
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from fairseq_plugins.cli import needs_fairseq
from fairseq_plugins.errors import ConfigurationError, check_known
from fairseq_plugins.files import alone_in, read_json, write_json, written_whole
from fairseq_plugins.lab.benchmarks import prepared
from fairseq_plugins.lab.benchmarks.prepared import Part, Run
from fairseq_plugins.options.arguments import Command, command
from fairseq_plugins.options.fields import option
from fairseq_plugins.system.markdown import table
from fairseq_plugins.train.jobs import lines_of
from fairseq_plugins.train.supervise import end, start

ROOT = Path(__file__).resolve().parents[3]
FINISHED, STOPPED, INTERRUPTED = "finished", "stopped: its time was up", "interrupted"
NO_TIME = "no time was left"
# SIGTERM counts as Ctrl-C, so that pytest tells what failed before the time was up
PYTEST = """import signal, sys, pytest
signal.signal(signal.SIGTERM, signal.default_int_handler)
sys.exit(pytest.main(sys.argv[1:]))"""
LEAST = 5.0  # seconds; with less left no part begins
LINES = 40  # of each log that the report keeps


# ---- processes


def run_words(words: Sequence[str], log: Path, seconds: float, triton: bool | None = None) -> str:
    """Run a command line in a process of its own, with its output in a log.

    Returns:
        how it ended.
    """
    command = [sys.executable, "-m", "fairseq_plugins", *words]
    if words[0] == "pytest":
        command = [sys.executable, "-c", PYTEST, *words[1:]]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    if triton is not None:
        environment["FAIRSEQ_PLUGINS_TRITON"] = str(int(triton))
    with open(log, "a", encoding="utf-8") as file:
        process = start(command, environment, file)
    try:
        status = process.wait(seconds)
        return FINISHED if status == 0 else f"failed with exit status {status}"
    except subprocess.TimeoutExpired:
        return STOPPED
    except KeyboardInterrupt:
        return INTERRUPTED
    finally:
        end(process, f"{log}: its program")


def describe(toy: bool) -> dict[str, Any]:
    """The machine that measures.

    Raises:
        ConfigurationError: there is no GPU.
    """
    import torch

    from fairseq_plugins.lab.benchmarks import machine

    if not (toy or torch.cuda.is_available()):
        raise ConfigurationError("torch finds no GPU here: use --toy to try the runs without one")
    return machine.describe(torch.device("cpu" if toy else "cuda"), 1)


# ---- which parts run


def find(name: str) -> Run:
    """The run of this name.

    Raises:
        ConfigurationError: there is none.
    """
    runs = {run.name: run for run in prepared.RUNS}
    check_known([name], runs, "--run ", "is unknown", f"give one of {', '.join(runs)}")
    return runs[name]


def choose(
    asked: str | None, report: dict[str, Any], places: dict[str, Any], commit: str
) -> tuple[Run, list[Part]]:
    """Choose a run and those of its parts that are left.

    Without `asked` this is the first run with a part that can run and is not over.

    Raises:
        ConfigurationError: the run is unknown, or none is left.
    """
    unfinished = []
    for run in [find(asked)] if asked else prepared.RUNS:
        done = report["runs"].get(run.name, {})
        left = [part for part in run.parts if not is_kept(done.get(part.name), commit)]
        parts = [part for part in left if not is_over(part, done.get(part.name), commit)]
        if asked or any(not obstacle(part, places, done, commit) for part in parts):
            return run, left if asked else parts
        over = {part.name: done[part.name]["status"] for part in left if part not in parts}
        unfinished += [f"{run.name} ({name}: {status})" for name, status in over.items()]
    if unfinished:
        raise ConfigurationError(
            f"no run is left, but these did not finish: {', '.join(unfinished)}: repeat with --run"
        )
    raise ConfigurationError("all runs are finished: repeat one with --run")


def obstacle(part: Part, places: dict[str, Any], done: dict[str, Any], commit: str) -> str:
    """Why a part cannot run, or nothing.

    Args:
        part: the part.
        places: the prepared folders.
        done: what is known of the parts of the run.
        commit: the one that runs.
    """
    missing = [f"--{name.lower()} DIR" for name in part.needs if not places[name]]
    if missing:
        return f"needs {' and '.join(missing)}"
    if part.after and not is_kept(done.get(part.after), commit):
        return f"{part.after} is not finished"
    if part.words.startswith("pytest"):
        modules = ("pytest", "pytest_timeout", "xdist")
        if not (ROOT / "tests").is_dir() or not all(map(importlib.util.find_spec, modules)):
            return "needs a checkout, pytest, pytest-timeout and pytest-xdist"
    return ""


def is_kept(before: Any, commit: str) -> bool:
    return bool(before) and before["status"] == FINISHED and before["commit"] == commit


def is_over(part: Part, before: Any, commit: str) -> bool:
    """Whether a part failed or was too slow, so that it is repeated only if asked."""
    if not before or before["commit"] != commit:
        return False
    return before["status"].startswith("failed") or before["status"] == STOPPED and not part.resumes


# ---- figures and the report


def figures_of(words: Sequence[str]) -> list[dict[str, Any]]:
    """A row with what a training or a test measured, which have no --json."""
    if words[0] == "train":
        log = Path(words[words.index("--save-dir") + 1]) / "train.log"
        # of fairseq: all seconds up to the update, also of earlier starts
        text = log.read_text(encoding="utf-8", errors="replace")
        seconds = float(re.findall(r"\bwall[ =]([\d.]+(?:e\+\d+)?)", text)[-1])
        parts = times_of(text)
        figure = ", ".join(f"{name} {part:.0f} s" for name, part in parts.items())
        figure = f"{seconds:.0f} s: {figure}"
        return [{"contender": words[1], "seconds": seconds, "parts": parts, "figure": figure}]
    written = Path(words[2]).glob("evaluation/*/scores.json")
    scores = (read_json(max(written, key=lambda path: path.stat().st_mtime)) or {})["scores"]
    bleu = scores["BLEU"]["score"]
    return [{"contender": "test", "bleu": bleu, "figure": f"BLEU {bleu:.2f}"}]


def times_of(log: str) -> dict[str, float]:
    """Where the seconds of a training went, from its log.

    Steps and checkpoints are as fairseq counts them, the others differences of time stamps. The
    rest is mostly waiting for data.
    """
    found = dict.fromkeys(("start", "steps", "validation", "checkpoints"), 0.0)
    first = last = began = 0.0
    for stamp, name, text in re.findall(r"^([\d-]+ [\d:]+) \| \w+ \| (\S+) \| (.*)$", log, re.M):
        last = datetime.fromisoformat(stamp).timestamp()
        first = first or last
        if text == "begin training epoch 1":
            found["start"] = last - first
        if text.startswith("begin validation"):
            began = last
        if name == "valid":
            found["validation"] += last - began
        for kind, pattern in (("steps", r"train_wall ([\d.]+)"), ("checkpoints", r"took ([\d.]+)")):
            shown = re.search(pattern, text) if name != "train_inner" else None
            found[kind] += float(shown[1]) if shown else 0.0
    return {**found, "rest": last - first - sum(found.values())}


def judge(folder: Path) -> list[dict[str, Any]]:
    """The goals, from the figures in a folder: RUN/PART.json of each part that was measured."""

    def rows(run: str, part: str) -> list[dict[str, Any]]:
        return (read_json(folder / run / f"{part}.json") or {"rows": []})["rows"]

    judged = []
    for goal in prepared.GPU_GOALS:
        part, bleu, ratio = goal["part"], [], None
        if part == "training":
            pair = goal["against"], goal["row"]
            name = " and ".join(pair)
            seconds = [row["seconds"] for run in pair for row in rows(run, "training")]
            bleu = [row["bleu"] for run in pair for row in rows(run, "test")]
            if len(seconds) == len(bleu) == 2 and seconds[0] > 0:
                ratio = seconds[1] / seconds[0]
        else:
            name = next(r.name for r in prepared.RUNS if part in [each.name for each in r.parts])
            own = [row for row in rows(name, part) if row["contender"] == goal["row"]]
            ratio = own[0].get("time_ratio") if own else None
        state = "not measured yet"
        if ratio is not None:
            missed = f"missed by {ratio - goal['limit']:.3f}"
            state = "reached" if ratio <= goal["limit"] else missed
            if bleu and bleu[1] < bleu[0]:
                state = f"missed: BLEU {bleu[1]:.2f} is below {bleu[0]:.2f}"
        judged.append({**goal, "run": name, "time_ratio": ratio, "state": state})
    return judged


def summarize(lines: Sequence[str]) -> list[str]:
    """The table at the end of a log, or its last lines."""
    for last in (lines, lines[:-1], lines[:-2]):
        found = list(itertools.takewhile(lambda line: line.startswith("|"), reversed(last)))
        if found:
            return found[::-1]
    return list(lines[-6:])


def measured_in(figures: Any) -> list[str]:
    """What a training or a test measured, which is not in the table of its log."""
    rows = (figures or {"rows": []})["rows"]
    return [f"{row['contender']}: {row['figure']}" for row in rows if "figure" in row]


def section(name: str, parts: dict[str, Any]) -> str:
    """What is known of the parts of a run, in Markdown."""
    lines = [f"## Run {name}: {find(name).what}"]
    for part, known in parts.items():
        lines += ["", f"{part}: {known['status']}, {known['seconds']:.0f} s", "", *known["summary"]]
    return "\n".join(lines) + "\n"


def write_report(out: Path, work: Path, report: dict[str, Any]) -> None:
    """report.md and report.json: what is known of each part, and the goals."""
    report["goals"] = judge(work)
    if report["machine"]["kind"] != "cuda":
        for goal in report["goals"]:
            goal["state"] = "not measured: a toy size on a CPU"
    write_json(out / "report.json", report)
    head = "{device}, Python {python}, torch {torch}, commit {commit}\n"
    rows = []
    for goal in report["goals"]:
        ratios = [goal.get(name) for name in ("before", "limit", "moonshot", "time_ratio")]
        cells = ["-" if ratio is None else f"{ratio:.3g}" for ratio in ratios]
        place = f"{goal['run']}, {goal['part']}"
        rows.append([goal["what"], place, *cells, goal["state"]])
    titles = ["what", "run", "before", "goal", "moonshot", "ratio", ""]
    with written_whole(out / "report.md") as file:
        file.write(head.format(**report["machine"]))
        for name, parts in report["runs"].items():
            file.write("\n" + section(name, parts))
        file.write("\n## Goals\n\n" + "\n".join(table(titles, rows)) + "\n")


# ---- the command


def run_part(part: Part, folder: Path, words: list[str], seconds: float) -> tuple[str, Any]:
    """Run a part in its folder; returns how it ended, and its figures, if there are any."""
    figures, log = folder / f"{part.name}.json", folder / f"{part.name}.log"
    if words[0] != "benchmark" or not part.resumes:
        figures.unlink(missing_ok=True)
    if words[0] == "benchmark":
        words += ["--json", str(figures)]
    status = run_words(words, log, seconds, part.triton)
    if status == FINISHED and words[0] == "reproduce":
        results = read_json(Path(words[words.index("--out") + 1]) / "results.json") or {}
        status = STOPPED if results.get("unfinished") else FINISHED  # by its --minutes
    if status == FINISHED and words[0] in ("train", "evaluate"):
        try:
            write_json(figures, {"rows": figures_of(words)})
        except (OSError, LookupError, ValueError):  # missing, damaged or without them
            status = "failed: no figures"
    return status, read_json(figures)


@dataclass
class GpuReport(Command):
    """The options of the command."""

    data: Path | None = option(None, "the data folder", metavar="DATA", positional=True, nargs="?")
    out: Path | None = option(None, "the folder for the report", metavar="DIR")
    work: Path | None = option(None, "the folder of the parts (default: --out)", metavar="DIR")
    list: bool = option(False, "show the runs and their parts")
    run: str | None = option(None, "the run (default: the next unfinished one)")
    part: Sequence[str] = option(
        (), "only this part of the run, also if it is finished; repeatable", metavar="NAME",
        repeatable=True,
    )  # fmt: skip
    minutes: float = option(8.0, "the minutes to run, and one to save", least=0.1, metavar="M")
    summaries: Path | None = option(None, "prepared documents, for run 10", metavar="DIR")
    multi30k: Path | None = option(None, "prepared Multi30k, for run 11a", metavar="DIR")
    toy: bool = option(False, "try the runs at a toy size on a CPU")


@command
def main(args: GpuReport) -> int:
    if args.list:
        for run in prepared.RUNS:
            print(f"{run.name:3} {run.what}")
            for part in run.parts:
                print(f"      {part.name:18} {part.seconds:4.0f} s  {part.words}")
        return 0
    if args.data is None or args.out is None:
        raise ConfigurationError("give DATA and --out, or --list")
    needs_fairseq("gpu-report")
    from fairseq_plugins.data.prepared_folder import check_data
    from fairseq_plugins.evaluate.translation import Translations

    if args.toy:
        os.environ["TRITON_INTERPRET"] = "1"  # the kernels run on a CPU, too
    time_is_up = time.monotonic() + 60 * args.minutes
    check_data(args.data)
    work = (args.work or args.out).resolve()
    given = {"DATA": args.data, "SUMMARIES": args.summaries, "MULTI30K": args.multi30k}
    places: dict[str, Any] = {name: path and path.resolve() for name, path in given.items()}
    work.mkdir(parents=True, exist_ok=True)
    with alone_in(args.out, "report"):
        report = read_json(args.out / "report.json") or {"runs": {}}
        here = describe(args.toy)
        if report.get("machine", here)["device"] != here["device"]:
            device = report["machine"]["device"]
            raise ConfigurationError(f"--out {args.out} has a report of a {device}: choose another")
        report["machine"], commit = here, here["commit"]
        run, parts = choose(args.run, report, places, commit)
        names = [part.name for part in run.parts]
        advice = f"give one of {', '.join(names)}"
        check_known(args.part, names, "--part ", f"is not in run {run.name}", advice)
        if args.part:
            parts = [part for part in run.parts if part.name in args.part]
        if run.tests:
            Translations(args.data, "test")  # has the text that a test is scored with
        print(f"run {run.name}: {run.what}", flush=True)
        folder = work / run.name
        folder.mkdir(exist_ok=True)
        places.update(WORK=folder, ROOT=ROOT)
        done = report["runs"].setdefault(run.name, {})
        started = False
        for part in parts:
            left = time_is_up - time.monotonic()
            status = obstacle(part, places, done, commit) or (NO_TIME if left < LEAST else "")
            figures, log, begin, words = None, folder / f"{part.name}.log", time.monotonic(), None
            if not status:
                # forget results of an earlier model or commit
                for later in (each for each in run.parts if each.after == part.name):
                    done.pop(later.name, None)
                    (folder / f"{later.name}.json").unlink(missing_ok=True)
                words = part.command(places, args.toy)
                limit = min(part.seconds, left)
                status, figures = run_part(part, folder, words, limit)
                if status == STOPPED and left < part.seconds and started:
                    status = NO_TIME  # it is the next one
                started = True
            elif part.name in done:
                continue
            shown = [] if words is None else lines_of(log)
            done[part.name] = {
                "status": status,
                "seconds": time.monotonic() - begin,
                "command": words,
                "commit": commit,
                "figures": figures,
                "summary": summarize(shown) + measured_in(figures),
                "log": shown[-LINES:],
            }
            print(f"{part.name}: {status}, {done[part.name]['seconds']:.0f} s", flush=True)
            write_report(args.out, work, report)
            if status == INTERRUPTED:
                raise KeyboardInterrupt
    print("\n" + section(run.name, done))
    print(f"written: {args.out / 'report.md'} {args.out / 'report.json'}")
    return int(any(part["status"].startswith("failed") for part in done.values()))
