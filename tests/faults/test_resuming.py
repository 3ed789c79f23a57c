"""Killed in epochs 1, 2 and 3, a training ends with the parameters of one that was never stopped.

Equal to the bit, with the optimizer's state, and each sentence is seen exactly once an epoch.
"""

import re
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import (
    ReduceLROnPlateauLRSchedule,
    ReduceLROnPlateauLRScheduleConfig,
)
from fairseq.optim.sgd import SGD

from fairseq_plugins.compat import resuming
from fairseq_plugins.compat.patch import around
from tests.conftest import load, updates
from tests.faults.training import Killed, difference, not_once, seen, train

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="processes are forked")

EPOCHS = 3
BASE = [
    "--max-tokens", 100, "--max-epoch", EPOCHS, "--save-interval-updates", 3,
    "--keep-interval-updates", 1, "--no-epoch-checkpoints", "--disable-validation",
]  # fmt: skip
OURS = ["--arch", "transformer_ftc", "--encoder-blocks", "1,1", "--attention-dropout", 0.1]
VALIDATED = ["--max-tokens", 100, "--max-epoch", EPOCHS, "--save-interval-updates", 3, "--seed", 3]

TRAININGS = {
    "transformer": (1, BASE),
    "transformer, update-freq": (1, [*BASE, "--update-freq", "3,2"]),
    "transformer, two processes, update-freq": (2, [*BASE, "--update-freq", 2, "--max-tokens", 40]),
    "transformer_ftc": (1, [*BASE, *OURS, "--lr-scheduler", "inverse_sqrt"]),
    "transformer_ftc, summarization, two processes": (
        2, [*BASE, *OURS, "--task", "summarization", "--curriculum", 1, "--max-tokens", 60],
    ),
    "bf16": (1, [*BASE, "--bf16", "--update-freq", 2]),
    "reduce_lr_on_plateau": (
        1, [*VALIDATED, "--lr-scheduler", "reduce_lr_on_plateau", "--lr-threshold", 0.9],
    ),
}  # fmt: skip


QUICKEST = ("transformer", "transformer_ftc, summarization, two processes")  # and of all kinds


@pytest.mark.parametrize(
    "name",
    [
        name if name in QUICKEST else pytest.param(name, marks=pytest.mark.slow)
        for name in TRAININGS
    ],
)
def test_killed_in_each_epoch(name, corpus, train_args, tmp_path):
    processes, options = TRAININGS[name]
    words = [corpus.bin, *train_args, *options]
    records = [tmp_path / "record", tmp_path / "record_of_killed"]
    for record in records:
        record.mkdir()

    whole = train(words, tmp_path / "whole", processes, record=records[0])
    assert whole.status == [0] * processes, whole.output
    expected = load(tmp_path / "whole")
    an_epoch = updates(expected) // EPOCHS

    # in each epoch, and before the first update of the last
    kills = [an_epoch - 1, 2 * an_epoch - 1, 2 * an_epoch, 3 * an_epoch - 1]
    resumed = []
    for number, update in enumerate(kills):
        kill = Killed(update, rank=number % processes)
        run = train(words, tmp_path / "killed", processes, kill, records[1])
        assert run.status[kill.rank] == 9, run.output
        resumed += re.findall(r"Loaded checkpoint .*last.pt \(epoch (\d)", run.output)
    run = train(words, tmp_path / "killed", processes, record=records[1])
    assert run.status == [0] * processes, run.output
    resumed += re.findall(r"Loaded checkpoint .*last.pt \(epoch (\d)", run.output)
    assert {"2", "3"} <= set(resumed)
    assert difference(load(tmp_path / "killed"), expected) == ""

    for record in records:
        sentences = seen(record)
        assert sorted(sentences) == [1, 2, 3]
        for epoch in sentences:
            assert not_once(sentences[epoch], corpus.sizes["train"]) == {}, (record.name, epoch)
    assert seen(records[0]) == seen(records[1])


@pytest.mark.parametrize(
    "limit, reason",
    [(["--max-update", 5], "5 updates are done"), (["--stop-time-hours", 1e-9], "it took ")],
)
def test_a_finished_training_stays_as_it_is(limit, reason, corpus, train_args, tmp_path):
    words = [corpus.bin, *train_args, *BASE, *limit]
    assert train(words, tmp_path).status == [0]
    before = (tmp_path / "checkpoint_last.pt").read_bytes()
    again = train(words, tmp_path)
    assert again.status == [0]
    assert f"nothing left to train: {reason}" in again.output
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == before


@pytest.mark.parametrize("kept, rebuilt", [(True, False), (False, False), (True, True)])
def test_data_are_loaded_once_and_for_the_epoch_at_hand(kept, rebuilt):
    """Some tasks of fairseq load a shard for each epoch, and none twice; or batches anew."""
    calls = []

    class Data:
        def set_epoch(self, epoch):
            calls.append(epoch)

    data = Data()

    class Trainer:
        cfg = SimpleNamespace(dataset=SimpleNamespace(train_subset="train"))
        task = SimpleNamespace(
            cfg=SimpleNamespace(rebuild_batches=rebuilt),
            dataset=lambda name: data,
            dataset_to_epoch_iter={},
        )

        def get_train_iterator(self, epoch, combine=True, load_dataset=True):
            calls.append((epoch, load_dataset))
            iterator = SimpleNamespace(epoch=epoch)
            if kept:
                iterator = self.task.dataset_to_epoch_iter.setdefault(data, iterator)
            return iterator

    around(Trainer, "get_train_iterator")(resuming.keep_the_batches_of_the_first_epoch)
    assert Trainer().get_train_iterator(3).epoch == 3
    assert calls == ([(3, True), (1, False), 3] if kept and not rebuilt else [(3, True)])


