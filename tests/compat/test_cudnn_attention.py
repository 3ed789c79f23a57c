"""cuDNN's attention is left out, unless the user asks for it."""

import pytest
import torch

from fairseq_plugins.compat.cudnn_attention import leave_out_cudnn_attention


@pytest.mark.skipif(
    not hasattr(torch.backends.cuda, "enable_cudnn_sdp"), reason="this torch has no such attention"
)
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
    before = torch.backends.cuda.cudnn_sdp_enabled()
    monkeypatch.setenv(name, value)
    torch.backends.cuda.enable_cudnn_sdp(True)
    try:
        leave_out_cudnn_attention()
        assert torch.backends.cuda.cudnn_sdp_enabled() == expected
        assert not torch.cuda.is_initialized()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)
