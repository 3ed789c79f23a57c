"""Tables 1 and 2 of the TransformerFTC paper: the rows, and how they are trained, tested and timed.

The folder of results holds table.md, results.json, and runs/ROW-seedN with checkpoints, logs and
result.json of each run.
"""

import difflib
import os
import re
import shlex
import statistics
import sys
import threading
import time
from argparse import Namespace
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence

import torch
from fairseq import tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from fairseq_plugins.benchmarks import machine
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluation import evaluate
from fairseq_plugins.evaluation.translation import TOKENISED_BLEU
from fairseq_plugins.preparation.processing import Processing
from fairseq_plugins.reproduction import report
from fairseq_plugins.training import batches, launch, recipes, settings
from fairseq_plugins.training.jobs import Jobs, read_json, why, write_json

SHARED = "reproduce_ftc"  # settings of all rows
# what makes the rows comparable, and what a reproduction sets or reads itself
FIXED = (
    "--arch -a --encoder-layers --encoder-blocks --time-window --feature-window --time-pooling "
    "--feature-pooling --encoder-token-mixer --encoder-ffn --decoder-ffn --log-format --log-file "
    "--seed --cpu"
).split()
SECONDS_BETWEEN_LINES = 20.0
BATCHES = 8


class Row(NamedTuple):
    """A row of the paper's tables, and the recipe and options that make it."""

    name: str
    model: str
    blocks: str
    pooling: str
    recipe: str
    words: str
    bleu: float
    epoch_seconds: int


FC, TC, FTC = "transformer_fc", "transformer_tc", "transformer_ftc"
ROWS = [
    Row("transformer", "Transformer", "1x6", "-", "transformer", "", 34.9, 216),
    Row("fc-2x3", "Feature", "2x3", "2", FC, "--encoder-blocks 3,3", 34.8, 195),
    Row("fc-2x4", "Feature", "2x4", "2", FC, "--encoder-blocks 4,4", 35.1, 202),
    Row("fc-3x3", "Feature", "3x3", "2", FC, "--encoder-blocks 3,3,3", 34.7, 232),
    Row("fc-4x4", "Feature", "4x4", "2", FC, "--encoder-blocks 4,4,4,4", 35.2, 380),
    Row("fc-6x4", "Feature", "6x4", "2", FC, "--encoder-blocks 4,4,4,4,4,4", 34.9, 440),
    Row("tc-2x3", "Time", "2x3", "2", TC, "--encoder-blocks 3,3", 35.0, 196),
    Row("tc-2x4", "Time", "2x4", "2", TC, "--encoder-blocks 4,4", 35.1, 207),
    Row("ftc-2x3", "Feature+Time", "2x3", "2", FTC, "--encoder-blocks 3,3", 35.1, 163),
    Row("ftc-2x4", "Feature+Time", "2x4", "2", FTC, "--encoder-blocks 4,4", 35.0, 181),
    Row(
        "fc-2x3-window4", "Feature", "2x3", "4", FC,
        "--encoder-blocks 3,3 --feature-window 4", 35.2, 186,
    ),
    Row(
        "fc-3x3-window4", "Feature", "3x3", "4", FC,
        "--encoder-blocks 3,3,3 --feature-window 4", 35.1, 212,
    ),
    Row(
        "fc-2x3-linear", "Feature", "2x3", "2 (linear)", FC,
        "--encoder-blocks 3,3 --feature-pooling linear", 35.1, 204,
    ),
]  # fmt: skip


class Request(NamedTuple):
    """What is to be reproduced, and how."""

    data: Path
    out: Path
    rows: Sequence[str] = ()  # names; none for all
    seeds: Sequence[int] = (1,)
    settings: Sequence[Path] = ()
    words: Sequence[str] = ()  # more options for fairseq-train
    max_update: Optional[int] = None
    max_minutes: Optional[float] = None
    parallel: int = 1
    average: Optional[int] = None
    generate: Sequence[str] = ()  # more options for fairseq-generate
    interleaved: bool = True
    time_rounds: int = 5
    timing_skip: int = 100
    threads: int = 1
    cpu: bool = False


def choose_rows(names: Sequence[str]) -> List[Row]:
    """The rows of these names, in the order of the tables; commas separate names, too."""
    known = {row.name: row for row in ROWS}
    wanted = [word for name in names for word in name.split(",") if word] or list(known)
    for name in wanted:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=3) or list(known)
            raise ConfigurationError(f"--rows {name} is no row: nearest are {', '.join(close)}")
    return [row for row in ROWS if row.name in wanted]


