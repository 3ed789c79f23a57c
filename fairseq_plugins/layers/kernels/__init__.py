"""Triton kernels for layers on GPUs, in half precision.

They are used if they work; FAIRSEQ_PLUGINS_TRITON=0 turns them off. `usable` decides for each
tensor. If Triton's requirements are missing (see `obstacle`), we log one line and use plain torch.
Before first use on a GPU, in a dtype and for the sizes of a layer, each kernel is compared with its
plain form on small random input: forward and all gradients. One that differs is not used, and we
log one line. There is no list of GPUs. Results differ from plain torch by rounding, so a training
keeps its initial choice in all processes (`train/kernel_choice.py`).

A kernel never waits for the host, allocates only through torch and chooses its block sizes from the
sizes of its input, so a CUDA graph can capture it. While one captures, only kernels that are
already compiled and checked are used: run the step once before. Triton is imported at the first
such tensor, never before.
"""

import functools
import importlib
import importlib.util
import logging
import os
import shutil
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.layers.tracing import is_traced

logger = logging.getLogger(__name__)

VARIABLE = "FAIRSEQ_PLUGINS_TRITON"
NAMES = (
    *("products", "residual", "activation", "projections", "additive_attention", "pooling"),
    "cross_entropy",
)
SHARED_MEMORY = 99 * 1024  # of a program on small GPUs, in bytes
LARGE = 160 * 1024  # GPUs with at least this are for data centres; programs are larger
# The largest sizes that programs have room for:
MAX_SUBSPACE = 128  # d/n of MSCFFN
MAX_ADDITIVE = 16 * 1024  # h x d of Fastformer, rounded up as in `block`; half on a small GPU
MAX_FEATURES = 8192  # d of a LayerNorm
DTYPES = (torch.bfloat16, torch.float16)  # tensor cores have no exact float32 products
TRITON = (3, 4)  # the first version that compiles all kernels: 3.3 fails for an H100
CAPABILITY = (8, 0)  # Ampere: older GPUs have too little shared memory
# the allowed difference of a kernel's result from float64, beyond twice that of the plain form,
# relative to its largest entry
TOLERANCE = 0.01

_off: set[str] = set()  # kernels that this process does not use
_problems: dict[Any, str] = {}  # problem of each checked kernel; empty if it has no problem


class Trial(NamedTuple):
    """A kernel and its plain form, to be compared.

    Args:
        fast, plain: map the leaves to one or several tensors; `plain` in any dtype.
        leaves: tensors in float32, on the GPU.
    """

    fast: Callable[..., Any]
    plain: Callable[..., Any]
    leaves: list[Tensor]


def is_on_gpu(x: Tensor) -> bool:
    return x.is_cuda


def can_read(x: Tensor) -> bool:
    """Whether a kernel could run on `x`: a tensor on a GPU that is not empty, and not traced."""
    return is_on_gpu(x) and not is_traced() and x.numel() > 0


def usable(x: Tensor, name: str, *sizes: int) -> bool:
    """Whether to use a kernel for `x`, which must be in half precision on a GPU.

    Args:
        name: of the kernel's module in this package.
        sizes: what its `trials` takes.

    Raises:
        ConfigurationError: `VARIABLE` is neither 0 nor 1.
    """
    if not (x.is_cuda and x.dtype in DTYPES and asked()) or name in _off:
        return False
    unknown = (name, x.device, x.dtype, *sizes) not in _problems
    if unknown and torch.cuda.is_current_stream_capturing():
        return False
    problem = find_problem(name, x.device, x.dtype, *sizes)
    if problem:  # other sizes stay on: a training keeps its kernels if evaluation lacks one
        _log_unused(problem)
    return not problem


def find_problem(name: str, device: torch.device, dtype: torch.dtype, *sizes: int) -> str:
    """Why a kernel cannot be used here; empty if it can. Checks each kernel only once."""
    key = (name, device, dtype, *sizes)
    if key not in _problems:
        _problems[key] = obstacle() or gpu_obstacle(device)
        if not _problems[key]:
            _problems[key] = _check(name, device, dtype, *sizes)
    return _problems[key]


def turn_off(names: list[str], reason: str) -> None:
    """Use plain torch instead of these kernels from now on, and log one line."""
    new = [name for name in names if name not in _off]
    _off.update(new)
    if new and reason:
        _log_unused(reason)


@functools.cache
def _log_unused(reason: str) -> None:
    logger.warning(f"Triton kernels are not used, plain torch is: {reason}")


def in_use() -> list[str]:
    """The kernels that were checked here and are used."""
    good = {key[0] for key, problem in _problems.items() if not problem}
    return sorted(good - _off) if asked() else []


