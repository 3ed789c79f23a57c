"""The prepared runs for a GPU: each part can be asked for, and runs on a CPU at its toy size."""

import argparse
import json
import re

import pytest
import torch

from fairseq_plugins.commands import evaluate, train
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.lab.benchmarks import contenders, gpu_part, gpu_runs, train_step
from fairseq_plugins.lab.commands import benchmark, reproduce
from fairseq_plugins.lab.reproduction.request import choose_rows, refuse_fixed
from fairseq_plugins.lab.reproduction.tables import TABLES
from fairseq_plugins.training import recorded_step
from tests.conftest import ROOT
from tests.lab.benchmarks.test_train_step import SIZES, measure
from tests.tape import Tape

PARTS = [(run, part) for run in gpu_runs.RUNS for part in run.parts]
NAMES = [f"{run.name}-{part.name}" for run, part in PARTS]
TINY = f"{SIZES} --encoder-blocks 1,1 --dropout 0"


@pytest.fixture
def places(toy_data, tmp_path):
    names = (gpu_runs.DATA, gpu_runs.SUMMARIES, gpu_runs.MULTI30K)
    return {**dict.fromkeys(names, toy_data.bin), gpu_runs.WORK: tmp_path}


@pytest.mark.parametrize("toy", [False, True])
@pytest.mark.parametrize("run, part", PARTS, ids=NAMES)
def test_every_part_can_be_asked_for(places, run, part, toy):
    name, *words = part.command(places, toy)
    assert not set(words) & set(places), "a place that is not filled"
    if name == "benchmark":
        parser = argparse.ArgumentParser()
        benchmark.find(words[0]).add_arguments(parser)
        args = parser.parse_args(words[1:])
        assert (args.cpu and args.dtype == "fp32") == toy
    elif name == "train":
        request = train.read_request(words)
        assert request.cpu == toy and "--cuda-graphs" in request.words
    elif name == "evaluate":
        assert evaluate.read_arguments(words).cpu == toy
    elif name == "reproduce":
        args = reproduce.read_arguments(words)
        assert args.cpu == toy and choose_rows(TABLES[args.table], args.rows)
        refuse_fixed(TABLES[args.table], args.words, "the options after --")
    else:
        assert name == "pytest" and ("--collect-only" in words) == toy


@pytest.mark.parametrize("run", gpu_runs.RUNS, ids=lambda run: run.name)
def test_the_limits_of_a_run_fit_into_its_minutes(run):
    assert sum(part.seconds for part in run.parts) <= 60 * gpu_runs.MINUTES


def test_every_contender_can_be_built():
    """Architectures and options are those of fairseq-train and of this package."""
    models = {
        (re.sub(" --(plain|recorded)", "", words), part.options)
        for _, part in PARTS
        for words in part.contenders
        if "layer" not in part.words.split()
    }
    for words, options in models:
        cfg = contenders.configure(words, options, "none", "fp32", True)
        assert bool(cfg.model.cuda_graphs) == (gpu_runs.GRAPHS in words)


def test_every_goal_has_its_contender(tmp_path):
    parts = {part.name: part for _, part in PARTS}
    for goal in gpu_runs.GOALS[:-1]:
        assert goal.row in parts[goal.part].contenders[1:]
    assert gpu_runs.GOALS[-1].row in [run.name for run, part in PARTS if part.name == "training"]
    assert {row["state"] for row in gpu_runs.judge(tmp_path)} == {"not measured yet"}
    goal = gpu_runs.GOALS[0]
    for ratio, state in ((goal.limit, "reached"), (goal.limit + 0.25, "missed by 0.250")):
        (tmp_path / "1").mkdir(exist_ok=True)
        rows = [{"contender": "first", "time_ratio": 1}, {"contender": goal.row}]
        rows[1]["time_ratio"] = ratio
        (tmp_path / "1" / f"{goal.part}.json").write_text(json.dumps({"rows": rows}))
        assert gpu_runs.judge(tmp_path)[0]["state"] == state


