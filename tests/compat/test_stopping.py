"""SIGTERM: a training saves its state, and resumes to the same parameters."""

import multiprocessing
import os
import re
import signal
import subprocess
import time

import pytest
import torch
from fairseq.data import LanguagePairDataset
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.tasks.translation import TranslationTask
from fairseq.trainer import Trainer

from fairseq_plugins.compat import stopping
from fairseq_plugins.compat.resuming import what_follows
from fairseq_plugins.errors import STATE_SAVED, TERMINATED
from fairseq_plugins.train import supervise
from tests.conftest import load, updates

forks = pytest.mark.skipif(torch.cuda.is_available(), reason="processes are forked")


@pytest.fixture(autouse=True)
def signals():
    """A training that ends by itself leaves its handler, here or in another file."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.fixture
def stop(monkeypatch, run_train):
    """stop(owner, name, call, *words) -> the log of a training with SIGTERM before that call."""

    def run(owner, name, call, *words):
        original, calls = getattr(owner, name), []

        def with_a_signal(*args, **kwargs):
            calls.append(0)
            if len(calls) == call:  # one from the scheduler, and one from the command above it
                os.kill(os.getpid(), signal.SIGTERM)
                os.kill(os.getpid(), signal.SIGTERM)
            return original(*args, **kwargs)

        with monkeypatch.context() as patch, pytest.raises(SystemExit) as ended:
            patch.setattr(owner, name, with_a_signal)
            patch.setattr(stopping, "TOGETHER", 1e9)  # seconds, however busy the machine is
            run_train(*words)
        assert ended.value.code == TERMINATED == 143
        return ended.value.cli_output

    return run


UPDATE, VALIDATION = (FairseqTask, "train_step"), (TranslationTask, "valid_step")


@pytest.mark.parametrize(
    "place, call, done, in_epoch, more",
    [
        (UPDATE, 2, 2, True, []),
        # the last update of epoch 1, after which a validation is due
        (UPDATE, "last of epoch 1", "an epoch", False, []),
        (VALIDATION, 1, "an epoch", False, []),
        (VALIDATION, 3, "all", False, []),  # after the last update
        (VALIDATION, 1, 2, True, ["--validate-interval-updates", 2]),
    ],
)
def test_it_resumes_as_if_it_had_not_been_stopped(
    run_train, make_toy_data, train_args, tmp_path, stop, place, call, done, in_epoch, more
):
    data = make_toy_data(tmp_path / "data", {"train": 40, "valid": 6}).bin
    words = [data, *train_args, "--max-tokens", 100, "--max-epoch", 3, "--no-epoch-checkpoints"]
    words += ["--log-format", "simple", "--patience", 9, *more]
    log = run_train(*words, "--save-dir", tmp_path / "whole").output
    total = updates(load(tmp_path / "whole"))
    done = {"an epoch": total // 3, "all": total}.get(done, done)
    call = total // 3 if call == "last of epoch 1" else call
    stop(*place, call, *words, "--save-dir", tmp_path / "stopped")
    last = load(tmp_path / "stopped")
    assert updates(last) == done
    position = last["extra_state"]["train_iterator"]
    expected = (1, done) if in_epoch else (done * 3 // total + 1, 0)
    assert (position["epoch"], position["iterations_in_epoch"]) == expected

    resumed_log = run_train(*words, "--save-dir", tmp_path / "stopped").output
    for file in ("checkpoint_last.pt", "checkpoint_best.pt"):
        expected, resumed = (load(tmp_path / run, file) for run in ("whole", "stopped"))
        for parameter, value in expected["model"].items():
            assert torch.equal(value, resumed["model"][parameter]), parameter
        for key in ("best", "val_loss", "train_iterator", "early_stopping"):
            assert resumed["extra_state"].get(key) == expected["extra_state"].get(key), key
    assert len(validations(log)) >= 3
    # no validation is left out, or made twice; its epoch is named as without the interruption
    assert validations(log)[-len(validations(resumed_log)) :] == validations(resumed_log)
    begun = [at for at in validations(log) if at[1] < done]
    assert len(validations(resumed_log)) + len(begun) == len(validations(log))


@pytest.mark.parametrize("option", ["--no-last-checkpoints", "--no-save"])
def test_it_says_that_the_state_is_saved_where_it_is(option, toy_data, train_args, tmp_path, stop):
    words = [toy_data.bin, *train_args, "--max-update", 3, option, "--save-dir", tmp_path]
    log, saves = stop(*UPDATE, 2, *words), option != "--no-save"
    assert (STATE_SAVED in log) == saves and ("nothing is saved" in log) != saves
    assert [path.name for path in tmp_path.glob("*.pt")] == ["checkpoint_last.pt"] * saves
    if saves:
        last = load(tmp_path)
        assert updates(last) == 2
        assert last["cfg"]["checkpoint"]["no_last_checkpoints"] is True


def test_it_may_be_stopped_again_in_the_validation_that_it_makes_up_for(
    run_train, toy_data, train_args, tmp_path, stop
):
    words = [toy_data.bin, *train_args, "--max-update", 3, "--log-format", "simple"]
    words += ["--save-dir", tmp_path]
    stop(*VALIDATION, 1, *words)
    before = (tmp_path / "checkpoint_last.pt").read_bytes()
    stop(*VALIDATION, 1, *words)
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == before
    # without validation there is none to make up for
    assert not validations(run_train(*words, "--disable-validation").output)
    assert not (tmp_path / "checkpoint_best.pt").exists()
    assert [at[1] for at in validations(run_train(*words).output)] == [3]
    assert (tmp_path / "checkpoint_best.pt").exists()
    assert not validations(run_train(*words).output)


INTERVALS = (
    "--max-tokens 200 --max-epoch 5 --save-interval 2 --validate-interval 3"
    " --validate-interval-updates 4 --save-interval-updates 6 --validate-after-updates 8"
    " --max-update 33 --log-format simple"
).split()


def test_what_follows_an_update_is_what_fairseq_does(
    tmp_path, toy_data, run_train, train_args, monkeypatch
):
    """Each update, against the validations and checkpoints of a training."""
    told, iterators = {}, []
    step, get = Trainer.train_step, Trainer.get_train_iterator

    def train_step(self, *args, **kwargs):
        result = step(self, *args, **kwargs)
        told[self.get_num_updates()] = what_follows(self, iterators[-1])
        return result

    def get_train_iterator(*args, **kwargs):
        iterators.append(get(*args, **kwargs))
        return iterators[-1]

    monkeypatch.setattr(Trainer, "train_step", train_step)
    monkeypatch.setattr(Trainer, "get_train_iterator", get_train_iterator)
    log = run_train(toy_data.bin, *train_args, *INTERVALS, "--save-dir", tmp_path).output
    assert [n for n, text in told.items() if text] == [at[1] for at in validations(log)]
    saved = {int(n) for n in re.findall(r"Saved checkpoint .* @ (\d+) updates, score \d", log)}
    assert {n for n, text in told.items() if "save" in text} == saved


def validations(log):
    """Epoch, updates and loss of each validation."""
    found = re.findall(r"epoch (\d+) \| valid on .* loss ([\d.]+) .*num_updates (\d+)", log)
    return [(int(epoch), int(updates), loss) for epoch, loss, updates in found]


@forks
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


@forks
def test_a_forked_helper_ends_when_it_is_told_to(
    tmp_path, run_train, toy_data, train_args, monkeypatch
):
    """It has the training's handler, and nothing to save."""
    original, codes = FairseqTask.train_step, []

    def work():
        ready.set()
        for _ in range(2400):
            time.sleep(0.05)  # a signal just before a sleep is handled after it

    context = multiprocessing.get_context("fork")
    ready = context.Event()

    def train_step(*args, **kwargs):
        if not codes:
            helper = context.Process(target=work)
            helper.start()
            ready.wait()  # Python forgets signals that come while it forks
            helper.terminate()
            helper.join(1200)
            codes.append(helper.exitcode)
            helper.kill()
        return original(*args, **kwargs)

    monkeypatch.setattr(FairseqTask, "train_step", train_step)
    run_train(toy_data.bin, *train_args, "--save-dir", tmp_path, "--max-update", 1)
    assert codes == [-signal.SIGTERM]


