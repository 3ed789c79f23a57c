"""Triton kernels for MSCFFN and Fastformer on GPUs. Not measured on a GPU yet.

They are off by default. Set ``FAIRSEQ_PLUGINS_TRITON=1`` in every process of a training to use
them for the tensors that `usable` accepts. Models refuse processes that differ when they are built.
Results differ from plain torch by rounding. Triton is imported at the first such tensor, never
before.
"""

import functools
import importlib
import importlib.util
import os
from typing import Any, List, Tuple

import torch
import torch.distributed as dist
from torch import Tensor

from fairseq_plugins.errors import ConfigurationError

VARIABLE = "FAIRSEQ_PLUGINS_TRITON"
# The largest sizes that fit into registers:
MAX_SUBSPACE = 128  # d/n of MSCFFN
MAX_SUMMARY = 1024  # d of Fastformer
DTYPES = (torch.bfloat16, torch.float16)  # tensor cores have no exact float32 products
TRITON = (3, 4)  # the first version that compiles all kernels: 3.3 fails for an H100


def usable(x: Tensor) -> bool:
    """Whether to use kernels for `x`: they are switched on, and x is in half precision on a GPU.

    Raises:
        ConfigurationError: they are switched on, but this machine cannot compile them. There is no
            fallback, because the processes of one training must compute alike.
    """
    if not (x.is_cuda and x.dtype in DTYPES and asked()):
        return False
    check_triton()
    return True


def asked() -> bool:
    """Whether the environment switches kernels on.

    Raises:
        ConfigurationError: the variable is neither 0 nor 1.
    """
    value = os.environ.get(VARIABLE, "0")
    if value not in ("0", "1"):
        raise ConfigurationError(
            f"{VARIABLE}={value}: set it to 1 (Triton kernels) or 0 (plain torch, the default)"
        )
    return value == "1"


def check_processes_agree() -> None:
    """Raise a ConfigurationError if only some processes of a training switch kernels on.

    All processes must call this together.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return
    found: List[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, asked())
    if len(set(found)) > 1:
        missing = ", ".join(str(rank) for rank, on in enumerate(found) if not on)
        raise ConfigurationError(
            f"{VARIABLE}=1 is not set in every process (not in rank {missing}): set it everywhere "
            "or nowhere"
        )


@functools.lru_cache(maxsize=None)
def check_triton() -> None:
    """Raise a ConfigurationError if this machine cannot compile the kernels."""
    reason = ""
    if torch.version.hip is not None:
        reason = "they are for NVIDIA GPUs"
    elif importlib.util.find_spec("triton") is None:
        reason = "Triton is not installed"
    elif triton_version() < TRITON:
        reason = "they need Triton {}.{} or newer".format(*TRITON)
    if reason:
        raise ConfigurationError(
            f"{VARIABLE}=1: the Triton kernels do not run here: {reason}; set it to 0"
        )


def triton_version() -> Tuple[int, ...]:
    """Major and minor version of the installed Triton."""
    version = importlib.import_module("triton").__version__
    return tuple(int(part) for part in version.split(".")[:2])
