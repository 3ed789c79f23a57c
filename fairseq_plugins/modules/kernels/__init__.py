"""Triton kernels for MSCFFN and Fastformer on GPUs.

They are off by default. Set ``FAIRSEQ_PLUGINS_TRITON=1`` in every process of a training to use
them for the tensors that `usable` accepts. Models refuse processes that differ when they are built.
Results differ from plain torch by rounding. Triton is imported at the first such tensor, never
before.
"""

import functools
import importlib
import importlib.util
import os
import shutil
import sysconfig
from pathlib import Path
from typing import Any, List, Tuple

import torch
import torch.distributed as dist
from torch import Tensor

from fairseq_plugins.errors import ConfigurationError

VARIABLE = "FAIRSEQ_PLUGINS_TRITON"
SHARED_MEMORY = 99 * 1024  # of a program on small GPUs, in bytes
# The largest sizes whose programs fit into it:
MAX_SUBSPACE = 128  # d/n of MSCFFN
MAX_SUMMARIES = 16 * 1024  # h x d of Fastformer, rounded up as in `block`
DTYPES = (torch.bfloat16, torch.float16)  # tensor cores have no exact float32 products
TRITON = (3, 4)  # the first version that compiles all kernels: 3.3 fails for an H100
CAPABILITY = (8, 0)  # Ampere: older GPUs have too little shared memory


def usable(x: Tensor) -> bool:
    """Whether to use kernels for `x`: they are switched on, and x is in half precision on a GPU.

    Raises:
        ConfigurationError: they are switched on, but this machine cannot run them. There is no
            fallback, because the processes of one training must compute alike.
    """
    if not (x.is_cuda and x.dtype in DTYPES and asked()):
        return False
    check_triton()
    check_gpu(x.device)
    return True


def shared_memory_of(x: Tensor) -> int:
    """Bytes of shared memory that a program may use on the GPU of `x`; without one, the least."""
    properties = torch.cuda.get_device_properties(x.device) if x.is_cuda else None
    return int(getattr(properties, "shared_memory_per_block_optin", SHARED_MEMORY))


def block(size: int) -> int:
    """The side of the block that holds `size` numbers: a power of two, at least tl.dot's 16."""
    return max(16, 1 << (size - 1).bit_length())


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
    """Raise a ConfigurationError in all processes if some cannot use kernels as the others do.

    All processes must call this together. If none can, this is told at the first tensor for them.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return
    found: List[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, _choice())
    problems = {rank: problem for rank, (_, problem) in enumerate(found) if problem}
    if problems and len(problems) < len(found):
        # told by all: a process that failed alone would leave the others waiting
        rank, problem = min(problems.items())
        raise ConfigurationError(f"rank {rank}: {problem}")
    asked()  # refuses a value that is wrong everywhere
    missing = ", ".join(str(rank) for rank, (on, _) in enumerate(found) if not on)
    if any(on for on, _ in found) and missing:
        raise ConfigurationError(
            f"{VARIABLE}=1 is not set in every process (not in rank {missing}): set it everywhere "
            "or nowhere"
        )


def _choice() -> Tuple[bool, str]:
    """Whether this process switches kernels on, and why they cannot run here."""
    on = False
    try:
        on = asked()
        if on and torch.cuda.is_available():
            check_triton()
            check_gpu(torch.device("cuda", torch.cuda.current_device()))
    except ConfigurationError as error:
        return on, str(error)
    return on, ""


@functools.lru_cache(maxsize=None)
def check_gpu(device: torch.device) -> None:
    """Raise a ConfigurationError if a GPU is too old for the kernels."""
    found = torch.cuda.get_device_capability(device)
    if found < CAPABILITY:
        raise ConfigurationError(
            "{}=1: the Triton kernels need a GPU of compute capability {}.{}, and {} has {}.{}; "
            "set it to 0".format(VARIABLE, *CAPABILITY, torch.cuda.get_device_name(device), *found)
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
    elif not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        reason = "Triton needs a C compiler: install gcc"
    elif not Path(sysconfig.get_paths()["include"], "Python.h").is_file():
        reason = "Triton needs Python.h: install the headers of this Python, such as python3-dev"
    if reason:
        raise ConfigurationError(
            f"{VARIABLE}=1: the Triton kernels do not run here: {reason}; set it to 0"
        )


def triton_version() -> Tuple[int, ...]:
    """Major and minor version of the installed Triton."""
    version = importlib.import_module("triton").__version__
    return tuple(int(part) for part in version.split(".")[:2])
