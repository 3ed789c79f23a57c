"""Triton kernels for GPUs, behind the modules that they speed up. Not measured on a GPU yet.

`usable` says whether a tensor is for them; the modules ask, and otherwise go the way of plain
torch, with equal results. Triton is imported where a kernel first runs, never before. The
environment variable ``FAIRSEQ_PLUGINS_TRITON=0`` leaves the kernels aside.
"""

import importlib.util
import os

import torch
from torch import Tensor

MAX_SUBSPACE = 128  # d/n of MSCFFN, and
MAX_POOLED = 1024  # d of Fastformer, which the kernels have registers for
DTYPES = (torch.bfloat16, torch.float16)  # float32 has no exact products on tensor cores


def usable(x: Tensor) -> bool:
    """Whether kernels can take `x`: on an NVIDIA GPU, in a dtype they have, Triton installed."""
    return (
        x.is_cuda
        and torch.version.hip is None
        and x.dtype in DTYPES
        and os.environ.get("FAIRSEQ_PLUGINS_TRITON", "1") != "0"
        and importlib.util.find_spec("triton") is not None
    )
