"""A gradient of NaN ends in one line."""

import math

import pytest
from fairseq.optim import FairseqOptimizer


def test_a_gradient_of_nan_is_named(run_train, toy_data, train_args, tmp_path, monkeypatch):
    original = FairseqOptimizer.clip_grad_norm
    monkeypatch.setattr(
        FairseqOptimizer, "clip_grad_norm", lambda *args, **kw: original(*args, **kw) * math.nan
    )
    words = [toy_data.bin, *train_args, "--save-dir", tmp_path, "--max-update", 1]
    with pytest.raises(FloatingPointError, match="gradients are Nan/Inf"):
        run_train(*words)
