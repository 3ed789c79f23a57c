"""Train, test and time the rows of a table.

The output folder holds table.md, results.json, and one folder runs/ROW-seedN per run with its
checkpoints, logs and result.json. A run that begins with other data has that training in its
folder "first".
"""

import contextlib
import queue
import shlex
import statistics
import threading
import time
from argparse import Namespace
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

import torch
from fairseq import tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from fairseq_plugins.benchmarks import machine
from fairseq_plugins.data import lengths
from fairseq_plugins.errors import ConfigurationError, flag
from fairseq_plugins.evaluation import averaging, evaluate
from fairseq_plugins.evaluation.request import Request as EvaluationRequest
from fairseq_plugins.evaluation.request import check_generation
from fairseq_plugins.json_files import read_json, write_json
from fairseq_plugins.preparation.documents import SPLITS
from fairseq_plugins.reproduction import report, step_times
from fairseq_plugins.reproduction.first_data import FIRST_DATA
from fairseq_plugins.reproduction.request import Request, choose_runs, refuse_fixed
from fairseq_plugins.reproduction.tables import BASELINE, TABLES, Row
from fairseq_plugins.reproduction.training_log import log_of
from fairseq_plugins.text.processing import Processing
from fairseq_plugins.training import launch, planning, recipes, settings
from fairseq_plugins.training.jobs import Jobs, failure_in

BEGINNINGS = {"--finetune-from-model", "--restore-file"}  # set for rows that begin elsewhere
FIRST = "first"  # folder of a run that holds its training on other data
SECONDS_BETWEEN_LINES = 20.0


def count_parameters(given: Namespace) -> int:
    """Number of parameters of a row's model. Building it finds invalid options before training.

    Raises:
        ConfigurationError: the model cannot be built.
    """
    try:
        cfg = convert_namespace_to_omegaconf(given)
        model = tasks.setup_task(cfg.task).build_model(cfg.model)
    except Exception as error:  # fairseq raises AssertionError, KeyError and other types
        raise ConfigurationError(f"{error}" or type(error).__name__) from None
    return sum(parameter.numel() for parameter in model.parameters())


def describe_data(folder: Path) -> Dict[str, Any]:
    """The name of a prepared folder, the sizes of its splits, and its number of classes, if any.

    Raises:
        ConfigurationError: a split is missing, or the folder was not prepared by this package.
    """
    described: Dict[str, Any] = {"name": folder.resolve().name, "pairs": {}}
    described["fingerprint"] = settings.fingerprint(folder)
    described["held_out"] = settings.fingerprint_of_tokens(folder, "valid", "test")
    labels = folder / "label" / "dict.txt"
    if labels.is_file():
        names = labels.read_text(encoding="utf-8").splitlines()
        described["classes"] = sum(not name.startswith("madeupword") for name in names)
        prefixes = {split: labels.with_name(split) for split in SPLITS}
    else:
        prepared = Processing.load(folder)
        pair = f"{prepared.source_lang}-{prepared.target_lang}"
        prefixes = {split: folder / f"{split}.{pair}.{prepared.target_lang}" for split in SPLITS}
    for split, prefix in prefixes.items():
        if not Path(f"{prefix}.idx").is_file():
            raise ConfigurationError(f"{prefix}.idx is missing: prepare train, valid and test")
        described["pairs"][split] = len(lengths.sizes(prefix))
    return described


