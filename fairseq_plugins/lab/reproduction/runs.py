"""The sweep of a table of a paper: also timed in turn, and with the laboratory's models."""

import shlex
import sys
from collections.abc import Callable
from typing import Any

import torch

from fairseq_plugins.data.prepared_folder import Prepared
from fairseq_plugins.files import count_lines, read_json, write_json
from fairseq_plugins.lab.benchmarks import machine
from fairseq_plugins.lab.recommendation import test_set
from fairseq_plugins.lab.reproduction import report
from fairseq_plugins.lab.reproduction.tables import BASELINE
from fairseq_plugins.options import recipes
from fairseq_plugins.train.jobs import failure_in
from fairseq_plugins.train.sweep import Sweep, SweepRequest

SPLITS = ("train", "valid", "test")
BATCHES, ROUNDS = 8, 5  # of each row, that are timed
# rows of the papers are these options
FIXED = (
    "--encoder-blocks --time-window --feature-window --time-pooling --feature-pooling "
    "--encoder-token-mixer --encoder-ffn --decoder-ffn"
).split()


class Reproduction(Sweep):
    """A sweep whose results have the name of the table, and times that were measured in turn.

    Args:
        request: the sweep, of the table or its reduced form.
        name: the name of the table.
        reduced: whether it is reduced.
        say: called with each line of progress.
    """

    def __init__(self, request: SweepRequest, name: str, reduced: bool, say: Callable[[str], None]):
        self.name, self.reduced = name, reduced
        table = request.table._replace(fixed=[*request.table.fixed, *FIXED])
        super().__init__(request._replace(table=table), say)

    def machine(self) -> dict[str, Any]:
        device = torch.device("cpu" if self.cpu else "cuda")
        return machine.describe(device, self.request.threads or 1)

    def describe_data(self) -> dict[str, Any]:
        """Also the number of classes, or of the impressions of news."""
        data, folder = super().describe_data(), self.request.data
        labels = folder / "label" / "dict.txt"
        if labels.is_file():
            names = labels.read_text(encoding="utf-8").splitlines()
            data["classes"] = sum(not name.startswith("madeupword") for name in names)
        if Prepared(folder).task == test_set.TASK:
            files = {split: folder / "impressions" / f"{split}.id" for split in SPLITS}
            data["pairs"] = {split: count_lines(path) for split, path in files.items()}
        return data

    def results(self) -> dict[str, Any]:
        timed = read_json(self.out / "interleaved.json")
        return {
            **super().results(), "table": self.name, "reduced": self.reduced, "interleaved": timed
        }  # fmt: skip

    def write_results(self) -> None:
        super().write_results()
        report.write_table(read_json(self.out / "results.json"), self.out)

    def measure_interleaved(self) -> None:
        """Time the training steps of all trained rows in turn, with `benchmark train-step`."""
        trained = {run["row"]: run for run in self.runs()}
        rows = [row for row in self.table.rows if row.name in trained]
        if BASELINE not in trained or len(rows) < 2:
            self.say(f"no time ratio: it needs the row {BASELINE} and another one")
            return
        epochs = [trained[row.name]["training"]["updates_per_epoch"] for row in rows]
        count = min([BATCHES, *filter(None, epochs)])
        words = self.timing_command(trained, count)
        path, log = self.out / "interleaved.json", self.out / "benchmark.log"
        wanted = {"command": words, "machine": self.machine()}
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
        measured = dict(zip([row.name for row in rows], read_json(figures)["rows"]))
        write_json(path, {**wanted, "batches": count, "rounds": ROUNDS, "rows": measured})

    def timing_command(self, trained: dict[str, Any], batches: int) -> list[str]:
        """The command, without where the figures go.

        What all rows have is given once: the options of the baseline's recipe, of the settings and
        of the user. Each row adds its architecture and what its recipe and its words have of their
        own.
        """
        rows = [row for row in self.table.rows if row.name in trained]
        plans = [self.plan(row, trained[row.name]["seed"]) for row in rows]
        baseline = recipes.read(recipes.find(BASELINE))
        given_to_all = {**recipes.merge(self.files), **recipes.by_name(self.request.words)}
        common = {**baseline, **given_to_all}
        shared = {n: v for n, v in common.items() if n != "arch" and not n.startswith("eval_")}
        words = [sys.executable, "-m", "fairseq_plugins", "benchmark", "train-step"]
        words += [str(self.request.data.resolve())]
        words += ["--options=" + shlex.join(recipes.words(shared))]
        for plan, row in zip(plans, rows):
            recipe = recipes.read(recipes.find(row.recipe, self.beside)).items()
            own = {n: v for n, v in recipe if n != "arch" and baseline.get(n) != v}
            own = {n: v for n, v in own.items() if n not in given_to_all}
            own_words = [plan.given.arch, *recipes.words(own), *shlex.split(row.last_options)]
            words += ["--arch=" + shlex.join(own_words)]
        half = [name for name in ("bf16", "fp16") if "--" + name in plans[0].command]
        words += ["--dtype", *half] if half else []
        words += ["--batches", str(batches), "--rounds", str(ROUNDS)]
        words += ["--threads", str(self.request.threads)]
        max_tokens = plans[0].given.max_tokens
        words += ["--max-tokens", str(max_tokens)] if max_tokens else []
        return [*words, "--cpu"] if self.cpu else words
