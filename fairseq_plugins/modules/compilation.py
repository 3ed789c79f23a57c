"""torch.compile for single layers, for GPUs where launching small kernels is the bottleneck."""

import functools
import logging
from typing import Any, Callable

import torch
from torch import Tensor

from fairseq_plugins.errors import ConfigurationError

logger = logging.getLogger(__name__)

# Compiled versions of a layer that torch keeps: one for each block size, with and without padding,
# for odd and even lengths. Beyond the limit torch stops compiling; its default is 8.
VERSIONS = 64


def is_captured() -> bool:
    """Whether torch.jit.trace or torch.compile is recording the operations.

    Both need plain operations: custom gradients, loops over chunks and cheap random numbers are for
    eager execution only.
    """
    return torch.jit.is_tracing() or torch.compiler.is_dynamo_compiling()


def can_compile(x: Tensor) -> bool:
    """Whether --torch-compile can compile a layer for tensors like this one.

    Not in half precision on a CPU: torch 2.13 generates invalid C++ for Fastformer's layers (a
    variable declared twice). In that case one warning is logged.
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
    """The function, to be compiled at its first call, for any batch size and length.

    Results differ by rounding, and the random stream of dropout differs.

    Raises:
        ConfigurationError: torch cannot compile on this machine (raised by the first call).
    """
    import torch._dynamo  # slow to import

    config: Any = torch._dynamo.config
    config.recompile_limit = max(VERSIONS, config.recompile_limit)
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
