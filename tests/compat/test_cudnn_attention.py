"""cuDNN's attention is left out, unless the user asks for it."""

import os

import pytest
import torch

import fairseq_plugins  # noqa: F401
from fairseq_plugins.compat.cudnn_attention import CHOICES, leave_out_cudnn_attention


def test_importing_the_package_leaves_it_out():
    if any(os.environ.get(name) == "1" for name in CHOICES):
        pytest.skip("the user has chosen")
    assert not torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.parametrize(
    "name, value, expected",
    [
        ("UNRELATED", "1", False),
        ("TORCH_CUDNN_SDPA_PREFERRED", "0", False),
        ("TORCH_CUDNN_SDPA_PREFERRED", "1", True),
        ("TORCH_CUDNN_SDPA_AVOID_RECOMPILE", "1", True),
    ],
)
def test_it_is_off_unless_asked_for(monkeypatch, name, value, expected):
    before, initialized = torch.backends.cuda.cudnn_sdp_enabled(), torch.cuda.is_initialized()
    monkeypatch.setenv(name, value)
    torch.backends.cuda.enable_cudnn_sdp(True)
    try:
        leave_out_cudnn_attention()
        assert torch.backends.cuda.cudnn_sdp_enabled() == expected
        assert torch.cuda.is_initialized() == initialized
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
