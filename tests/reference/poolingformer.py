"""Poolingformer's levels for one head (Zhang et al. 2021, section 3)."""

import torch
from torch import Tensor

from .attention import softmax_of
from .longformer import near
from .multi_head import attend_all


def first_level(
    queries: Tensor, keys: Tensor, values: Tensor, window: int, ratio: int = 1
) -> Tensor:
    """`N x s`: y."""
    return attend_all(queries, keys, values, lambda i, j: near(i, j, window, ratio))


def pooled(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Lightweight dynamic convolution around every stride-th row; weight: `kernel x s`."""
    kernel = len(weight)
    rows = []
    for middle in range(0, len(x), stride):
        pairs = [(t, middle - kernel // 2 + t) for t in range(kernel)]
        inside = [(t, j) for t, j in pairs if 0 <= j < len(x)]
        delta = softmax_of([(weight[t] * x[middle]).sum() for t, _ in inside])
        rows.append(sum(a * x[j] for a, (_, j) in zip(delta, inside)))
    return torch.stack(rows)


def second_level(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    key_weight: Tensor,
    value_weight: Tensor,
    window: int,
    stride: int,
) -> Tensor:
    """`N x s`: z, from projections of y that are not pooled yet."""
    return attend_all(
        queries,
        pooled(keys, key_weight, stride),
        pooled(values, value_weight, stride),
        lambda i, m: abs(i - m * stride) <= window // 2,
    )