def refuse_fixed(words: Iterable[str], where: str) -> None:
    """ConfigurationError if options are among the words that the rows set."""
    for word in words:
        option = word.split("=")[0]
        if option in FIXED:
            instead = {"--seed": "use --seeds", "--cpu": "put --cpu before --"}
            raise ConfigurationError(f"{option} in {where}: " + instead.get(option, "rows set it"))


# --- the training log -----------------------------------------------------------------------------

LOADED = re.compile(r"Loaded checkpoint .* @ (\d+) updates")
REPORT = re.compile(r"epoch \d+: +\d+ / (\d+) .*\bwps=([\d.]+).*\bwpb=([\d.]+)")
UPDATES = re.compile(r"\bnum_updates:?[ =](\d+)")
PAUSE = re.compile(r"begin validation|Preparing to save checkpoint|end of epoch \d")


class Timing(NamedTuple):
    """What a training log tells of time."""

    step_seconds: List[float]  # of an update, one value a report
    updates_per_epoch: Optional[int]
    updates: int  # done in the end


def read_timing(lines: Iterable[str], skip: int) -> Timing:
    """Time of an update, from reports with no validation, saving or end of an epoch before them.

    A report has the words of a batch and the words of a second, on average since the report before.

    Args:
        lines: of the training log; several starts may follow each other.
        skip: updates after each start that are not timed.
    """
    seconds: List[float] = []
    per_epoch, updates, begun = None, 0, 0
    whole = False  # whether nothing but training happened since the last report
    for line in lines:
        loaded, found = LOADED.search(line), REPORT.search(line)
        if line.startswith("# "):
            whole, begun = False, 0
        elif loaded:
            begun = int(loaded.group(1))
        elif PAUSE.search(line):
            whole = False
        elif found:
            per_epoch = int(found.group(1))
            speed, words = float(found.group(2)), float(found.group(3))
            if whole and updates >= begun + skip and speed > 0:
                seconds.append(words / speed)
            whole = True
        done = UPDATES.search(line)
        if done:
            updates = int(done.group(1))
    return Timing(seconds, per_epoch, updates)


# --- the work -------------------------------------------------------------------------------------


def count_parameters(given: Namespace) -> int:
    """Build the model of a row, to find mistakes before anything trains.

    Raises:
        ConfigurationError: a size that cannot work.
    """
    try:
        cfg = convert_namespace_to_omegaconf(given)
        model = tasks.setup_task(cfg.task).build_model(cfg.model)
    except Exception as error:  # fairseq checks with assertions, KeyErrors and more
        raise ConfigurationError(f"{error}" or type(error).__name__) from None
    return sum(parameter.numel() for parameter in model.parameters())


