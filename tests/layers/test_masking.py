"""Hidden positions have no weight, and a row of nothing else stays finite."""

import pytest
import torch

from fairseq_plugins.layers.masking import hide


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_hidden_positions_have_no_weight(dtype):
    scores = torch.tensor([[-1e30, -1e30, 2.0], [5.0, 6.0, 7.0]], dtype=dtype)
    hidden = torch.tensor([[False, False, True], [True, True, True]])
    weights = torch.softmax(hide(scores, hidden), dim=-1)
    assert weights[0].tolist() == [0.5, 0.5, 0.0]
    assert torch.isfinite(weights[1]).all()
