"""A prepared toy corpus, reproductions on it, and results and logs as `reproduce` has them."""

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from fairseq_plugins.cli import evaluate
from fairseq_plugins.cli.train import read_request
from fairseq_plugins.files import read_lines
from fairseq_plugins.lab.commands import reproduce
from fairseq_plugins.lab.reproduction.tables import table_of
from fairseq_plugins.options.arguments import read
from fairseq_plugins.train import planning, sweep
from fairseq_plugins.train.jobs import Jobs
from tests.conftest import SIZES
from tests.here import train
from tests.tiny_runs import prepare

FTC_PAPER = table_of("ftc")
TINY = """
model:
  encoder_embed_dim: 128
  decoder_embed_dim: 16
  encoder_ffn_embed_dim: 128
  decoder_ffn_embed_dim: 32
  decoder_layers: 1
dataset: {max_tokens: 400, num_workers: 0}
lr_scheduler: {warmup_updates: 4}
task: {eval_bleu: false}
checkpoint: {best_checkpoint_metric: loss, maximize_best_checkpoint_metric: false}
"""


@pytest.fixture
def settings(tmp_path):
    path = tmp_path / "tiny.yaml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory, toy_data) -> Path:
    """The toy corpus, prepared as IWSLT'14 is."""
    folder = tmp_path_factory.mktemp("prepared")
    text = {
        split: [read_lines(toy_data.raw / f"{split}.{side}") for side in ("src", "tgt")]
        for split in SIZES
    }
    words = "--vocab-size 60 --joined-dictionary --tokenizer none".split()
    return prepare(folder, text, *words)


def make(data, out, *words, table="ftc"):
    words = [table, data, "--out", out, "--cpu", "--threads", 1, *words]
    args = read(reproduce.Reproduce, list(map(str, words)), "reproduce", None)
    return reproduce.open_table(args, print)


class InTurn(ThreadPoolExecutor):
    """Runs its work at once in this thread, as a training locks its folder for one thread."""

    def submit(self, work, *given):
        future = Future()
        future.set_result(work(*given))
        return future


def commands_here(monkeypatch):
    """Let `train` and `evaluate` run in this process, which has imported fairseq already."""
    monkeypatch.setattr(sweep, "ThreadPoolExecutor", InTurn)

    def run(self, command, log, say, gpus=()):
        name, *words = command[3:]
        if name == "train":
            train(planning.plan(read_request(words)))
        else:
            assert name == "evaluate" and evaluate.main(words) == 0

    monkeypatch.setattr(Jobs, "run", run)


@pytest.fixture
def results():
    machine = {"device": "a GPU", "kind": "cuda", "cores": 8, "threads": 4, "commit": "1234567"}
    machine.update(python="3.11.7", torch="2.13.0", fairseq="0.12.3.1")
    made = {
        **FTC_PAPER._asdict(),
        "table": "ftc",
        "metrics": ["BLEU"],
        "data": {"name": "some data", "pairs": {"train": 160239, "valid": 7, "test": 6}},
        "settings": "--lr 5e-4",
        "failures": [],
        "unfinished": [],
        "planned": [["transformer", 1], ["transformer", 2], ["ftc-2x3", 3]],
        "rows": [],
    }
    for row in FTC_PAPER.rows:
        made["rows"].append({**row._asdict(), "paper": {"deviations": [], **row.paper}, "runs": []})

    def add(name, seed, bleu, seconds, **training):
        row = next(row for row in made["rows"] if row["name"] == name)
        done = {
            "parameters": 39469056, "updates": 50000, "seconds": seconds,
            "parallel": 1, "machine": machine, "command": [], **training,
        }  # fmt: skip
        scores = {"BLEU": {"score": bleu, "signature": "nrefs:1|tok:none"}}
        scoring = {"scores": scores, "checkpoint": "the best one"}
        row["runs"].append({"row": name, "seed": seed, "training": done, "scoring": scoring})

    add("transformer", 1, 34.5, 80.0)
    add("transformer", 2, 34.7, 84.0)
    add("ftc-2x3", 1, 35.25, 61.5)
    add("ftc-2x3", 2, 35.25, 61.5)
    return made, add


def cells(table, *start):
    for line in table.splitlines():
        found = [cell.strip() for cell in line.strip("|").split("|")]
        if found[: len(start)] == list(start):
            return found[len(start) :]
    raise AssertionError(f"no row {start}")
