"""Trainings whose log is read every --log-interval updates, with `Tape` for the graph."""

import math
import re

import pytest
import torch

from fairseq_plugins.graphs import captured_step
from fairseq_plugins.graphs.captured_step import CapturedStep
from fairseq_plugins.graphs.flat_optimizer import FlatOptimizer
from tests.tape import Tape

TIMES = r'"(train_|valid_)?(wps|ups|wall|train_wall)": "[^"]*"(, )?'


@pytest.fixture
def train(toy_data, run_train, train_args, tmp_path, monkeypatch):
    """train(deferred, words) -> its log without times, and how often numbers were read."""
    monkeypatch.setattr(captured_step, "graph_class", lambda device: Tape)

    def run(deferred, *words):
        reads, read = [], FlatOptimizer.read
        with monkeypatch.context() as patch:
            patch.setattr(FlatOptimizer, "read", lambda self: reads.append(0) or read(self))
            if not deferred:
                patch.setattr(captured_step, "DeferredLog", lambda flat: None)
            output = run_train(
                *(toy_data.bin, *train_args, "--cpu", "--cuda-graphs", "--bf16"),
                *("--log-format", "json", "--save-dir", tmp_path / str(deferred), *words),
            ).output
        lines = re.findall(r'(?:train_inner|train|valid) \| (\{"epoch.*\})', output)
        return [re.sub(TIMES, "", line) for line in lines], len(reads)

    return run


@pytest.mark.parametrize("updates, more", [(8, ()), (7, ("--disable-validation",))])
def test_a_log_read_every_fourth_update_is_the_same(train, tmp_path, updates, more):
    """With several epochs, whose ends and validations also read it, and two batches an update."""
    words = "--log-interval 4 --update-freq 2 --clip-norm 0.5 --dropout 0.1 --max-update".split()
    words += [updates, *more]
    (expected, each), (found, reads) = (train(deferred, *words) for deferred in (False, True))
    assert found == expected and any('"valid_loss"' in line for line in found) != bool(more)
    assert sum('"loss"' in line for line in found) == updates // 4
    assert each == updates and reads < updates
    one, other = (
        torch.load(tmp_path / name / "checkpoint_last.pt", weights_only=False)
        for name in ("False", "True")
    )
    for name, value in one["model"].items():
        assert torch.equal(value, other["model"][name]), name
    meters = [
        {line[1:3]: line[3] for line in map(tuple, dict(x["extra_state"]["metrics"])["train"])}
        for x in (one, other)
    ]
    for (name, kind), state in meters[0].items():
        if kind == "AverageMeter":
            assert meters[1][name, kind] == state, name


def test_a_gradient_of_nan_ends_the_training_as_ever(train, tmp_path, monkeypatch):
    """That of update 4, which is read after update 5, before the validation."""
    step, counted, poisoned = CapturedStep.__call__, [], []

    def poison(self, batch, count=True):
        counted.append(0)
        if len(counted) == 4:
            poisoned[:] = [batch]
        result = step(self, batch, count)
        if any(batch is each for each in poisoned):
            self.flat.gradient[0] = math.nan
        return result

    monkeypatch.setattr(CapturedStep, "__call__", poison)
    crashed = []
    for deferred in (False, True):
        counted.clear()
        with pytest.raises(FloatingPointError, match="gradients are Nan/Inf") as raised:
            train(
                deferred, *"--max-update 12 --log-interval 6 --validate-interval-updates 5".split()
            )
        output = raised.value.cli_output
        assert "valid_loss" not in output
        assert len(counted) == (7 if deferred else 5), "the batch is tried again with hooks"
        path = tmp_path / str(deferred) / "crash.pt"
        crashed.append((torch.load(path, weights_only=False), output))
    (one, first), (other, second) = crashed
    assert first.count("train_inner") == second.count("train_inner")
    for state in (one, other):
        assert state["optimizer_history"][-1]["num_updates"] == 3
    for name, value in one["model"].items():
        assert torch.equal(value, other["model"][name]), name
    moments = [x["last_optimizer_state"]["state"] for x in (one, other)]
    for before, after in zip(*(state.values() for state in moments)):
        assert before["step"] == after["step"] == 3
        assert torch.equal(before["exp_avg"], after["exp_avg"])


def test_updates_are_repeated_if_a_norm_was_finite_after_all(train, monkeypatch):
    """Such as after a fault of the hardware: no batch is lost."""
    step, counted = CapturedStep.__call__, []

    def fail_once(self, batch, count=True):
        counted.append(0)
        result = step(self, batch, count)
        if len(counted) == 4:
            self.flat.gradient[0] = math.nan
        return result

    expected, _ = train(False, "--max-update", 6, "--log-interval", 6)
    monkeypatch.setattr(CapturedStep, "__call__", fail_once)
    found, _ = train(True, "--max-update", 6, "--log-interval", 6)
    assert found == expected and len(counted) == 9
