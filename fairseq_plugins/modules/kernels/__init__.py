"""Triton kernels for GPUs, behind the modules that they speed up. Not measured on a GPU yet.

As long as they are not, they run only where the environment variable ``FAIRSEQ_PLUGINS_TRITON=1``
asks for them. `usable` says whether a tensor is for them; the modules ask, and otherwise go the way
of plain torch, with equal results. Triton is imported where a kernel first runs, never before.
"""

import importlib.util
import os

import torch
from torch import Tensor

MAX_SUBSPACE = 128  # d/n of MSCFFN, and
MAX_POOLED = 1024  # d of Fastformer, which the kernels have registers for
DTYPES = (torch.bfloat16, torch.float16)  # float32 has no exact products on tensor cores


def usable(x: Tensor) -> bool:
    """Whether kernels take `x`: asked for, on an NVIDIA GPU, in a dtype they have, with Triton."""
    return (
        x.is_cuda
        and torch.version.hip is None
        and x.dtype in DTYPES
        and os.environ.get("FAIRSEQ_PLUGINS_TRITON", "0") == "1"
        and importlib.util.find_spec("triton") is not None
    )