def test_the_page_has_every_goal_every_run_and_what_was_tried():
    text = (ROOT / "examples/results/speed_gpu.md").read_text()
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]

    def table(head):
        begin = next(n for n, cells in enumerate(lines) if head in cells) + 2
        return lines[begin : lines.index([], begin)]

    goals = table("moonshot")
    assert len(goals) == len(gpu_runs.GOALS)
    for goal, (_, _, before, limit, moonshot, *_) in zip(gpu_runs.GOALS, goals):
        assert float(limit) == goal.limit
        assert before == ("-" if goal.before is None else f"{goal.before:g}")
        if "BLEU" not in moonshot:
            assert (float(moonshot) if moonshot else None) == goal.moonshot
    missed = [cells[0].split(",")[0] for cells in goals if cells[-1].startswith("missed")]
    assert missed == [cells[0] for cells in table("missed")]
    named = [name for cells in table("run") for name in cells[0].split(", ")]
    assert set(named) == {run.name for run in gpu_runs.RUNS}


@pytest.mark.parametrize("name", ["launch", "flash", "epoch", "baseline"])
def test_the_toy_of_each_kind(places, tmp_path, name):
    (part,) = (part for _, part in PARTS if part.name == name)
    found = measure(tmp_path, *part.command(places, True)[1:])
    assert len(found["rows"]) >= len(part.contenders) > 0 or name in ("launch", "flash")
    for row in found["rows"]:
        assert "problem" not in row and ("median_seconds" in row or "figure" in row), row
    asked = [row["recordings"] for row in found["rows"] if gpu_runs.GRAPHS in row["contender"]]
    assert asked == [0] * sum(gpu_runs.GRAPHS in words for words in part.contenders)


def test_recorded_steps_are_recorded(toy_data, tmp_path, monkeypatch):
    """With a recorder for the CPU: the benchmark gives them the rows that they need."""
    monkeypatch.setattr(recorded_step, "recorder_for", lambda device: Tape)
    common = [toy_data.bin, "--options", TINY, "--max-tokens", 300]
    common += ["--arch", "transformer_ftc", "--arch", f"transformer_ftc {gpu_runs.GRAPHS}"]
    same = measure(tmp_path, "gpu-part", "equality", *common, "--updates", 4)["rows"]
    assert [row["recordings"] is not None for row in same] == [False, True]
    assert 1 <= same[1]["recordings"] <= 3
    assert same[1]["difference"] < 1e-4
    assert max(same[1]["difference_of_losses"]) < 1e-5
    found = measure(tmp_path, "train-step", *common, "--batches", 1, "--rounds", 1, "--warmup", 0)[
        "rows"
    ]
    assert found[1]["recordings"] == 1


def test_what_fails_takes_no_other_figure_with_it(toy_data, tmp_path, monkeypatch):
    step_of = train_step.step_of

    def failing(trainer, part):
        def fail(batch):
            raise RuntimeError("CUDA error: an illegal memory access\nmore")

        return step_of(trainer, part) if trainer.cfg.model.encoder_layers == 1 else fail

    monkeypatch.setattr(train_step, "step_of", failing)
    words = ["train-step", toy_data.bin, "--options", SIZES, "--max-tokens", 300, "--batches", 1]
    words += ["--rounds", 1, "--warmup", 0, "--arch", "transformer --encoder-layers 1"]
    words += ["--arch", "transformer --encoder-layers 2"]
    good, bad = measure(tmp_path, *words, "--leave-out-failing")["rows"]
    assert good["time_ratio"] == 1 and bad["problem"] == "CUDA error: an illegal memory access"
    with pytest.raises(RuntimeError, match="illegal"):
        measure(tmp_path, *words)
    words = ["gpu-part", "profile", toy_data.bin, "--updates", 1, "--options", SIZES]
    words += ["--arch", "transformer --encoder-layers 1", "--arch", "no_such_architecture"]
    good, bad = measure(tmp_path, *words)["rows"]
    assert good["kernels"] > 100 and "not an architecture" in bad["problem"]
    with pytest.raises(ConfigurationError, match="not an architecture"):
        measure(tmp_path, *words[:-4], "--arch", "no_such_architecture")


def test_wrong_attention_is_told(toy_data, tmp_path, monkeypatch):
    right = gpu_part._flash

    def wrong(q, *others):
        out = right(q, *others)
        return torch.cat([out[:-1], out[-1:] * float("nan")])

    monkeypatch.setattr(gpu_part, "_flash", wrong)
    rows = measure(tmp_path, "gpu-part", "flash", toy_data.bin)["rows"]
    for row in rows:
        behind = "behind" in row["contender"]
        assert row["good"] == behind and row["finite_behind"] != behind
        assert ("NOT finite" if behind else "WRONG") in row["figure"]