class Reproduction:
    """Trains, tests and times the rows of a table on one prepared folder.

    The constructor checks all rows before any training starts.

    Args:
        request: the table, the data and the options.
        say: called with each line of progress.

    Raises:
        ConfigurationError: the data, a row, a seed or an option is invalid.
    """

    def __init__(self, request: Request, say: Callable[[str], None]):
        self.request, self.say = request, say
        self.table, self.out = TABLES[request.table], request.out.resolve()
        if request.reduced:
            self.table = self.table.reduce()
        # files of the package: the names of some exist for several tasks
        self.beside = [recipes.find(self.table.rows[0].recipe).parent]
        self.files = [recipes.find(name, self.beside) for name in self.table.settings]
        self.files += request.settings
        self.generation = [recipes.find(self.table.generation)] if self.table.generation else []
        self.todo = choose_runs(self.table, request.rows, request.seeds)
        self.rows = list(dict.fromkeys(row for row, _ in self.todo))
        self.average = self.table.average if request.average is None else request.average
        refuse_fixed(self.table, request.words, "the options after --")
        for path in request.settings:
            refuse_fixed(self.table, recipes.arguments([path]), f"--settings {path}")
        self.jobs, self.writing = Jobs(), threading.Lock()
        self.failures: List[Dict[str, str]] = []
        self.time_is_up = threading.Event()
        self.end = time.monotonic() + 60 * (request.minutes or 0)
        self.cpu = request.cpu or not torch.cuda.is_available()
        self.machine = machine.describe(
            torch.device("cpu" if self.cpu else "cuda"), request.threads
        )
        planning.check_data(request.data)
        self.data = describe_data(request.data)
        self.check_out()
        # two for a row that begins with other data
        self.plans: Dict[str, List[planning.Plan]] = {}
        self.parameters: Dict[str, int] = {}
        for number, row in enumerate(self.rows, 1):
            say(f"checking row {number}/{len(self.rows)}: {row.name}")
            try:
                for seed in (seed for other, seed in self.todo if other == row):
                    plans = [self.plan(row, seed)]
                    if row.begins:
                        FIRST_DATA[row.begins](request.data.resolve(), self.first_data(row))
                        plans.insert(0, self.plan(row, seed, first=True))
                    for plan in plans:
                        settings.check_same(plan.save_dir, plan.settings)
                        self.check_checkpoints(plan.given, plan is not plans[-1])
                    self.plans[_run(row, seed)] = plans
                self.parameters[row.name] = count_parameters(plans[-1].given)
                check_generation(plans[-1].given.task, request.generate)
            except ConfigurationError as error:
                words = row.last_words or "no options"
                raise ConfigurationError(f"row {row.name} ({words}): {error}") from None

    def check_checkpoints(self, given: Namespace, first: bool) -> None:
        """Raise a ConfigurationError if a training would leave no checkpoint to go on with.

        Args:
            given: its options.
            first: whether another training begins with its best checkpoint.
        """
        several = not given.no_epoch_checkpoints or given.save_interval_updates > 0
        best = first or not (self.average and several)
        for option in ("no_save", "disable_validation") if best else ("no_save",):
            if getattr(given, option):
                raise ConfigurationError(
                    f"{flag(option)} leaves no checkpoint to test, or to go on with: leave it out"
                )

    def check_out(self) -> None:
        """Raise a ConfigurationError if the folder has runs that do not belong in this table."""
        before = read_json(self.out / "results.json")
        if not isinstance(before, dict):
            return
        if not {"table", "data", "rows", "reduced"} <= set(before):
            raise ConfigurationError(
                f"--out: {self.out}/results.json is not of this command: choose another folder"
            )
        had, data = before["data"], self.data
        same = {
            f"the table {before['table']}": before["table"] == self.request.table,
            "reduced runs" if before["reduced"] else "runs of full size": before["reduced"]
            == self.request.reduced,
            "runs on other data": had["pairs"] == data["pairs"]
            and all(
                had.get(part, data[part]) == data[part] for part in ("fingerprint", "held_out")
            ),
        }
        for what, fits in same.items():
            if not fits:
                raise ConfigurationError(f"--out {self.out} has {what}: choose another folder")

    def first_data(self, row: Row) -> Path:
        """The folder of the data on which a row begins."""
        return self.out / "data" / row.begins

    def plan(self, row: Row, seed: int, first: bool = False) -> planning.Plan:
        """Plan the training of one run, or its beginning on the row's first data."""
        request = self.request
        save_dir = self.out / "runs" / _run(row, seed)
        words = shlex.split(row.words if first else row.last_words)
        words += ["--seed", str(seed)]
        files = list(self.files)
        if row.begins:
            given = [*recipes.arguments(request.settings), *request.words]
            for option in BEGINNINGS.intersection(word.split("=")[0] for word in given):
                raise ConfigurationError(
                    f"{option}: this row begins with a training on other data: leave it out"
                )
        if row.begins and not first:
            words += ["--finetune-from-model", str(save_dir / FIRST / "checkpoint_best.pt")]
        length = None
        if row.then and not first:  # before the user's settings, which replace all others
            own = recipes.find(row.then, self.beside)
            files.insert(len(self.table.settings), own)
            length = recipes.read(own).get("max_update")
        for kept in ("--keep-interval-updates", "--keep-last-epochs"):
            words += [kept, str(self.average or 1)]
        words += self.ending(length)
        options = {*request.words, *recipes.arguments(request.settings)}
        half = options & {
            "--fp16", "--bf16", "--amp", "--memory-efficient-fp16", "--memory-efficient-bf16",
        }  # fmt: skip
        return planning.plan(
            planning.Request(
                recipe=recipes.find(row.recipe),
                data=self.first_data(row) if first else request.data.resolve(),
                save_dir=save_dir / FIRST if first else save_dir,
                settings=files,
                words=[*words, *request.words],
                processes=request.processes,
                precision=request.precision or ("auto" if half else self.table.precision),
                cpu=self.cpu,
                threads=request.threads,
            )
        )

    def ending(self, length: Optional[int] = None) -> List[str]:
        """Options that end each run of this call; a later call may continue the same runs.

        Args:
            length: updates of a training that has its own, which --max-update only shortens.
        """
        words = []
        if self.request.max_update:
            updates = min(self.request.max_update, length or self.request.max_update)
            words += ["--max-update", str(updates)]
        if self.request.max_minutes:
            words += ["--stop-time-hours", f"{self.request.max_minutes / 60:.6g}"]
        return words

    def finish_all(self) -> None:
        """Train and test all runs, until the time limit `Request.minutes`.

        Failed runs are recorded in `failures`; the others continue.
        """
        free: "queue.SimpleQueue[int]" = queue.SimpleQueue()  # places of the runs side by side
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
                self.failures.append({"run": _run(row, seed), "message": message})
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
        """End the programs that run in this block when `Request.minutes` are over."""

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

    def gpus(self, place: int) -> List[int]:
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
        *beginnings, plan = self.plans[_run(row, seed)]
        path = plan.save_dir / "result.json"
        record = read_json(path) or {}
        begun = any(plan.save_dir.glob("checkpoint*.pt"))  # the rest does not read the beginning
        for first in beginnings:
            if not begun:
                launch.train(first, jobs, say, SECONDS_BETWEEN_LINES)
            elif first.save_dir.is_dir() and not settings.reached(first.save_dir, first.end):
                say(
                    "its first stage was trained with another length and is kept: delete "
                    f"{plan.save_dir} to train both stages anew"
                )
        parallel = record.get("parallel", 0)
        if not settings.reached(plan.save_dir, plan.end):  # kept if this call is ended
            parallel = record["parallel"] = max(parallel, self.request.parallel)
            plan.save_dir.mkdir(parents=True, exist_ok=True)
            write_json(path, record)
        trained = launch.train(plan, jobs, say, SECONDS_BETWEEN_LINES)
        if trained or "training" not in record:
            before = {**record.get("training", {}), "parallel": parallel}
            record = {"row": row.name, "seed": seed, "options": self.options()}
            record["parallel"] = parallel
            record["training"] = self.describe_training(row, plan, before)
            write_json(path, record)
        saved = len(averaging.find(plan.save_dir, averaging.kind_of(plan.save_dir)))
        count = min(self.average, saved)
        if count < self.average:
            found = "their average" if saved else "the best checkpoint"
            say(f"{saved} checkpoints were saved instead of {self.average}: {found} is tested")
        checkpoints = "the best checkpoint on valid"
        if count:
            checkpoints = f"the average of the last {count} checkpoints"
        request = EvaluationRequest(
            self.request.data.resolve(), plan.save_dir, last=count or None,
            settings=self.generation, words=self.request.generate, cpu=self.cpu,
            threads=self.request.threads if self.cpu else None,
        )  # fmt: skip
        system = evaluate.evaluate(request, jobs, say)
        record["scoring"] = {
            "scores": {title: system.scores[score] for score, title in self.table.metrics},
            "checkpoint": checkpoints,
            "generate": list(self.request.generate),
        }
        write_json(path, record)
        for title, score in record["scoring"]["scores"].items():
            say(f"{title} {score['score']:.2f} {score['signature']}")

    def options(self) -> str:
        """What the user gave for all rows, without what only says when a run ends."""
        return shlex.join(
            [*map(str, self.request.settings), *self.precision(), *self.request.words]
        )

    def precision(self) -> List[str]:
        return ["--precision", self.request.precision] if self.request.precision else []

    def describe_training(
        self, row: Row, plan: planning.Plan, before: Dict[str, Any]
    ) -> Dict[str, Any]:
        """What the table and the plots need; `before` is that of an earlier call, if any."""
        log = log_of(plan.save_dir, self.request.timing_skip)
        step = statistics.median(log.step_seconds) if log.step_seconds else None
        first: Dict[str, Any] = {
            name: before[name]
            for name in ("first_updates", "first_seconds", "first_precision")
            if name in before
        }
        if (plan.save_dir / FIRST / "train.log").is_file():  # who needs room may delete it
            begun = log_of(plan.save_dir / FIRST, self.request.timing_skip)
            time_of_one = statistics.median(begun.step_seconds) if begun.step_seconds else 0
            first = {"first_updates": begun.updates, "first_seconds": begun.updates * time_of_one}
            first["first_precision"] = settings.precision_in(plan.save_dir / FIRST)
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
        }  # fmt: skip

    def unfinished(self) -> List[Dict[str, Any]]:
        """The progress of the runs of this call that are to be trained further or tested."""
        found = []
        for run, plans in self.plans.items():
            tested = (read_json(plans[-1].save_dir / "result.json") or {}).get("scoring")
            begun = [plan for plan in plans if (plan.save_dir / "train.log").is_file()]
            reached = settings.reached(plans[-1].save_dir, plans[-1].end)
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
        count = min([step_times.BATCHES, *filter(None, epochs)])
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

    def runs(self) -> List[Dict[str, Any]]:
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
            results: Dict[str, Any] = {
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


def _run(row: Row, seed: int) -> str:
    return f"{row.name}-seed{seed}"
