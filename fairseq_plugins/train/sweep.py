"""Train, test and compare the rows of a table.

The output folder holds table.md, results.json, and one folder runs/ROW-seedN per run with its
checkpoints, logs and result.json. A run that begins with other data has that training in its folder
"first". Trainings and tests are the commands `train` and `evaluate`. A run is done if the digest in
its result.json is that of its settings.
"""

import hashlib
import json
import queue
import shlex
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from fairseq import tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from fairseq_plugins.data import lengths
from fairseq_plugins.data.prepared_folder import check_data, check_unsharded
from fairseq_plugins.errors import ConfigurationError, counted
from fairseq_plugins.evaluate import averages
from fairseq_plugins.evaluate.evaluate import FOLDER, test_set_of
from fairseq_plugins.evaluate.model import parse_generation
from fairseq_plugins.evaluate.request import EvaluationRequest
from fairseq_plugins.files import read_json, write_json
from fairseq_plugins.options import recipes
from fairseq_plugins.options.arguments import words_of
from fairseq_plugins.system import cpu
from fairseq_plugins.system.cpu import available_threads
from fairseq_plugins.train import history, planning, settings, sweep_report
from fairseq_plugins.train.first_data import FIRST_DATA
from fairseq_plugins.train.jobs import Jobs
from fairseq_plugins.train.operations import count_operations
from fairseq_plugins.train.request import Plan, TrainingRequest
from fairseq_plugins.train.run_folder import CAPTURED, SHARING, Run
from fairseq_plugins.train.sweep_request import SweepRequest, arguments_in
from fairseq_plugins.train.sweep_table import Row, Table

COMMAND = sys.executable, "-m", "fairseq_plugins"
RESULT = "result.json"  # of each run, in its folder
NOT_COMPARED = SHARING, CAPTURED  # settings that do not change what is learned
FIRST = "first"  # folder of a run that holds its training on other data
BEGINNINGS = {"--finetune-from-model", "--restore-file"}  # set for rows that begin elsewhere
# options that a user may not give, besides those of the rows: the runs set or read them
FIXED = {"--arch", "-a", "--log-format", "--log-file", "--seed", "--cpu"}
HALF = {"--fp16", "--bf16", "--amp", "--memory-efficient-fp16", "--memory-efficient-bf16"}


