"""Layers compiled by torch, for GPUs that wait for many small kernels to be launched."""

import functools
import logging
from typing import Any, Callable

import torch
from torch import Tensor

from fairseq_plugins.errors import ConfigurationError

logger = logging.getLogger(__name__)

# Versions of a layer that are kept: one for each size of blocks, with and without padding, for odd
# and even lengths. torch's default is 8; beyond that it does not compile.
VERSIONS = 64


def available() -> bool:
    """Whether this torch compiles functions for shapes that change (from 2.1 on)."""
    return hasattr(torch, "compile") and hasattr(
        getattr(torch, "compiler", None), "is_dynamo_compiling"
    )


def is_captured() -> bool:
    """Whether a tracer or compiler is writing down what runs.

    It needs plain operations: custom gradients, loops over chunks and cheap random numbers are for
    eager execution alone.
    """
    return torch.jit.is_tracing() or (available() and torch.compiler.is_dynamo_compiling())


def can_compile(x: Tensor) -> bool:
    """Whether layers on tensors like this one are compiled, where that is wanted.

    Not in half precision on a CPU, where torch 2.13 writes C++ with a variable declared twice for
    Fastformer's layers. A warning says so once.
    """
    if x.device.type == "cpu" and x.dtype in (torch.bfloat16, torch.float16):
        _warn_half_precision(x.dtype)
        return False
    return True


@functools.lru_cache(maxsize=None)
def _warn_half_precision(dtype: torch.dtype) -> None:
    logger.warning(f"--torch-compile: layers in {dtype} on a CPU run without being compiled")


@functools.lru_cache(maxsize=None)
def compiled(function: Callable) -> Callable:
    """The function, compiled at its first call for any batch size and length.

    Same function of its inputs but for rounding; dropout has another random stream.

    Raises:
        ConfigurationError: at a call, when torch cannot compile on this machine.
    """
    import torch._dynamo  # slow to import

    config: Any = torch._dynamo.config
    limit = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"
    setattr(config, limit, max(VERSIONS, getattr(config, limit)))
    run = torch.compile(function, dynamic=True)
    logger.info(f"compiling {function.__qualname__}: the first batches take minutes")

    @functools.wraps(function)
    def call(*args: Any) -> Any:
        try:
            return run(*args)
        except torch._dynamo.exc.BackendCompilerFailed as error:
            reason = str(error.inner_exception).strip().splitlines()[:1]
            raise ConfigurationError(
                f"--torch-compile: torch could not compile a layer here ({''.join(reason)}); it "
                "needs a C++ compiler for a CPU and Triton for a GPU: install it, or leave "
                "--torch-compile out"
            ) from error

    return call
