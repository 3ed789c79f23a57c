"""cuDNN's attention is left out, unless the user asks for it."""

import subprocess
import sys

import pytest
import torch

from tests.conftest import ROOT

CODE = """
import torch
from fairseq_plugins import compat
compat.apply()
print(torch.backends.cuda.cudnn_sdp_enabled(), torch.cuda.is_initialized())
"""


@pytest.mark.skipif(
    not hasattr(torch.backends.cuda, "enable_cudnn_sdp"), reason="this torch has no such attention"
)
@pytest.mark.parametrize(
    "name, value, expected",
    [
        ("UNRELATED", "1", "False"),
        ("TORCH_CUDNN_SDPA_PREFERRED", "0", "False"),
        ("TORCH_CUDNN_SDPA_PREFERRED", "1", "True"),
        ("TORCH_CUDNN_SDPA_AVOID_RECOMPILE", "1", "True"),
    ],
)
def test_it_is_off_unless_asked_for(monkeypatch, name, value, expected):
    monkeypatch.setenv(name, value)
    words = [sys.executable, "-c", CODE]
    output = subprocess.check_output(words, cwd=str(ROOT), universal_newlines=True)
    assert output.split() == [expected, "False"]
