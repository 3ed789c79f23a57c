"""The trainings of a reproduction's rows, planned and checked before any of them starts."""

import shlex
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq import tasks
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from fairseq_plugins import lab
from fairseq_plugins.data import lengths
from fairseq_plugins.data.readers import SPLITS
from fairseq_plugins.errors import ConfigurationError, flag
from fairseq_plugins.evaluate.evaluate import test_set_of
from fairseq_plugins.evaluate.request import REFUSED, apart, check_beam, parse_generation
from fairseq_plugins.files import count_lines
from fairseq_plugins.json_files import read_json
from fairseq_plugins.lab.benchmarks import machine
from fairseq_plugins.lab.recommendation import test_set
from fairseq_plugins.lab.reproduction.first_data import FIRST_DATA
from fairseq_plugins.lab.reproduction.request import (
    RECIPES,
    ReproductionRequest,
    choose_runs,
    find_recipe,
    refuse_fixed,
    settings_of,
)
from fairseq_plugins.lab.reproduction.tables import TABLES, Row
from fairseq_plugins.prepared_folder import Prepared
from fairseq_plugins.train import planning, recipes, settings
from fairseq_plugins.train.run_folder import Run

BEGINNINGS = {"--finetune-from-model", "--restore-file"}  # set for rows that begin elsewhere
LAB = RECIPES.parent
FIRST = "first"  # folder of a run that holds its training on other data


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


def describe_data(folder: Path) -> dict[str, Any]:
    """The name of a prepared folder, the sizes of its splits, and its number of classes, if any.

    Raises:
        ConfigurationError: a split is missing, or the folder was not prepared by this package.
    """
    described: dict[str, Any] = {"name": folder.resolve().name, "pairs": {}}
    described["fingerprint"] = settings.fingerprint(folder)
    described["held_out"] = settings.fingerprint_of_tokens(folder, "valid", "test")
    prepared, labels = Prepared(folder), folder / "label" / "dict.txt"
    if labels.is_file():
        names = labels.read_text(encoding="utf-8").splitlines()
        described["classes"] = sum(not name.startswith("madeupword") for name in names)
        prefixes = {split: labels.with_name(split) for split in SPLITS}
    elif prepared.task == test_set.TASK:
        for split in SPLITS:
            described["pairs"][split] = count_lines(folder / "impressions" / f"{split}.id")
        return described
    else:
        source, target = prepared.languages
        prefixes = {split: folder / f"{split}.{source}-{target}.{target}" for split in SPLITS}
    for split, prefix in prefixes.items():
        if not Path(f"{prefix}.idx").is_file():
            raise ConfigurationError(f"{prefix}.idx is missing: prepare train, valid and test")
        described["pairs"][split] = len(lengths.sizes(prefix))
    return described


def check_generation(task: str, words: Sequence[str]) -> None:
    """Check options for fairseq-generate before there is a model to evaluate.

    Args:
        task: the name of the model's task.
        words: the options, as in `ReproductionRequest.words`.

    Raises:
        ConfigurationError: options are given for a classifier, or fairseq does not know one.
    """
    if not words:
        return
    if not test_set_of(task).generates:
        raise ConfigurationError(
            f"--generate {' '.join(words)}: a classifier does not generate: remove it"
        )
    for word in apart(words):
        if word in REFUSED:
            raise ConfigurationError(f"--generate {word}: {REFUSED[word]}")
    try:
        parse_generation(["--task", task, *words])
    except ConfigurationError as error:
        raise ConfigurationError(f"--generate: {error}") from None
    check_beam(apart(words))


