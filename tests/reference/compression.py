"""Pooling between the blocks of an encoder, and the way back."""

import torch
from torch import Tensor

from .attention import linear


def windows(length: int, window: int) -> list[range]:
    """Positions of each window, counted from the first; the last window may be short."""
    return [range(first, min(first + window, length)) for first in range(0, length, window)]


def reduce(values: list[Tensor], kind: str) -> Tensor:
    """Elementwise mean, max or min of tensors; equal extremes share the gradient equally."""
    if kind == "mean":
        return sum(values) / len(values)  # type: ignore[return-value]
    stacked = torch.stack(values)
    return stacked.amax(dim=0) if kind == "max" else stacked.amin(dim=0)


def pool_time(x: Tensor, window: int, kind: str) -> Tensor:
    """`T x C` to `ceil(T / window) x C`."""
    return torch.stack([reduce([x[t] for t in ts], kind) for ts in windows(len(x), window)])


def pool_features(
    x: Tensor,
    window: int,
    kind: str,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """`T x C` to `T x C / window`; weight `C / window x C` and bias for kind "linear"."""
    if kind == "linear":
        assert weight is not None and bias is not None
        return linear(x, weight, bias)
    return reduce(list(x.unflatten(1, (-1, window)).unbind(dim=2)), kind)


def upsample(y: Tensor, time_window: int, feature_window: int, length: int) -> Tensor:
    """Every row `time_window` times, every feature `feature_window` times; `length` rows of it."""
    rows = y.repeat_interleave(time_window, dim=0)[:length]
    return rows.repeat_interleave(feature_window, dim=1)
