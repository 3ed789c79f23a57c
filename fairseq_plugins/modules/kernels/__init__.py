"""Triton kernels for GPUs, behind the modules that they speed up. Not measured on a GPU yet.

They are off unless the environment has ``FAIRSEQ_PLUGINS_TRITON=1``, for every process of a
training. Then they compute what `usable` allows, and plain torch the rest. The two differ by
rounding. Triton is imported where a tensor on a GPU asks first, never before.
"""

import functools
import importlib
import importlib.util
import os
from typing import Tuple

import torch
from torch import Tensor

from fairseq_plugins.errors import ConfigurationError

VARIABLE = "FAIRSEQ_PLUGINS_TRITON"
MAX_SUBSPACE = 128  # d/n of MSCFFN, and
MAX_POOLED = 1024  # d of Fastformer, which the kernels have registers for
DTYPES = (torch.bfloat16, torch.float16)  # float32 has no exact products on tensor cores
TRITON = (3, 4)  # the first that compiles all of them: 3.3 fails for an H100


def usable(x: Tensor) -> bool:
    """Whether kernels take `x`: they are asked for, and it is on a GPU and in half precision.

    Raises:
        ConfigurationError: they are asked for, and this machine has no Triton that compiles them.
            Plain torch in one process and kernels in another must not meet in one training.
    """
    if not (x.is_cuda and x.dtype in DTYPES and asked()):
        return False
    check_triton()
    return True


def asked() -> bool:
    """Whether the environment asks for kernels.

    Raises:
        ConfigurationError: the variable is neither 0 nor 1.
    """
    value = os.environ.get(VARIABLE, "0")
    if value not in ("0", "1"):
        raise ConfigurationError(
            f"{VARIABLE}={value}: set it to 1 (Triton kernels) or 0 (plain torch, the default)"
        )
    return value == "1"


@functools.lru_cache(maxsize=None)
def check_triton() -> None:
    """Refuse a machine that cannot compile the kernels."""
    reason = ""
    if torch.version.hip is not None:
        reason = "they are for NVIDIA GPUs"
    elif importlib.util.find_spec("triton") is None:
        reason = "Triton is not installed"
    elif triton_version() < TRITON:
        reason = "they need Triton {}.{} or newer".format(*TRITON)
    if reason:
        raise ConfigurationError(
            f"{VARIABLE}=1 asks for kernels that do not run here: {reason}; set it to 0"
        )


def triton_version() -> Tuple[int, ...]:
    """Major and minor, of a Triton that is there."""
    version = importlib.import_module("triton").__version__
    return tuple(int(part) for part in version.split(".")[:2])
