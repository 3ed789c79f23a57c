"""Train, test and time the rows of a table.

The output folder holds table.md, results.json, and one folder runs/ROW-seedN per run with its
checkpoints, logs and result.json. A run that begins with other data has that training in its
folder "first".
"""

import contextlib
import queue
import re
import shlex
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Any

import torch

from fairseq_plugins.commands import train
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.evaluate import averages, evaluate
from fairseq_plugins.evaluate.request import EvaluationRequest
from fairseq_plugins.json_files import read_json, write_json
from fairseq_plugins.lab.reproduction import report, step_times
from fairseq_plugins.lab.reproduction.jobs import Jobs, failure_in
from fairseq_plugins.lab.reproduction.plans import FIRST, PlannedRuns, name_of
from fairseq_plugins.lab.reproduction.request import BATCHES, ReproductionRequest
from fairseq_plugins.lab.reproduction.tables import BASELINE, Row
from fairseq_plugins.lab.reproduction.training_log import log_of
from fairseq_plugins.train.request import Plan
from fairseq_plugins.train.run_folder import PRECISION, Run

SECONDS_BETWEEN_LINES = 20.0


class Reproduction(PlannedRuns):
    """Trains, tests and times the rows of a table on one prepared folder.

    The constructor checks all rows before any training starts.
    """

    def __init__(self, request: ReproductionRequest, say: Callable[[str], None]):
        self.jobs, self.writing = Jobs(), threading.Lock()
        self.failures: list[dict[str, str]] = []
        self.time_is_up = threading.Event()
        self.end = time.monotonic() + 60 * (request.minutes or 0)
        super().__init__(request, say)

    def finish_all(self) -> None:
        """Train and test all runs, until the time limit `ReproductionRequest.minutes`.

        Failed runs are recorded in `failures`; the others continue.
        """
        free: queue.SimpleQueue[int] = queue.SimpleQueue()  # places of the runs side by side
        for place in range(self.request.parallel):
            free.put(place)

        def work(number: int, row: Row, seed: int) -> None:
            if self.time_is_up.is_set():
                return
            label = f"[{number}/{len(self.todo)}] {row.name} seed {seed}: "
            place = free.get()
            try:
                jobs = self.jobs.on(self.gpus(place))
                self.finish(row, seed, jobs, lambda text: self.say(label + text.strip()))
            except Exception as error:  # such as a GPU's memory: the other runs go on
                expected = isinstance(error, (ConfigurationError, OSError))
                message = f"{error}" if expected else f"{type(error).__name__}: {error}"
                self.failures.append({"run": name_of(row, seed), "message": message})
                self.say(f"{label}FAILED: {message}")
            except KeyboardInterrupt:
                if not self.time_is_up.is_set():
                    raise
                return
            finally:
                free.put(place)
            self.write_results()

        with self.time_limit(), ThreadPoolExecutor(self.request.parallel) as pool:
            jobs = [pool.submit(work, number, *run) for number, run in enumerate(self.todo, 1)]
            try:
                finished, _ = wait(jobs, return_when=FIRST_EXCEPTION)
                for job in finished:
                    job.result()
            except BaseException:
                self.jobs.stop()
                for job in jobs:
                    job.cancel()
                raise

    @contextlib.contextmanager
    def time_limit(self) -> Iterator[None]:
        """End the programs that run in this block when `ReproductionRequest.minutes` are over."""

        def stop() -> None:
            self.time_is_up.set()
            self.say("the time is up: stopping, which may take half a minute")
            self.jobs.stop()

        timer = threading.Timer(max(0.0, self.end - time.monotonic()), stop)
        timer.daemon = True
        if self.request.minutes:
            timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def gpus(self, place: int) -> list[int]:
        """The GPUs of one of the runs side by side; empty if there is nothing to choose from.

        Each run has its own GPUs, until all are in use; then runs share them.
        """
        count = 0 if self.cpu else torch.cuda.device_count()
        each = self.request.processes
        return [(place * each + number) % count for number in range(each)] if count > 1 else []

    def finish(self, row: Row, seed: int, jobs: Jobs, say: Callable[[str], None]) -> None:
        """Train and test one run with `jobs`; finished steps are skipped.

        Raises:
            ConfigurationError: training or testing failed.
        """
        *beginnings, plan = self.plans[name_of(row, seed)]
        begun = any(plan.save_dir.glob("checkpoint*.pt"))  # the rest does not read the beginning
        for first in beginnings:
            if not begun:
                self.run_training(first, jobs, say)
            elif first.save_dir.is_dir() and not Run(first.save_dir).reached(first.end):
                say(
                    "its first stage was trained with another length and is kept: delete "
                    f"{plan.save_dir} to train both stages anew"
                )
        record = self.train(row, seed, plan, jobs, say)
        record["scoring"] = self.test(plan, jobs, say)
        write_json(plan.save_dir / "result.json", record)
        for title, score in record["scoring"]["scores"].items():
            say(f"{title} {score['score']:.2f} {score['signature']}")

    def train(
        self, row: Row, seed: int, plan: Plan, jobs: Jobs, say: Callable[[str], None]
    ) -> dict[str, Any]:
        """Train a run, unless that is finished; returns its record, which result.json has."""
        path = plan.save_dir / "result.json"
        record = read_json(path) or {}
        # what the times of a training in several calls are of, kept if this call is ended
        parallel, places = record.get("parallel", 0), record.get("places", [])
        if not Run(plan.save_dir).reached(plan.end):
            parallel = record["parallel"] = max(parallel, self.request.parallel)
            place = {"processes": self.request.processes, "machine": self.machine}
            places = record["places"] = [*(each for each in places if each != place), place]
            plan.save_dir.mkdir(parents=True, exist_ok=True)
            write_json(path, record)
        trained = self.run_training(plan, jobs, say)
        if trained or "training" not in record:
            before = {**record.get("training", {}), "parallel": parallel, "places": places}
            record = {"row": row.name, "seed": seed, "options": self.options()}
            record.update(parallel=parallel, places=places)
            record["training"] = self.describe_training(row, plan, before)
            write_json(path, record)
        return record

    def run_training(self, plan: Plan, jobs: Jobs, say: Callable[[str], None]) -> bool:
        """Run the command `train`; returns whether anything was left to train.

        Raises:
            ConfigurationError: the training failed.
        """
        said, left = -float("inf"), not Run(plan.save_dir).reached(plan.end)

        def on_line(line: str) -> None:
            nonlocal said
            now = time.monotonic()
            if re.match("  update .*  train ", line):
                if now - said < SECONDS_BETWEEN_LINES:
                    return
                said = now
            if not line.startswith("error: "):
                say(line)

        plan.save_dir.mkdir(parents=True, exist_ok=True)
        log = plan.save_dir / "command.log"
        command = [sys.executable, "-m", "fairseq_plugins", "train", *train.words_of(plan.request)]
        status = jobs.run(command, log, on_line)
        if status != 0:
            raise ConfigurationError(failure_in(log, status))
        return left

    def test(self, plan: Plan, jobs: Jobs, say: Callable[[str], None]) -> dict[str, Any]:
        """The scores of a trained run, and what was scored."""
        saved = len(averages.find(plan.save_dir, averages.kind_of(plan.save_dir)))
        count = min(self.average, saved)
        if count < self.average:
            tested = "their average" if saved > 1 else "it" if saved else "the best one"
            say(
                f"checkpoints of epochs or updates: {saved} of the {self.average} to average, so "
                f"{tested} is tested"
            )
        checkpoints = "the best checkpoint on valid"
        if count:
            checkpoints = f"the average of the last {count} checkpoints"
        request = EvaluationRequest(
            self.request.data.resolve(), plan.save_dir, last=count or None,
            settings=self.generation, words=self.request.generate, cpu=self.cpu,
            threads=self.request.threads if self.cpu else None,
        )  # fmt: skip
        with jobs.here() as check_stop:
            system = evaluate.evaluate(request, say, check_stop=check_stop)
        # text without spaces between words has no tokenised BLEU
        scores = {
            title: system.scores.get(score) or system.scores["BLEU"]
            for score, title in self.table.metrics
        }
        generate = list(self.request.generate)
        return {"scores": scores, "checkpoint": checkpoints, "generate": generate}

    def describe_training(self, row: Row, plan: Plan, before: dict[str, Any]) -> dict[str, Any]:
        """What the table and the plots need; `before` is that of an earlier call, if any."""
        log = log_of(plan.save_dir, self.request.timing_skip)
        step = statistics.median(log.step_seconds) if log.step_seconds else None
        first: dict[str, Any] = {
            name: before[name]
            for name in ("first_updates", "first_seconds", "first_precision")
            if name in before
        }
        if (plan.save_dir / FIRST / "train.log").is_file():  # who needs room may delete it
            begun = log_of(plan.save_dir / FIRST, self.request.timing_skip)
            time_of_one = statistics.median(begun.step_seconds) if begun.step_seconds else 0
            first = {"first_updates": begun.updates, "first_seconds": begun.updates * time_of_one}
            first["first_precision"] = Run(plan.save_dir / FIRST).stored(PRECISION)
        return {
            "command": plan.command,
            **first,
            "parameters": self.parameters[row.name],
            "updates": log.updates,
            "updates_per_epoch": log.updates_per_epoch,
            "valid": log.valid,
            "step_seconds": log.step_seconds,
            "epoch_seconds": step * log.updates_per_epoch
            if step and log.updates_per_epoch else None,
            "timing_skip": self.request.timing_skip,
            "parallel": before["parallel"] or self.request.parallel,
            "processes": self.request.processes,
            "machine": self.machine,
            "earlier_places": before["places"][:-1],
        }  # fmt: skip

    def unfinished(self) -> list[dict[str, Any]]:
        """The progress of the runs of this call that are to be trained further or tested."""
        found = []
        for run, plans in self.plans.items():
            tested = (read_json(plans[-1].save_dir / "result.json") or {}).get("scoring")
            begun = [plan for plan in plans if (plan.save_dir / "train.log").is_file()]
            reached = Run(plans[-1].save_dir).reached(plans[-1].end)
            if begun and not (tested and reached):
                name = f"{run}, other data" if begun[-1] != plans[-1] else run
                log = log_of(begun[-1].save_dir)
                found.append(
                    {"run": name, "epoch": log.epoch, "updates": log.updates, "valid": log.valid}
                )
        return found

    def measure_interleaved(self) -> None:
        """Time the training steps of all trained rows in turn, with `benchmark train-step`."""
        trained = {run["row"]: run for run in self.runs()}
        rows = [row for row in self.table.rows if row.name in trained]
        if BASELINE not in [row.name for row in rows] or len(rows) < 2:
            self.say(f"no time ratio: it needs the row {BASELINE} and another one")
            return
        plans = [self.plan(row, trained[row.name]["seed"]) for row in rows]
        epochs = [trained[row.name]["training"]["updates_per_epoch"] for row in rows]
        count = min([BATCHES, *filter(None, epochs)])
        words = step_times.command(self.request, self.files, rows, plans, count, self.cpu)
        path, log = self.out / "interleaved.json", self.out / "benchmark.log"
        wanted = {"command": words, "machine": self.machine}
        before = read_json(path) or {}
        if all(before.get(name) == wanted[name] for name in wanted):
            self.say("time ratio: kept")
            return
        self.say(f"time ratio: training steps of {len(rows)} rows in turn")
        figures = self.out / "benchmark.json"
        try:
            with self.time_limit():
                status = self.jobs.run([*words, "--json", str(figures)], log, lambda line: None)
        except KeyboardInterrupt:
            if not self.time_is_up.is_set():
                raise
            self.say("time ratio: not finished; it begins again with the next call")
            return
        if status != 0:
            message = f"the benchmark failed: {failure_in(log, status)}; its log is {log}"
            self.failures.append({"run": "time ratio", "message": message})
            self.say(f"time ratio: FAILED: {message}")
            return
        measured = read_json(figures)
        figures.unlink()
        ratios = {row.name: figure for row, figure in zip(rows, measured["rows"])}
        extra = {"batches": count, "rounds": self.request.time_rounds, "rows": ratios}
        write_json(path, {**wanted, **extra})

    def runs(self) -> list[dict[str, Any]]:
        """The records of all runs in the folder, including those of earlier calls."""
        found = (read_json(path) for path in sorted(self.out.glob("runs/*/result.json")))
        return [record for record in found if record and record.get("training")]

    def write_results(self) -> None:
        """Write results.json and the table from all results available so far."""
        with self.writing:
            runs = self.runs()
            others = [
                f"{run['row']}, seed {run['seed']}, was trained with other options than those "
                f"of the settings below: `{run['options'] or 'none'}`."
                for run in runs
                if run.get("options", self.options()) != self.options()
            ]
            shown = [*map(str, self.request.settings), *self.precision(), *self.ending()]
            shown += self.request.words
            results: dict[str, Any] = {
                **self.table._asdict(),
                "table": self.request.table,
                "remarks": [*self.table.remarks, *others],
                "reduced": self.request.reduced,
                "settings": shlex.join([self.rows[0].recipe, *self.table.settings, *shown]),
                "metrics": [metric.title for metric in self.table.metrics],
                "written": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
                "data": self.data,
                "planned": [[row.name, seed] for row, seed in self.todo],
                "rows": [
                    {
                        **row._asdict(),
                        "paper": row.paper and row.paper._asdict(),
                        "runs": sorted(
                            (run for run in runs if run["row"] == row.name),
                            key=lambda run: run["seed"],
                        ),
                    }
                    for row in self.table.rows
                ],
                "cited": [row._asdict() for row in self.table.cited],
                "interleaved": read_json(self.out / "interleaved.json")
                if self.request.interleaved else None,
                "unfinished": self.unfinished(),
                "failures": self.failures,
            }  # fmt: skip
            write_json(self.out / "results.json", results)
            report.write_table(results, self.out)