def shared_memory_of(x: Tensor) -> int:
    """Bytes of shared memory per program on the GPU of `x`; without a GPU, the smallest."""
    properties = torch.cuda.get_device_properties(x.device) if x.is_cuda else None
    return int(getattr(properties, "shared_memory_per_block_optin", SHARED_MEMORY))


def has_room_for_heads(x: Tensor, heads: int) -> bool:
    """Whether the programs of additive attention over `x`, ... x d, fit on its GPU."""
    most = MAX_ADDITIVE if shared_memory_of(x) >= LARGE else MAX_ADDITIVE // 2
    return block(x.size(-1)) * block(heads) <= most


def block(size: int) -> int:
    """The side of the block that holds `size` numbers: a power of two, at least tl.dot's 16."""
    return max(16, 1 << (size - 1).bit_length())


def asked() -> bool:
    """Whether the environment allows kernels.

    Raises:
        ConfigurationError: the variable is neither 0 nor 1.
    """
    value = os.environ.get(VARIABLE, "1")
    if value not in ("0", "1"):
        raise ConfigurationError(
            f"{VARIABLE}={value}: set it to 0 (plain torch) or 1 (Triton kernels, the default)"
        )
    return value == "1"


def agree(problems: dict[str, str]) -> dict[str, str]:
    """The problems of all processes of a training, which must call this together.

    Args:
        problems: those of this process, by the name of what has them.
    """
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return problems
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, problems)
    merged: dict[str, str] = {}
    for rank, theirs in enumerate(found):
        for name, problem in theirs.items():
            merged.setdefault(name, f"rank {rank}: {problem}")
    return merged


@functools.cache
def gpu_obstacle(device: torch.device) -> str:
    """Why no kernel runs on a GPU; empty if they do."""
    found = torch.cuda.get_device_capability(device)
    if found >= CAPABILITY:
        return ""
    return "they need a GPU of compute capability {}.{}, but {} has {}.{}".format(
        *CAPABILITY, torch.cuda.get_device_name(device), *found
    )


@functools.cache
def obstacle() -> str:
    """Why no kernel can be compiled on this machine; empty if they can."""
    if torch.version.hip is not None:
        return "they are for NVIDIA GPUs"
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if triton_version() < TRITON:
        return "they need Triton {}.{} or newer".format(*TRITON)
    if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        return "Triton needs a C compiler: install gcc"
    if not Path(sysconfig.get_paths()["include"], "Python.h").is_file():
        return "Triton needs Python.h: install the headers of this Python, such as python3-dev"
    return ""


def triton_version() -> tuple[int, ...]:
    """Major and minor version of the installed Triton."""
    version = importlib.import_module("triton").__version__
    return tuple(int(part) for part in version.split(".")[:2])


def _check(name: str, device: torch.device, dtype: torch.dtype, *sizes: int) -> str:
    """Compare a kernel with its plain form; returns the problem, or an empty string.

    torch's random state is restored, so training draws the same numbers with and without kernels.
    """
    generator = torch.Generator().manual_seed(1)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    try:
        with (
            torch.inference_mode(False),
            torch.enable_grad(),
            torch.autocast(device.type, enabled=False),
        ):
            module = importlib.import_module(f"{__name__}.{name}")
            for trial in module.trials(draw, *sizes):
                fast, plain = (_results(f, trial.leaves, dtype) for f in trial[:2])
                given = [leaf.to(dtype) for leaf in trial.leaves]
                exact = _results(trial.plain, given, torch.float64)
                for ours, theirs, right in zip(fast, plain, exact):
                    error, allowed = _distance(ours, right), 2 * _distance(theirs, right)
                    # not the other way round: NaN must fail
                    if not error <= allowed + TOLERANCE * right.abs().max().item():
                        return f"{name} differs from its plain form on {_name(device)} in {dtype}"
    except Exception as error:  # any error of the compiler or the driver
        lines = str(error).strip().splitlines() or [""]
        return f"{name} fails on {_name(device)}: {type(error).__name__}: {lines[-1]}"
    return ""


def _results(function: Callable[..., Any], leaves: list[Tensor], dtype: torch.dtype) -> list[Any]:
    """The results of a function and the gradients of its leaves."""
    given = [leaf.detach().to(dtype, copy=True).requires_grad_() for leaf in leaves]
    out = function(*given)
    out = list(out) if isinstance(out, tuple) else [out]
    weights = [torch.arange(o.numel(), device=o.device).cos().view(o.shape).to(o) for o in out]
    return [o.detach() for o in out] + list(torch.autograd.grad(out, given, weights))


def _distance(one: Tensor, other: Tensor) -> float:
    return float((one.double() - other.double()).abs().max())


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