class Sweep:
    """Trains, tests and compares the rows of a table on one prepared folder.

    The constructor checks all rows before any training starts.

    Args:
        request: the options.
        table: the table.
        data: the prepared folder.
        out: the folder to work in.
        say: called with each line of progress.
        beside: folders in which recipes and settings are found first.

    Raises:
        ConfigurationError: the data, a row, a seed or an option is invalid.
    """

    def __init__(
        self,
        request: SweepRequest,
        table: Table,
        data: Path,
        out: Path,
        say: Callable[[str], None],
        beside: Sequence[Path] = (),
    ):
        self.request, self.table, self.say = request, table, say
        self.folder, self.out = data, out.resolve()
        self.threads = request.threads or available_threads(request.parallel * request.processes)
        self.generate = arguments_in("--generate", request.generate)
        self.jobs, self.writing = Jobs(), threading.Lock()
        self.failures: list[dict[str, str]] = []
        self.time_is_up = threading.Event()
        self.places: queue.SimpleQueue[int] = queue.SimpleQueue()  # of the runs side by side
        for place in range(request.parallel):
            self.places.put(place)
        self.average = self.table.average if request.average is None else request.average
        self.cpu = request.cpu or not torch.cuda.is_available()
        todo = table.choose_runs(request.rows, list(dict.fromkeys(request.seeds)))
        rows = list({row.name: row for row, _ in todo}.values())
        # files of the package: the names of some exist for several tasks
        recipe = recipes.find(rows[0].recipe, beside)
        self.beside = [*beside, *recipes.folders(recipe)]
        chosen = [recipes.find(name, self.beside) for name in request.settings]
        self.files = [*(recipes.find(name, self.beside) for name in table.settings), *chosen]
        self.given = [*recipes.arguments(chosen), *request.words]
        precision = ["--precision", request.precision] if request.precision else []
        self.options = shlex.join([*map(str, chosen), *precision, *request.words])
        self.refuse_fixed()
        check_data(data)
        self.data = self.describe_data()
        self.check_out()
        self.models: dict[str, dict[str, Any]] = {}
        made: dict[tuple[str, int], Trial] = {}
        for number, row in enumerate(rows, 1):
            say(f"checking row {number}/{len(rows)}: {row.name}")
            try:
                for seed in (seed for other, seed in todo if other == row):
                    trial = made[row.name, seed] = self.trial(row, seed)
                self.models[row.name] = describe_model(trial.plans[-1].given)
            except ConfigurationError as error:
                words = row.last_options or "no options"
                raise ConfigurationError(f"row {row.name} ({words}): {error}") from None
        self.trials = [made[row.name, seed] for row, seed in todo]
        task = trial.plans[-1].given.task
        test = test_set_of(task)(data, "test")  # scoring needs files that no training reads
        self.generates = test.generates
        if self.generate:
            parse_generation(["--task", task, *self.generate])

    # ---- plans

    def refuse_fixed(self) -> None:
        """Raise a ConfigurationError for an option that the rows or runs set."""
        rows = [word for row in self.table.rows for word in shlex.split(row.last_options)]
        fixed = {*FIXED, *self.table.fixed, *(word for word in rows if word[:2] == "--")}
        for option in (word.split("=")[0] for word in self.given):
            if option in fixed:
                instead = {"--seed": "use --seeds", "--cpu": "put --cpu before --"}
                raise ConfigurationError(f"{option}: " + instead.get(option, "rows set it"))

    def check_out(self) -> None:
        """Raise a ConfigurationError if the folder has runs of another table or on other data."""
        before = read_json(self.out / "results.json")
        if before is None and self.request.report_only:
            raise ConfigurationError(f"--report-only: --out {self.out} has no results.json")
        if before is None:
            return
        for name, now in (("title", self.table.title), ("data", self.data)):
            if not isinstance(before, dict) or before.get(name) != json.loads(json.dumps(now)):
                raise ConfigurationError(
                    f"--out {self.out} has runs with another {name}: choose another folder"
                )

    def first_data(self, row: Row) -> Path:
        """The folder of the data on which a row begins."""
        return self.out / "data" / row.begins

    def place(self, row: Row, seed: int) -> Path:
        """The folder of a run."""
        return self.out / "runs" / f"{row.name}-seed{seed}"

    def trial(self, row: Row, seed: int) -> "Trial":
        """Plan and check a run."""
        plans = [self.plan(row, seed)]
        if row.begins:
            FIRST_DATA[row.begins](self.folder.resolve(), self.first_data(row))
            plans.insert(0, self.plan(row, seed, first=True))
        for plan in plans:
            Run(plan.save_dir).check_same(plan.settings)
        return Trial(row, seed, self.place(row, seed), plans, self.digest(plans))

    def plan(self, row: Row, seed: int, first: bool = False) -> Plan:
        """Plan the training of one run, or its beginning on the row's first data."""
        request, save_dir = self.request, self.place(row, seed)
        words = shlex.split(self.table.options)
        words += shlex.split(row.options if first else row.last_options)
        words += ["--seed", str(seed)]
        given = {word.split("=")[0] for word in self.given}
        for option in BEGINNINGS & given if row.begins else ():
            raise ConfigurationError(
                f"{option}: this row begins with a training on other data: remove it"
            )
        files, length = list(self.files), None
        if row.begins and not first:
            words += ["--finetune-from-model", str(save_dir / FIRST / "checkpoint_best.pt")]
        if row.then and not first:  # before those of --reduced and of the user, which replace it
            own = recipes.find(row.then, self.beside)
            place = sum(name not in self.table.reduced for name in self.table.settings)
            files.insert(place, own)
            length = recipes.read(own).get("max_update")
        for kept in sorted({"--keep-interval-updates", "--keep-last-epochs"} - given):
            words += [kept, str(self.average or 1)]
        if request.max_update:
            words += ["--max-update", str(min(request.max_update, length or request.max_update))]
        return planning.plan(
            TrainingRequest(
                recipe=recipes.find(row.recipe, self.beside),
                data=self.first_data(row) if first else self.folder.resolve(),
                save_dir=save_dir / FIRST if first else save_dir,
                settings=files,
                words=[*words, *request.words],
                processes=request.processes,
                precision=request.precision or ("auto" if HALF & given else self.table.precision),
                cpu=self.cpu,
                threads=self.threads,
                user_dir=request.user_dir,
            )
        )

    def describe_data(self) -> dict[str, Any]:
        """The name of the prepared folder, and the sizes of its splits."""
        folder = self.folder
        check_unsharded(folder)
        files = {path.name.split(".")[0]: path for path in folder.glob("*.idx")}
        files |= {path.stem: path for path in (folder / "label").glob("*.idx")}
        splits = [split for split in ("train", "valid", "test") if files]
        for split in splits:
            if split not in files:
                raise ConfigurationError(
                    f"{folder} has no {split}: prepare training, validation and test sets"
                )
        return {
            "name": folder.resolve().name,
            "fingerprint": settings.fingerprint_of(folder, "train", "valid", "test"),
            "pairs": {split: len(lengths.sizes(files[split].with_suffix(""))) for split in splits},
        }

    # ---- runs

    def finish_all(self) -> None:
        """Train and test all runs until the time limit, compare them, and write the results.

        With --report-only nothing is trained. Failed runs are in `failures`.
        """
        todo = () if self.request.report_only else enumerate(self.trials, 1)
        timer = threading.Timer(60 * (self.request.minutes or 0), self.end_in_time)
        timer.daemon = True
        if self.request.minutes:
            timer.start()
        try:
            with ThreadPoolExecutor(self.request.parallel) as pool:
                jobs = [pool.submit(self.work, *each) for each in todo]
                try:
                    for job in jobs:
                        job.result()
                except BaseException:
                    self.jobs.stop()
                    for job in jobs:
                        job.cancel()
                    raise
            self.compare()
        except KeyboardInterrupt:
            if not self.time_is_up.is_set():
                raise
        finally:
            timer.cancel()
        self.write_results()

    def end_in_time(self) -> None:
        self.time_is_up.set()
        self.say("the time is up: stopping, which may take half a minute")
        self.jobs.stop()

    def work(self, number: int, trial: "Trial") -> None:
        """Train and test one run, beside others; what fails does not end them."""
        place = self.places.get()
        label = f"[{number}/{len(self.trials)}] {trial.row.name} seed {trial.seed}: "
        try:
            self.finish(trial, self.gpus(place), lambda text: self.say(label + text))
        except Exception as error:  # such as a GPU's memory: the other runs go on
            expected = isinstance(error, (ConfigurationError, OSError))
            message = f"{error}" if expected else f"{type(error).__name__}: {error}"
            self.failures.append({"run": trial.folder.name, "message": message})
            self.say(f"{label}FAILED: {message}")
        finally:
            self.places.put(place)
        self.write_results()

    def gpus(self, place: int) -> list[int]:
        """The GPUs of one of the runs side by side; empty if there is nothing to choose from.

        Each run has its own GPUs, until all are in use; then runs share them.
        """
        count, each = 0 if self.cpu else torch.cuda.device_count(), self.request.processes
        return [(place * each + number) % count for number in range(each)] if count > 1 else []

    def finish(self, trial: "Trial", gpus: Sequence[int], say: Callable[[str], None]) -> None:
        """Train and test one run, unless it is done with the same settings.

        Raises:
            ConfigurationError: training or testing failed.
        """
        plan = trial.plans[-1]
        if trial.is_done():
            say("kept")
            return
        for each in [plan] if Run(trial.folder).checkpoints() else trial.plans:
            each.save_dir.mkdir(parents=True, exist_ok=True)
            log = each.save_dir / "command.log"
            say(f"training; its log is {log}")
            self.jobs.run([*COMMAND, "train", *words_of(each.request)], log, say, gpus)
        result, _ = self.evaluate(trial, say, gpus)
        names, scores = result["checkpoints"], result["scores"]
        if len(names) < self.average:
            say(
                f"saved: only {counted(len(names), 'checkpoints')} of the {self.average} to average"
            )
        tested = f"the average of the last {counted(len(names), 'checkpoints')}"
        best = names == ["checkpoint_best.pt"]
        metrics = self.table.metrics or [(name, name) for name in scores]
        # text without spaces between words has no tokenised BLEU
        shown = {title: scores.get(name) or scores["BLEU"] for name, title in metrics}
        record = {
            "row": trial.row.name,
            "seed": trial.seed,
            "options": self.options,
            "digest": trial.digest,
            "training": self.describe_training(trial),
            "scoring": {
                "scores": shown,
                "checkpoint": "the best checkpoint on the validation set" if best else tested,
                "generate": list(self.generate),
            },
        }
        write_json(trial.folder / RESULT, record)
        for title, score in shown.items():
            say(f"{title} {score['score']:.2f} {score['signature']}")

    def digest(self, plans: Sequence[Plan]) -> str:
        """A checksum of all that the result of a run depends on."""
        settled = [
            {name: value for name, value in plan.settings.items() if name not in NOT_COMPARED}
            for plan in plans
        ]
        generation = recipes.arguments([recipes.find(n, self.beside) for n in self.table.generate])
        what = [settled, [plan.end for plan in plans], self.average, generation]
        what += [list(self.generate), self.data["fingerprint"], self.table.metrics]
        return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()

    def evaluate(
        self,
        trial: "Trial",
        say: Callable[[str], None],
        gpus: Sequence[int] = (),
        against: Path | None = None,
    ) -> tuple[dict[str, Any], Path]:
        """Run the command `evaluate`; returns its results, and the folder that has them.

        Raises:
            ConfigurationError: the test failed.
        """
        saved = len(averages.find(trial.folder, averages.kind_of(trial.folder)))
        request = EvaluationRequest(
            data=self.folder.resolve(),
            run=trial.folder,
            last=min(self.average, saved) or None,
            settings=[recipes.find(name, self.beside) for name in self.table.generate],
            words=self.generate,
            compare=against,
            user_dir=self.request.user_dir,
            cpu=self.cpu,
            threads=self.threads if self.cpu else None,
        )
        command = [*COMMAND, "evaluate", *words_of(request)]
        self.jobs.run(command, trial.folder / "test.log", say, gpus)
        written = trial.folder / FOLDER / request.folder_name(self.generates)
        return read_json(written / "scores.json"), written

    def describe_training(self, trial: "Trial") -> dict[str, Any]:
        """What the table and the plots need of a training."""
        done, first = history.read(trial.folder), history.read(trial.folder / FIRST)
        return {
            "command": trial.plans[-1].command,
            **self.models[trial.row.name],
            "first_updates": first.updates,
            "updates": done.updates,
            "valid": done.valid,
            "seconds": done.seconds,
            "parallel": self.request.parallel,
            "machine": self.machine(),
        }

    def compare(self) -> None:
        """Test each run against that of the first row with the same seed: `p` in its record."""
        first, *others = self.table.rows
        for trial in self.trials:
            base, record = self.place(first, trial.seed), trial.record()
            against = (read_json(base / RESULT) or {}).get("digest")
            if trial.row in others and record and against and record.get("against") != against:
                try:
                    _, folder = self.evaluate(trial, self.say, against=base)
                except ConfigurationError as error:
                    self.failures.append({"run": trial.folder.name, "message": f"{error}"})
                    continue
                differences = read_json(folder / f"against-{base.name}.json")["scores"]
                record.update(p={n: each["p"] for n, each in differences.items()}, against=against)
                write_json(trial.folder / RESULT, record)

    # ---- results

    def conclude(self, results: dict[str, Any]) -> list[str]:
        """Lines between the table and its notes."""
        return []

    def machine(self) -> dict[str, Any]:
        """What must be known of the machine to compare times."""
        device = cpu.name() if self.cpu else torch.cuda.get_device_name()
        threads = self.threads
        return {"device": device, "threads": threads, "torch": torch.__version__}

    def results(self) -> dict[str, Any]:
        """All results in the folder so far, including those of earlier calls."""
        stored = (read_json(path) for path in sorted(self.out.glob(f"runs/*/{RESULT}")))
        runs = [record for record in stored if record]
        others = [
            f"{run['row']}, seed {run['seed']}, was trained with other options than those of the "
            f"settings below: `{run['options'] or 'none'}`."
            for run in runs
            if run["options"] != self.options
        ]
        unfinished = [
            trial.folder.name
            for trial in self.trials
            if (trial.folder / "command.log").is_file() and not trial.is_done()
        ]
        return {
            **self.table._asdict(),
            "metrics": [title for _, title in self.table.metrics]
            or list(dict.fromkeys(t for run in runs for t in run["scoring"]["scores"])),
            "remarks": [*self.table.remarks, *others],
            "settings": f"{shlex.join(self.table.settings)} {self.options}".strip(),
            "written": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
            "data": self.data,
            "planned": [[trial.row.name, trial.seed] for trial in self.trials],
            "rows": [
                {
                    **row._asdict(),
                    "runs": sorted(
                        (run for run in runs if run["row"] == row.name), key=lambda run: run["seed"]
                    ),
                }
                for row in self.table.rows
            ],
            "unfinished": unfinished,
            "failures": self.failures,
        }

    def write_results(self) -> None:
        """Write results.json and table.md."""
        with self.writing:
            write_json(self.out / "results.json", self.results())
            results = read_json(self.out / "results.json")
            sweep_report.write_table(results, self.out, self.conclude(results))


@dataclass
class Trial:
    """A row with a seed, as it is run.

    Attributes:
        folder: of the run, which has its name.
        plans: of its training; two for a row that begins with other data.
        digest: of all that its result depends on.
    """

    row: Row
    seed: int
    folder: Path
    plans: list[Plan]
    digest: str

    def record(self) -> dict[str, Any]:
        """Its `RESULT`; empty before it is tested."""
        return read_json(self.folder / RESULT) or {}

    def is_done(self) -> bool:
        """Whether it was trained and tested with these settings."""
        return bool(self.record().get("digest") == self.digest)


def describe_model(given: Namespace) -> dict[str, Any]:
    """Parameters and operations of a row's model. Building it finds invalid options.

    Raises:
        ConfigurationError: the model cannot be built.
    """
    try:
        cfg = convert_namespace_to_omegaconf(given)
        task = tasks.setup_task(cfg.task)
        model = task.build_model(cfg.model)
        operations = count_operations(task, model, task.build_criterion(cfg.criterion))
    except Exception as error:  # fairseq raises AssertionError, KeyError and other types
        raise ConfigurationError(f"{error}" or type(error).__name__) from None
    return {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "operations": operations,
    }
