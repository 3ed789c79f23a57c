"""A prepared toy corpus, reproductions on it, and results and logs as `reproduce` has them."""

from pathlib import Path

import pytest

from fairseq_plugins.files import read_lines
from fairseq_plugins.lab.commands import reproduce
from fairseq_plugins.lab.reproduction.tables import table_of
from fairseq_plugins.options.arguments import read
from tests.conftest import SIZES
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


def results_of(name, values, seconds=(), **more):
    """The results of a table, from the scores of each row's runs and perhaps their seconds."""
    machine = {"device": "a GPU", "kind": "cuda", "cores": 8, "threads": 4, "commit": "1234567"}
    machine.update(python="3.11.7", torch="2.13.0", fairseq="0.12.3.1")
    table = table_of(name)
    made = {
        **{**table._asdict(), "table": name, "rows": [], "settings": "--lr 5e-4"},
        **{"metrics": ["BLEU"], "reduced": False, "planned": [], "failures": [], "unfinished": []},
        "data": {"name": "some data", "pairs": {"train": 160239, "valid": 7, "test": 6}},
        **more,
    }
    for row in table.rows:
        runs = []
        for seed, score in enumerate(values.get(row.name, []), 1):
            training = {"parameters": 39469056, "updates": 50000, "parallel": 1, "command": []}
            training.update(machine=machine)
            if seconds:
                training["seconds"] = seconds[row.name][seed - 1]
            scored = {"score": score, "signature": "classes:2", "interval": [score - 1, score + 1]}
            scoring = {"scores": dict.fromkeys(made["metrics"], scored)}
            scoring.update(checkpoint="the best one")
            runs.append({"row": row.name, "seed": seed, "training": training, "scoring": scoring})
        paper = {"deviations": [], **row.paper} if row.paper else row.paper
        made["rows"].append({**row._asdict(), "paper": paper, "runs": runs})
    return made


def cells(table, *start):
    for line in table.splitlines():
        found = [cell.strip() for cell in line.strip("|").split("|")]
        if found[: len(start)] == list(start):
            return found[len(start) :]
    raise AssertionError(f"no row {start}")
