"""Pooling between the blocks of an encoder, and the way back."""

import torch
from torch import Tensor


def windows(length: int, window: int) -> list[range]:
    """Positions of each window, counted from the first; the last window may be short."""
    return [range(first, min(first + window, length)) for first in range(0, length, window)]


def reduce(values: list[Tensor], kind: str) -> Tensor:
    """Elementwise mean, max or min of tensors; equal extremes share the gradient equally."""
    if kind == "mean":
        return sum(values) / len(values)  # type: ignore[return-value]
    extreme = values[0].detach()
    for value in values[1:]:
        further = value.detach() > extreme if kind == "max" else value.detach() < extreme
        extreme = torch.where(further, value.detach(), extreme)
    ties = [(value.detach() == extreme).to(extreme.dtype) for value in values]
    return sum(v * t for v, t in zip(values, ties)) / sum(ties)  # type: ignore[return-value]


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
    columns = []
    for j in range(x.size(1) // window):
        if kind == "linear":
            assert weight is not None and bias is not None
            column = sum(x[:, c] * weight[j, c] for c in range(x.size(1))) + bias[j]
        else:
            column = reduce([x[:, j * window + c] for c in range(window)], kind)
        columns.append(column)
    return torch.stack(columns, dim=1)


def upsample(y: Tensor, time_window: int, feature_window: int, length: int) -> Tensor:
    """Every row `time_window` times, every feature `feature_window` times; `length` rows of it."""
    return torch.stack(
        [
            torch.stack(
                [
                    y[t // time_window, c // feature_window]
                    for c in range(y.size(1) * feature_window)
                ]
            )
            for t in range(length)
        ]
    )