class PlannedRuns:
    """The runs of a table on one prepared folder, and the trainings that each of them is.

    The constructor checks all of them.

    Args:
        request: the table, the data and the options.
        say: called with each line of progress.

    Raises:
        ConfigurationError: the data, a row, a seed or an option is invalid.
    """

    def __init__(self, request: ReproductionRequest, say: Callable[[str], None]):
        lab.register()
        self.request, self.say = request, say
        self.table, self.out = TABLES[request.table], request.out.resolve()
        if request.reduced:
            self.table = self.table.reduce()
        # files of the package: the names of some exist for several tasks
        self.beside = settings_of(self.table.rows[0].recipe)
        self.files = [recipes.find(name, self.beside) for name in self.table.settings]
        self.files += request.settings
        self.generation = [recipes.find(self.table.generation)] if self.table.generation else []
        self.todo = choose_runs(self.table, request.rows, request.seeds)
        self.rows = list(dict.fromkeys(row for row, _ in self.todo))
        self.average = self.table.average if request.average is None else request.average
        refuse_fixed(self.table, request.words, "the options after --")
        for path in request.settings:
            refuse_fixed(self.table, recipes.arguments([path]), f"--settings {path}")
        self.cpu = request.cpu or not torch.cuda.is_available()
        self.machine = machine.describe(
            torch.device("cpu" if self.cpu else "cuda"), request.threads
        )
        planning.check_data(request.data)
        self.data = describe_data(request.data)
        self.check_out()
        # two for a row that begins with other data
        self.plans: dict[str, list[planning.Plan]] = {}
        self.parameters: dict[str, int] = {}
        for number, row in enumerate(self.rows, 1):
            say(f"checking row {number}/{len(self.rows)}: {row.name}")
            try:
                for seed in (seed for other, seed in self.todo if other == row):
                    plans = [self.plan(row, seed)]
                    if row.begins:
                        FIRST_DATA[row.begins](request.data.resolve(), self.first_data(row))
                        plans.insert(0, self.plan(row, seed, first=True))
                    for plan in plans:
                        Run(plan.save_dir).check_same(plan.settings)
                        self.check_checkpoints(plan.given, plan is not plans[-1])
                    self.plans[name_of(row, seed)] = plans
                self.parameters[row.name] = count_parameters(plans[-1].given)
                check_generation(plans[-1].given.task, request.generate)
            except ConfigurationError as error:
                words = row.last_words or "no options"
                raise ConfigurationError(f"row {row.name} ({words}): {error}") from None
        given = plans[-1].given  # scoring needs files that no training reads
        test_set_of(given.task)(request.data, "test")

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
                    f"{flag(option)} leaves no checkpoint to test or resume from: remove it"
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
        save_dir = self.out / "runs" / name_of(row, seed)
        words = shlex.split(row.words if first else row.last_words)
        words += ["--seed", str(seed)]
        files = list(self.files)
        if row.begins:
            given = [*recipes.arguments(request.settings), *request.words]
            for option in BEGINNINGS.intersection(word.split("=")[0] for word in given):
                raise ConfigurationError(
                    f"{option}: this row begins with a training on other data: remove it"
                )
        if row.begins and not first:
            words += ["--finetune-from-model", str(save_dir / FIRST / "checkpoint_best.pt")]
        options = {*request.words, *recipes.arguments(request.settings)}
        length = None
        if row.then and not first:  # before those of --reduced and of the user, which replace it
            own = recipes.find(row.then, self.beside)
            files.insert(len(TABLES[request.table].settings), own)
            length = recipes.read(own).get("max_update")
        for kept in sorted({"--keep-interval-updates", "--keep-last-epochs"} - options):
            words += [kept, str(self.average or 1)]
        words += self.ending(length)
        half = options & {
            "--fp16", "--bf16", "--amp", "--memory-efficient-fp16", "--memory-efficient-bf16",
        }  # fmt: skip
        recipe = find_recipe(row.recipe)
        return planning.plan(
            planning.TrainingRequest(
                recipe=recipe,
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

    def ending(self, length: int | None = None) -> list[str]:
        """Options that end each run of this call; a later call may continue the same runs.

        Args:
            length: updates of a training that has its own, which --max-update only shortens.
        """
        updates = self.request.max_update
        return ["--max-update", str(min(updates, length or updates))] if updates else []

    def options(self) -> str:
        """What the user gave for all rows, without what only says when a run ends."""
        return shlex.join(
            [*map(str, self.request.settings), *self.precision(), *self.request.words]
        )

    def precision(self) -> list[str]:
        return ["--precision", self.request.precision] if self.request.precision else []


def name_of(row: Row, seed: int) -> str:
    """The name of a run, which is that of its folder."""
    return f"{row.name}-seed{seed}"
