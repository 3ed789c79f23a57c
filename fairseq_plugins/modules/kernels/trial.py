"""Whether a kernel takes the place of plain torch: at its first use it must be right, and pay.

The environment variable ``FAIRSEQ_PLUGINS_TRITON`` decides without a trial: 1 for the kernels, 0
for plain torch. The two differ by rounding, so that a run that must be repeated to the bit sets it.
"""

import logging
import os
import statistics
import time
from typing import Any, Callable, Dict, Hashable, List, NamedTuple, Sequence, Tuple

import torch
from torch import Tensor

from fairseq_plugins.errors import ConfigurationError

logger = logging.getLogger(__name__)

VARIABLE = "FAIRSEQ_PLUGINS_TRITON"
ROUNDS = 5  # timings of each way, in turn
_chosen: Dict[Hashable, bool] = {}


class Trial(NamedTuple):
    """Two functions of ``(*tensors, *others)`` that return the same tensor, or several.

    The tensors are of floating point and of one dtype, and get gradients. What was given is left as
    it is, and so is the random stream.
    """

    name: str  # of what is computed, for the log
    kernel: Callable[..., Any]
    plain: Callable[..., Any]
    tensors: Sequence[Tensor]
    others: Sequence[Any] = ()


def chosen(
    x: Tensor, sizes: Tuple[Hashable, ...], training: bool, trial: Callable[[], Trial]
) -> bool:
    """Whether the kernel is to compute what plain torch does.

    Both are tried. The kernel is chosen if it is no further than twice the other's distance from
    float64, and in the median faster. One that raises anything is not, and a warning says so.

    Args:
        x: whose dtype and device count.
        sizes: what else the outcome depends on, the functions among it: one trial for each.
        training: try gradients too, also where they are not enabled: checkpointed activations are
            computed without and then with them, and both times must go the same way.
        trial: makes it.

    Raises:
        ConfigurationError: the environment variable is neither 0 nor 1.
    """
    asked = os.environ.get(VARIABLE, "")
    if asked:
        if asked not in ("0", "1"):
            raise ConfigurationError(
                f"{VARIABLE}={asked}: set it to 1 (Triton kernels) or 0 (none), or unset it (those "
                "that are faster)"
            )
        return asked == "1"
    with_gradients = training or torch.is_grad_enabled()
    key = (sizes, x.dtype, x.device, with_gradients)
    if key not in _chosen:
        if x.is_cuda and torch.cuda.is_current_stream_capturing():
            return False  # a graph cannot wait for the time that something took
        with torch.autocast(x.device.type, enabled=False), torch.set_grad_enabled(with_gradients):
            _chosen[key] = _passes(trial())
    return _chosen[key]


def _passes(trial: Trial) -> bool:
    try:
        found = _results(trial.kernel, trial)
        expected = _results(trial.plain, trial)
        exact = _results(
            trial.plain, trial._replace(tensors=[tensor.double() for tensor in trial.tensors])
        )
        for number, (ours, theirs, true) in enumerate(zip(found, expected, exact)):
            allowed = 2 * _distance(theirs, true) + torch.finfo(ours.dtype).eps
            if not _distance(ours, true) <= allowed:  # also where one is not finite
                raise ArithmeticError(f"number {number} of its results is wrong")
        times: Tuple[List[float], List[float]] = ([], [])
        for _ in range(ROUNDS):
            times[0].append(_milliseconds(trial.kernel, trial))
            times[1].append(_milliseconds(trial.plain, trial))
    except Exception as error:  # of a compiler, a driver, the memory: plain torch remains
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        logger.warning(
            f"{trial.name}: by plain torch, as the Triton kernel failed its trial ({reason}); "
            f"{VARIABLE}=0 leaves trials out"
        )
        return False
    kernel, plain = statistics.median(times[0]), statistics.median(times[1])
    logger.info(f"{trial.name}: Triton kernel {kernel:.3f} ms, plain torch {plain:.3f} ms")
    return kernel < plain


def _results(function: Callable[..., Any], trial: Trial) -> List[Tensor]:
    """What the function returns and, where they are enabled, the gradients of all tensors."""
    with_gradients = torch.is_grad_enabled()
    leaves = [tensor.detach().requires_grad_(with_gradients) for tensor in trial.tensors]
    out = function(*leaves, *trial.others)
    values = list(out) if isinstance(out, tuple) else [out]
    if not with_gradients:
        return values
    weights = [
        torch.linspace(-1, 1, value.numel(), dtype=value.dtype, device=value.device).view_as(value)
        for value in values
    ]
    return values + list(torch.autograd.grad(values, leaves, weights))


def _distance(found: Tensor, exact: Tensor) -> float:
    """Of two tensors, relative to the norm of the second."""
    norm = exact.norm().item()
    return (found.double() - exact).norm().item() / (norm or 1.0)


def _milliseconds(function: Callable[..., Any], trial: Trial) -> float:
    if not trial.tensors[0].is_cuda:
        started = time.perf_counter()
        _results(function, trial)
        return 1000 * (time.perf_counter() - started)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    _results(function, trial)
    end.record()
    end.synchronize()
    return start.elapsed_time(end)
