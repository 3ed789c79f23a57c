"""Triton kernels for GPUs, behind the modules that they speed up. Not measured on a GPU yet.

`usable` says whether a tensor is for them, and `chosen` whether they pay for it (`trial.py`). The
modules ask, and otherwise go the way of plain torch, with equal results. Triton is imported where a
tensor on a GPU asks first, never before.
"""

import functools
import importlib
import importlib.util
from typing import Tuple

import torch
from torch import Tensor

from .trial import Trial, chosen

__all__ = ["MAX_POOLED", "MAX_SUBSPACE", "TRITON", "Trial", "chosen", "triton_version", "usable"]

MAX_SUBSPACE = 128  # d/n of MSCFFN, and
MAX_POOLED = 1024  # d of Fastformer, which the kernels have registers for
DTYPES = (torch.bfloat16, torch.float16)  # float32 has no exact products on tensor cores
TRITON = (3, 4)  # the first that compiles all of them: 3.3 fails for an H100


def usable(x: Tensor) -> bool:
    """Whether kernels take `x`: on an NVIDIA GPU, in a dtype they have, with a Triton they have."""
    return x.is_cuda and x.dtype in DTYPES and _has_triton()


@functools.lru_cache(maxsize=None)
def _has_triton() -> bool:
    if torch.version.hip is not None or importlib.util.find_spec("triton") is None:
        return False
    return triton_version() >= TRITON


def triton_version() -> Tuple[int, ...]:
    """Major and minor, of a Triton that is there."""
    version = importlib.import_module("triton").__version__
    return tuple(int(part) for part in version.split(".")[:2])
