"""A best score counts only for validations like its own."""

import pytest
import torch

from fairseq_plugins.compat.best_score import SCORED_BY

BLEU = [
    "--eval-bleu", "--eval-bleu-args", '{"beam": 1, "max_len_b": 5}', "--eval-bleu-remove-bpe",
    "--best-checkpoint-metric", "bleu", "--maximize-best-checkpoint-metric",
]  # fmt: skip


@pytest.mark.parametrize(
    "metric, option, value",
    [
        ([], "--valid-subset", "test"),
        (BLEU, "--eval-bleu-args", '{"beam": 2, "max_len_b": 5}'),
    ],
)
def test_it_is_forgotten_when_validation_changes(
    metric, option, value, toy_data, train_args, run_train, tmp_path
):
    def train(epochs, *more):
        words = [*train_args, *metric, "--save-dir", tmp_path, "--patience", 2, *more]
        words += ["--lr-scheduler", "reduce_lr_on_plateau"]
        return run_train(toy_data.bin, *words, "--max-epoch", epochs).output

    def last():
        return torch.load(tmp_path / "checkpoint_last.pt", weights_only=False)

    def reach(**more):
        """Give the last checkpoint a score that no validation improves."""
        state = last()
        state["extra_state"] |= {"best": best, "early_stopping": {"best": best, "num_runs": 1}}
        state["extra_state"] |= more
        state["optimizer_history"][-1]["lr_scheduler_state"]["best"] = best
        torch.save(state, tmp_path / "checkpoint_last.pt")

    best = 99.0 if metric else 0.001
    train(1)
    state = last()
    del state["extra_state"][SCORED_BY]  # as earlier versions, if their BLEU is the same
    torch.save(state, tmp_path / "checkpoint_last.pt")
    reach()
    assert "is forgotten" not in train(2, "--disable-validation", option, value)
    reach()
    assert "early stop" in train(3)
    assert last()["extra_state"]["best"] == best
    train(4, "--disable-validation", option, value, "--patience", -1)
    assert last()["extra_state"]["best"] == best
    (tmp_path / "checkpoint_best.pt").unlink()
    reach(validation_due="validate and save")
    said = train(5, option, value)
    assert f"{option} was " in said and f" and is now {value}: the best value so far is" in said
    assert said.index("is forgotten") < said.index("making the validation that is due")
    state = last()
    assert (tmp_path / "checkpoint_best.pt").exists() and state["extra_state"]["best"] != best
    assert state["optimizer_history"][-1]["lr_scheduler_state"]["best"] != best


def test_it_is_forgotten_when_the_validation_text_changes(
    make_toy_data, train_args, run_train, tmp_path
):
    last = tmp_path / "run" / "checkpoint_last.pt"
    for valid in (6, 7):
        data = make_toy_data(tmp_path / f"data{valid}", {"train": 40, "valid": valid}).bin
        words = [*train_args, "--save-dir", tmp_path / "run", "--max-epoch", valid - 5]
        said = run_train(data, *words, "--lr-scheduler", "reduce_lr_on_plateau").output
        state = torch.load(last, weights_only=False)
        state["extra_state"]["val_loss"] = 0.001
        torch.save(state, last)
    assert "size of valid was 6 sentences" in said and "is forgotten" in said
    assert state["optimizer_history"][-1]["lr_scheduler_state"]["best"] > 1