@forks
@pytest.mark.parametrize(
    "when",
    [
        "a batch is awaited",
        pytest.param("a worker begins", marks=pytest.mark.slow),
        pytest.param("all is done", marks=pytest.mark.slow),
    ],
)
def test_it_saves_when_the_signal_also_reaches_its_data_loaders(
    when, tmp_path, run_train, toy_data, train_args, monkeypatch
):
    """Schedulers signal all processes of a job; a dead loader would break the update off."""

    def signalled(original, *args, **kwargs):
        with told:
            first = multiprocessing.current_process().daemon and not sent.is_set()  # a worker
            if first:  # a second signal might come when all is saved, and end the rest
                sent.set()
                command = f"kill -TERM -{os.getpgrp()}"  # as a scheduler, not from the worker
                subprocess.run(["sh", "-c", command], start_new_session=True, check=True)
        return original(*args, **kwargs)

    def train():
        os.setsid()
        run_train(*words)

    told, sent = multiprocessing.Lock(), multiprocessing.Event()

    place = {
        "a worker begins": (torch.utils.data._utils.worker, "_worker_loop"),
        "a batch is awaited": (LanguagePairDataset, "collater"),
    }
    if when in place:
        original = getattr(*place[when])
        changed = lambda *args, **kwargs: signalled(original, *args, **kwargs)  # noqa: E731
        monkeypatch.setattr(*place[when], changed)
    monkeypatch.setattr(stopping, "TOGETHER", 1e9)  # seconds, however busy the machine is
    words = [toy_data.bin, *train_args, "--save-dir", tmp_path, "--num-workers", 2]
    words += ["--max-tokens", 100, "--max-update", 2]
    training = multiprocessing.get_context("fork").Process(target=train)
    training.start()
    training.join()
    assert training.exitcode == (TERMINATED if when in place else 0)
    assert updates(load(tmp_path)) == 2 - (when in place)
    assert gone(training.pid)


@forks
def test_no_data_loader_outlives_a_killed_training(
    tmp_path, run_train, toy_data, train_args, monkeypatch
):
    def train():
        os.setsid()
        run_train(toy_data.bin, *train_args, "--save-dir", tmp_path, "--num-workers", 2)

    monkeypatch.setattr(
        FairseqTask, "train_step", lambda *args, **kwargs: os.kill(os.getpid(), signal.SIGKILL)
    )
    training = multiprocessing.get_context("fork").Process(target=train)
    training.start()
    training.join()
    assert training.exitcode == -signal.SIGKILL
    assert gone(training.pid)


def gone(group):
    """Whether all processes of a group end within minutes; torch looks for parents every 5 s."""
    end = time.monotonic() + 300
    while time.monotonic() < end:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


def test_whether_a_signal_tells_that_the_parent_is_gone():
    """Only then may it end a training whose parent is gone at once, as with nohup."""

    def tell(pipe):
        found = [stopping._signal_at_death_of_parent()]
        supervise.end_with_the_parent()
        pipe.send([*found, stopping._signal_at_death_of_parent()])

    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    process = context.Process(target=tell, args=(theirs,))
    process.start()
    theirs.close()  # so that reading ends if the process fails
    assert ours.recv() == [0, signal.SIGTERM]
    process.join()
