"""Hidden positions have no weight, and a row of nothing else stays finite."""

import pytest
import torch

from fairseq_plugins.layers.masking import at_least_float32, hide


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_hidden_positions_have_no_weight(dtype):
    scores = torch.tensor([[-1e30, -1e30, 2.0], [5.0, 6.0, 7.0]], dtype=dtype)
    hidden = torch.tensor([[False, False, True], [True, True, True]])
    weights = torch.softmax(hide(scores, hidden), dim=-1)
    assert weights[0].tolist() == [0.5, 0.5, 0.0]
    assert torch.isfinite(weights[1]).all()


@pytest.mark.parametrize(
    "dtype, expected",
    [
        (torch.float16, torch.float32), (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32), (torch.float64, torch.float64),
    ],
)  # fmt: skip
def test_at_least_float32(dtype, expected):
    assert at_least_float32(torch.ones(2, dtype=dtype)).dtype == expected
