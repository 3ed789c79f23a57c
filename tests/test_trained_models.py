"""Find the checkpoints of trainings."""

import torch

from fairseq_plugins.trained_models import find_checkpoint


def test_the_best_checkpoint_is_taken(tmp_path):
    torch.save({}, str(tmp_path / "checkpoint_last.pt"))
    assert find_checkpoint(tmp_path).name == "checkpoint_last.pt"
    torch.save({}, str(tmp_path / "checkpoint_best.pt"))
    assert find_checkpoint(tmp_path).name == "checkpoint_best.pt"
    assert find_checkpoint(tmp_path / "checkpoint_last.pt").name == "checkpoint_last.pt"
