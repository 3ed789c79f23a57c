"""SIGTERM: a training saves its state, and resumes to the same parameters."""

import multiprocessing
import os
import signal

import pytest
import torch
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.tasks.translation import TranslationTask

from fairseq_plugins.compat import stopping


@pytest.fixture
def terminate(monkeypatch):
    """terminate(owner, name, call): SIGTERM before that call of a function."""
    yield lambda owner, name, call: _terminate(monkeypatch, owner, name, call)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _terminate(monkeypatch, owner, name, call):
    original, calls = getattr(owner, name), []

    def with_a_signal(*args, **kwargs):
        calls.append(0)
        if len(calls) == call:  # one from the scheduler, and one from the command that started it
            os.kill(os.getpid(), signal.SIGTERM)
            os.kill(os.getpid(), signal.SIGTERM)
        return original(*args, **kwargs)

    monkeypatch.setattr(owner, name, with_a_signal)


def state_of(path):
    return torch.load(str(path), map_location="cpu", weights_only=False)


@pytest.mark.parametrize(
    "owner, name, call, in_epoch",
    [
        (FairseqTask, "train_step", 2, True),
        (TranslationTask, "valid_step", 1, False),  # after the last update of epoch 1
    ],
)
def test_it_resumes_as_if_it_had_not_been_stopped(
    run_train,
    make_toy_data,
    train_args,
    tmp_path,
    terminate,
    owner,
    name,
    call,
    in_epoch,
    monkeypatch,
):
    data = make_toy_data(tmp_path / "data", {"train": 40, "valid": 6}).bin
    words = [data, *train_args, "--max-tokens", 100, "--max-epoch", 3, "--no-epoch-checkpoints"]
    run_train(*words, "--save-dir", tmp_path / "whole")
    whole = state_of(tmp_path / "whole" / "checkpoint_last.pt")
    per_epoch = whole["optimizer_history"][-1]["num_updates"] // 3

    terminate(owner, name, call)
    said = []
    monkeypatch.setattr(stopping.logger, "warning", lambda text, *at: said.append(text % at))
    monkeypatch.setattr(stopping, "TOGETHER", 1e9)  # seconds, however busy the machine is
    with pytest.raises(SystemExit) as ended:
        run_train(*words, "--save-dir", tmp_path / "stopped")
    assert ended.value.code == stopping.STATUS == 143
    broken_off = f"the validation after update {per_epoch} was broken off"
    assert [text[: len(broken_off)] for text in said] == ([] if in_epoch else [broken_off])
    last = state_of(tmp_path / "stopped" / "checkpoint_last.pt")
    done = last["optimizer_history"][-1]["num_updates"]
    assert done == (call if in_epoch else per_epoch)
    place = last["extra_state"]["train_iterator"]
    assert (place["epoch"], place["iterations_in_epoch"]) == ((1, call) if in_epoch else (2, 0))
    assert [path.name for path in (tmp_path / "stopped").glob("*.pt")] == ["checkpoint_last.pt"]

    run_train(*words, "--save-dir", tmp_path / "stopped")
    resumed = state_of(tmp_path / "stopped" / "checkpoint_last.pt")
    for parameter, value in whole["model"].items():
        assert torch.equal(value, resumed["model"][parameter]), parameter


def test_asked_again_it_ends_at_once(tmp_path, run_train, toy_data, train_args, monkeypatch):
    """In a process of its own, which is forked: nothing has to be imported again."""

    def train_step(*args, **kwargs):
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(stopping, "TOGETHER", -1)
    monkeypatch.setattr(FairseqTask, "train_step", train_step)
    words = [toy_data.bin, *train_args, "--save-dir", tmp_path]
    training = multiprocessing.get_context("fork").Process(target=run_train, args=words)
    training.start()
    training.join()
    assert training.exitcode == -signal.SIGTERM
    assert not list(tmp_path.glob("*.pt"))