class Reproduction:
    """All rows on one prepared folder, in one folder of results.

    Args:
        request: what is to be done.
        say: takes a line of progress.

    Raises:
        ConfigurationError: whatever cannot work, before any row trains.
    """

    def __init__(self, request: Request, say: Callable[[str], None]):
        self.request, self.say = request, say
        self.rows, self.out = choose_rows(request.rows), request.out.resolve()
        refuse_fixed(request.words, "the options after --")
        for path in request.settings:
            refuse_fixed(recipes.settings([path]), f"--settings {path}")
        self.jobs, self.writing = Jobs(), threading.Lock()
        self.failures: List[Dict[str, str]] = []
        self.cpu = request.cpu or not torch.cuda.is_available()
        self.machine = machine.describe(
            torch.device("cpu" if self.cpu else "cuda"), request.threads
        )
        launch.check_data(request.data)
        self.data = self._describe_data()
        self.plans: Dict[str, launch.Plan] = {}
        self.parameters: Dict[str, int] = {}
        for number, row in enumerate(self.rows, 1):
            say(f"checking row {number}/{len(self.rows)}: {row.name}")
            try:
                for seed in request.seeds:
                    plan = self.plan(row, seed)
                    settings.check_same(plan.save_dir, plan.settings)
                    self.plans[_run(row, seed)] = plan
                self.parameters[row.name] = count_parameters(plan.given)
            except ConfigurationError as error:
                words = row.words or "no options"
                raise ConfigurationError(f"row {row.name} ({words}): {error}") from None

    def _describe_data(self) -> Dict[str, Any]:
        folder = self.request.data
        prepared = Processing.load(folder)
        pair = f"{prepared.source_lang}-{prepared.target_lang}"
        pairs = {}
        for split in ("train", "valid", "test"):
            prefix = folder / f"{split}.{pair}.{prepared.target_lang}"
            if not Path(f"{prefix}.idx").is_file():
                raise ConfigurationError(f"{prefix}.idx is missing: prepare train, valid and test")
            pairs[split] = len(batches.sizes(prefix))
        return {"name": folder.resolve().name, "pairs": pairs}

    def plan(self, row: Row, seed: int) -> launch.Plan:
        """The training of a run."""
        request = self.request
        words = [*shlex.split(row.words), "--seed", str(seed)]
        words += ["--keep-interval-updates", str(request.average or 1), *self.ending()]
        half = {"--fp16", "--bf16", "--amp"} & set(request.words)
        return launch.plan(
            launch.Request(
                recipe=recipes.find(row.recipe),
                data=request.data.resolve(),
                save_dir=self.out / "runs" / _run(row, seed),
                settings=[recipes.find(SHARED), *request.settings],
                words=[*words, *request.words],
                processes=1,
                precision="auto" if half else "fp32",
                cpu=self.cpu,
                threads=request.threads,
            )
        )

    def ending(self) -> List[str]:
        """When this call ends each run; another call may train the same runs longer."""
        words = []
        if self.request.max_update:
            words += ["--max-update", str(self.request.max_update)]
        if self.request.max_minutes:
            words += ["--stop-time-hours", f"{self.request.max_minutes / 60:.6g}"]
        return words

    def finish_all(self) -> None:
        """Train and test, seed by seed, so that a whole table stands early."""
        runs = [(row, seed) for seed in self.request.seeds for row in self.rows]

        def work(number: int, row: Row, seed: int) -> None:
            label = f"[{number}/{len(runs)}] {row.name} seed {seed}: "
            try:
                self.finish(row, seed, lambda text: self.say(label + text.strip()))
            except (ConfigurationError, OSError) as error:
                self.failures.append({"run": _run(row, seed), "message": str(error)})
                self.say(f"{label}FAILED: {error}")
            self.write_results()

        with ThreadPoolExecutor(self.request.parallel) as pool:
            jobs = [pool.submit(work, number, *run) for number, run in enumerate(runs, 1)]
            try:
                finished, _ = wait(jobs, return_when=FIRST_EXCEPTION)
                for job in finished:
                    job.result()
            except BaseException:
                self.jobs.stop()
                for job in jobs:
                    job.cancel()
                raise

    def finish(self, row: Row, seed: int, say: Callable[[str], None]) -> None:
        """Train and test one run, as far as that is not done.

        Raises:
            ConfigurationError: training or testing failed.
        """
        plan = self.plans[_run(row, seed)]
        path = plan.save_dir / "result.json"
        record = read_json(path) or {}
        trained = launch.train(plan, self.jobs, say, SECONDS_BETWEEN_LINES)
        if trained or "training" not in record:
            record = {"row": row.name, "seed": seed, "training": self.describe_training(row, plan)}
            write_json(path, record)
        checkpoints = "the best checkpoint on valid"
        if self.request.average:
            checkpoints = f"the average of the last {self.request.average} checkpoints"
        request = evaluate.Request(
            self.request.data.resolve(), plan.save_dir, last=self.request.average,
            by="update" if self.request.average else None, words=self.request.generate,
            cpu=self.cpu,
        )  # fmt: skip
        system = evaluate.evaluate(request, self.jobs, say)
        score = system.scores[TOKENISED_BLEU]
        record["scoring"] = {
            "bleu": score["score"],
            "signature": score["signature"],
            "checkpoint": checkpoints,
            "generate": list(self.request.generate),
        }
        write_json(path, record)
        say(f"{TOKENISED_BLEU} {score['score']:.2f} {score['signature']}")

    def describe_training(self, row: Row, plan: launch.Plan) -> Dict[str, Any]:
        with open(plan.save_dir / "train.log", encoding="utf-8", errors="replace") as log:
            timing = read_timing(log, self.request.timing_skip)
        step = statistics.median(timing.step_seconds) if timing.step_seconds else None
        return {
            "command": plan.command,
            "parameters": self.parameters[row.name],
            "updates": timing.updates,
            "updates_per_epoch": timing.updates_per_epoch,
            "step_seconds": timing.step_seconds,
            "epoch_seconds": step * timing.updates_per_epoch
            if step and timing.updates_per_epoch else None,
            "timing_skip": self.request.timing_skip,
            "parallel": self.request.parallel,
            "machine": self.machine,
        }  # fmt: skip

    def measure_interleaved(self) -> None:
        """Training steps of all trained rows in turn, by the benchmark."""
        trained = {run["row"]: run for run in self.runs()}
        rows = [row for row in ROWS if row.name in trained]
        if report.BASELINE not in [row.name for row in rows] or len(rows) < 2:
            self.say(f"no time ratio: it needs the row {report.BASELINE} and another one")
            return
        given = [self.plan(row, self.request.seeds[0]).given for row in rows]
        options = recipes.read(recipes.find(report.BASELINE))
        common = recipes.words(
            {n: v for n, v in options.items() if n != "arch" and not n.startswith("eval_")}
        )
        common += [*recipes.settings(self.request.settings), *self.request.words]
        epochs = [trained[row.name]["training"]["updates_per_epoch"] for row in rows]
        count = min([BATCHES, *filter(None, epochs)])
        words = [sys.executable, "-m", "fairseq_plugins", "benchmark", "train-step"]
        words += [str(self.request.data.resolve()), "--options=" + _quoted(common)]
        words += [f"--arch={args.arch} {row.words}" for args, row in zip(given, rows)]
        words += ["--batches", str(count), "--rounds", str(self.request.time_rounds)]
        words += ["--threads", str(self.request.threads)]
        words += ["--max-tokens", str(given[0].max_tokens)] if given[0].max_tokens else []
        words += ["--cpu"] if self.cpu else []
        path, log = self.out / "interleaved.json", self.out / "benchmark.log"
        wanted = {"command": words, "machine": self.machine}
        before = read_json(path) or {}
        if all(before.get(name) == wanted[name] for name in wanted):
            self.say("time ratio: kept")
            return
        self.say(f"time ratio: training steps of {len(rows)} rows in turn")
        figures = self.out / "benchmark.json"
        if self.jobs.run([*words, "--json", str(figures)], log, lambda line: None) != 0:
            message = f"the benchmark failed: {why(log)}; its log is {log}"
            self.failures.append({"run": "time ratio", "message": message})
            self.say(f"time ratio: FAILED: {message}")
            return
        measured = read_json(figures)
        figures.unlink()
        ratios = {row.name: figure for row, figure in zip(rows, measured["rows"])}
        extra = {"batches": count, "rounds": self.request.time_rounds, "rows": ratios}
        write_json(path, {**wanted, **extra})

    def runs(self) -> List[Dict[str, Any]]:
        """The records of all runs in the folder, those of earlier calls too."""
        found = (read_json(path) for path in sorted(self.out.glob("runs/*/result.json")))
        return [record for record in found if record and record.get("training")]

    def write_results(self) -> None:
        """results.json and the table, as far as they are known."""
        with self.writing:
            runs = self.runs()
            files = [self.rows[0].recipe, SHARED, *map(str, self.request.settings)]
            shown = [*files, *self.ending(), *self.request.words]
            results: Dict[str, Any] = {
                "written": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                "data": self.data,
                "settings": _quoted(shown),
                "rows": [
                    {
                        "name": row.name,
                        "model": row.model,
                        "blocks": row.blocks,
                        "pooling": row.pooling,
                        "paper": {"bleu": row.bleu, "epoch_seconds": row.epoch_seconds},
                        "runs": sorted(
                            (run for run in runs if run["row"] == row.name),
                            key=lambda run: run["seed"],
                        ),
                    }
                    for row in ROWS
                ],
                "interleaved": read_json(self.out / "interleaved.json")
                if self.request.interleaved else None,
                "failures": self.failures,
            }  # fmt: skip
            write_json(self.out / "results.json", results)
            report.write_table(results, self.out)


def _run(row: Row, seed: int) -> str:
    return f"{row.name}-seed{seed}"


def _quoted(words: Iterable[str]) -> str:
    return " ".join(map(shlex.quote, words))


def available_threads(parallel: int) -> int:
    """Processor threads of each of so many runs side by side."""
    return max(1, len(os.sched_getaffinity(0)) // parallel)