@pytest.mark.parametrize("reset", ["", "reset_meters", "reset_lr_scheduler"])
def test_what_is_reset_is_not_restored(monkeypatch, reset):
    """After an epoch, whose checkpoint was written before the scheduler saw its loss."""
    state = {"train_iterator": {"epoch": 3, "iterations_in_epoch": 0}, "val_loss": 1.5}
    fairseqs = SimpleNamespace(load_checkpoint=lambda *given: ({**state, **stored}, None))
    stored, counters, seen = {resuming.EARLY_STOPPING: {"num_runs": 2}}, {}, []
    around(fairseqs, "load_checkpoint")(resuming.resume_validations)
    monkeypatch.setattr(resuming, "_in_save_dir", lambda *given: True)
    monkeypatch.setattr(resuming, "patience", lambda: counters)
    cfg = SimpleNamespace(reset_meters=False, reset_lr_scheduler=False, patience=0)
    vars(cfg).update({reset: True} if reset else {})
    trainer = SimpleNamespace(checkpoint_suffix="", get_num_updates=lambda: 9)
    trainer.lr_step = lambda *given: seen.append(given)
    fairseqs.load_checkpoint(cfg, trainer)
    assert counters == ({} if reset == "reset_meters" else {"num_runs": 2})
    assert seen == ([] if reset == "reset_lr_scheduler" else [(2, 1.5)])


def test_a_number_that_the_model_no_longer_holds_is_not_restored():
    """As after averaging: what the model holds counts, not its former copy in float32."""

    class Half:
        def __init__(self, values):
            self.fp16_params = [torch.nn.Parameter(torch.tensor(values).bfloat16())]
            self.fp32_params = [torch.nn.Parameter(torch.tensor(values))]

        def state_dict(self):
            return {}

        def load_state_dict(self, state):
            """fairseq's copies are the model's numbers."""
            self.fp32_params[0].data.copy_(self.fp16_params[0])

    around(Half, "state_dict")(resuming.store_parameters_in_float32)
    around(Half, "load_state_dict")(resuming.resume_parameters_in_float32)
    exact = 1.0009765625  # rounded, 1
    resumed = Half([exact, 2.0])
    resumed.load_state_dict(Half([exact, exact]).state_dict())
    assert resumed.fp32_params[0].tolist() == [exact, 2.0]


def test_a_plateau_counts_across_runs():
    """The learning rate falls after more validations without improvement than --lr-patience."""
    options = ReduceLROnPlateauLRScheduleConfig(lr=[1.0], lr_patience=2, lr_shrink=0.5)

    def scheduler():
        given = Namespace(lr=[1.0], momentum=0.0, weight_decay=0.0)
        optimizer = SGD(given, [torch.nn.Parameter(torch.zeros(1))])
        return ReduceLROnPlateauLRSchedule(options, optimizer)

    first, resumed = scheduler(), scheduler()
    rates = [first.step(epoch, 3.0) for epoch in (1, 2, 3)]
    resumed.load_state_dict(first.state_dict())
    assert rates == [1.0] * 3
    assert resumed.step(4, 3.0) == first.step(4, 3.0) == 0.5


@pytest.mark.slow
def test_patience_counts_across_kills(corpus, train_args, tmp_path):
    """Nothing is learnt, so that the training ends after four validations, killed or not."""
    words = [
        corpus.bin, *train_args, "--max-tokens", 200, "--max-epoch", 9, "--patience", 3,
        "--lr", 1e-12, "--no-epoch-checkpoints",
    ]  # fmt: skip
    assert train(words, tmp_path / "whole").status == [0]
    before = (tmp_path / "whole" / "checkpoint_last.pt").read_bytes()
    again = train(words, tmp_path / "whole")
    assert again.status == [0] and "nothing left to train: 3 validations in a row" in again.output
    assert (tmp_path / "whole" / "checkpoint_last.pt").read_bytes() == before
    end = updates(load(tmp_path / "whole"))
    an_epoch = end // 4
    for epochs in (1, 2, 3):
        assert train(words, tmp_path / "killed", kill=Killed(epochs * an_epoch)).status == [9]
    assert train(words, tmp_path / "killed").status == [0]
    assert updates(load(tmp_path / "killed")) == end

    # in another folder the count begins anew
    on = [*words, "--restore-file", tmp_path / "whole" / "checkpoint_last.pt"]
    assert train(on, tmp_path / "on").status == [0]
    assert updates(load(tmp_path / "on")) == 2 * end


@pytest.mark.slow
def test_a_new_training_does_not_count_the_time_of_the_one_it_begins_with(
    corpus, train_args, tmp_path
):
    words = [corpus.bin, *train_args, *BASE, "--max-update"]
    assert train([*words, 3], tmp_path / "first").status == [0]
    path = tmp_path / "first" / "checkpoint_last.pt"
    state = torch.load(path, weights_only=False)
    state["extra_state"]["previous_training_time"] = 7200.0
    torch.save(state, path)
    for begin, expected in (
        (["--finetune-from-model", path], 6),
        (["--restore-file", path, "--reset-optimizer", "--reset-dataloader"], 6),
        (["--restore-file", path], 4),  # goes on: its hour is over after the next update
    ):
        folder = tmp_path / f"{begin[0]}-{len(begin)}"
        assert train([*words, 6, *begin, "--stop-time-hours", 1], folder).status == [0]
        assert updates(load(folder)) == expected, begin
