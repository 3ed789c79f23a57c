"""What a training reports: short lines, and the estimate of a dry run."""

import contextlib
import functools
import logging
import time
from types import SimpleNamespace

import pytest

from fairseq_plugins.compat.progress import reported_to
from fairseq_plugins.train import history
from fairseq_plugins.train.progress import Measured, Progress, Rehearsal

LOSS = {"loss": 3.0, "nll_loss": 2.5}


def built(progress, updates=0, hours=0.0, captured=False, epochs=0):
    """A progress that knows a trainer with these options."""
    end = SimpleNamespace(max_update=updates, max_epoch=epochs, stop_time_hours=hours)
    cfg = SimpleNamespace(optimization=end, model=SimpleNamespace(cuda_graphs=captured))
    cfg.checkpoint = SimpleNamespace(save_dir="no such folder")
    model = SimpleNamespace(parameters=list)
    progress.built(SimpleNamespace(cfg=cfg, model=model, cumulative_training_time=lambda: 1.0))
    return progress


@pytest.fixture
def said():
    return []


def test_reports_of_a_real_training(run_train, toy_data, train_args, tmp_path, said):
    words = [toy_data.bin, *train_args, "--log-format", "simple"]
    words += ["--tensorboard-logdir", tmp_path / "board", "--log-interval", 2]
    with reported_to(Progress(said.append)):
        log = run_train(*words, "--save-dir", tmp_path, "--max-update", 4).output
    assert said[0].startswith("parameters: ") and f"params: {said[0][12:]}" in log
    assert [line.split()[1] for line in said if "train nll" in line] == ["2/4", "4/4"]
    assert any(line.startswith("update 4/4  valid nll ") for line in said)
    assert not any("resumed" in line for line in said)
    (loss,) = [line.split()[4] for line in said if "2/4  train" in line]
    assert f"nll_loss={loss}," in log
    assert list((tmp_path / "board").iterdir()), "the bar for TensorBoard is around ours"

    said.clear()
    with reported_to(Progress(said.append)):
        run_train(*words, "--save-dir", tmp_path, "--max-update", 6)
    assert said[1] == "resumed from update 4" and said[2].startswith("update 6/6  train nll ")
    kept = history.read(tmp_path, warm_up=0)
    assert kept.updates == 6 and [each["update"] for each in kept.valid] == [4, 6]
    assert kept.seconds is not None and kept.valid[0]["nll_loss"] > 1
    assert [each["update"] for each in kept.train] == [2, 4, 6]
    hours = [each["hours"] for each in kept.train]  # those before the checkpoint count
    assert 0 < hours[0] < hours[1] < hours[2] < 1 and kept.train[0]["nll_loss"] > 1

    said.clear()
    model = tmp_path / "checkpoint_last.pt"
    words += ["--max-update", 1, "--finetune-from-model", model]
    with reported_to(Progress(said.append)):
        run_train(*words, "--save-dir", tmp_path / "second")
    assert said[1] == f"starts from {model}"


def test_warnings_of_the_package_are_reported(said):
    progress, ours = Progress(said.append), logging.getLogger("fairseq_plugins")
    ours.addHandler(progress)
    try:
        for report in (ours.getChild("compat").warning, ours.getChild("compat").info):
            report(report.__name__)
    finally:
        ours.removeHandler(progress)
    assert said == ["warning"]


def test_captures_do_not_count_in_an_estimate(monkeypatch, said):
    estimates = []
    for captured, hours in ((True, 0), (False, 0), (False, 0.001)):
        progress = built(Rehearsal(said.append), 1000, hours, captured)
        progress.most = 23
        for update in range(1, 24):
            now = 0.01 * update + update // 4
            monkeypatch.setattr(time, "monotonic", functools.partial(float, now))
            with pytest.raises(Measured) if update == 23 else contextlib.nullcontext():
                progress.trained(update, 50, LOSS)
        estimates.append(progress.estimate())
    assert "0.01 s per update, measured over 20" in estimates[0]
    assert "0.26 s per update" in estimates[1] and "for 1,000 updates" in estimates[1]
    assert estimates[2].startswith("time: about 3 s for 13 updates, ")
