"""Layers compiled by torch, for training whose time goes into launching kernels."""

import functools
import logging
from typing import Any, Callable

import torch
from torch import Tensor

from fairseq_plugins.errors import ConfigurationError

logger = logging.getLogger(__name__)

# Versions of a layer that are kept: for each size of blocks, with and without padding, odd and even
# lengths. torch gives up after 8 and goes on without compiling.
VERSIONS = 64


def available() -> bool:
    """Whether this torch compiles functions for shapes that change (from 2.1 on)."""
    return hasattr(torch, "compile") and hasattr(
        getattr(torch, "compiler", None), "is_dynamo_compiling"
    )


def is_captured() -> bool:
    """Whether a tracer or compiler is writing down what runs.

    Plain operations are what it can work with, so that forms made for eager execution (custom
    gradients, loops over chunks, cheap random numbers) step aside.
    """
    return torch.jit.is_tracing() or (available() and torch.compiler.is_dynamo_compiling())


def can_compile(x: Tensor) -> bool:
    """Whether layers on tensors like this one are compiled, where that is wanted.

    Not in half precision on a CPU: for Fastformer's layers torch 2.13 writes C++ with a variable
    declared twice. That is said once.
    """
    if x.device.type == "cpu" and x.dtype in (torch.bfloat16, torch.float16):
        _say_that_it_is_not(x.dtype)
        return False
    return True


@functools.lru_cache(maxsize=None)
def _say_that_it_is_not(dtype: torch.dtype) -> None:
    logger.warning(f"--torch-compile: layers in {dtype} on a CPU run without being compiled")


@functools.lru_cache(maxsize=None)
def compiled(function: Callable) -> Callable:
    """The function, compiled at its first call for any batch size and length.

    Same function of its inputs but for rounding; dropout has another random stream.

    Raises:
        ConfigurationError: at a call, when torch cannot compile on this machine.
    """
    import torch._dynamo  # only who compiles waits for this import

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
