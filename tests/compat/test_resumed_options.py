"""Options of a training that resumes count, or it is said that they do not."""

import pytest
import torch

from fairseq_plugins.errors import ConfigurationError


def state_of(folder, name="checkpoint_last.pt"):
    return torch.load(str(folder / name), map_location="cpu", weights_only=False)


def test_a_training_without_the_optimizers_state_does_not_begin_anew(
    run_train, toy_data, train_args, tmp_path
):
    words = [toy_data.bin, *train_args, "--save-dir", tmp_path, "--disable-validation"]
    words += ["--no-save-optimizer-state"]
    run_train(*words, "--max-update", 2)
    before = (tmp_path / "checkpoint_last.pt").read_bytes()
    with pytest.raises(ConfigurationError, match="has 2 updates and no state of the optimizer"):
        run_train(*words, "--max-update", 4)
    assert (tmp_path / "checkpoint_last.pt").read_bytes() == before
    name = tmp_path / "checkpoint_last.pt"
    other = [*words[:-3], tmp_path / "other", *words[-2:], "--finetune-from-model", name]
    assert run_train(*other, "--max-update", 1)
    assert state_of(tmp_path / "other")["optimizer_history"][-1]["num_updates"] == 1


def test_the_optimizers_options_of_the_checkpoint_are_told(
    run_train, toy_data, train_args, tmp_path
):
    words = [toy_data.bin, *train_args, "--save-dir", tmp_path, "--disable-validation"]
    run_train(*words, "--max-update", 1)
    more = ["--weight-decay", 0.25, "--max-update"]
    told = "the checkpoint's weight_decay 0.0 is used, and 0.25 is ignored"
    assert told in run_train(*words, *more, 2).output
    assert "is ignored" not in run_train(*words, "--max-update", 3).output
    change = ["--optimizer-overrides", "{'weight_decay': 0.25}"]
    assert "is ignored" not in run_train(*words, *more, 4, *change).output
    groups = state_of(tmp_path)["last_optimizer_state"]["param_groups"]
    assert {group["weight_decay"] for group in groups} == {0.25}
