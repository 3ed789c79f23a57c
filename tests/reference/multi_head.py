"""Projections of several heads around the equation of one, and attention to chosen positions."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .attention import linear, softmax_of


def heads_of(x: Tensor, weight: Tensor, bias: Tensor, heads: int) -> list[Tensor]:
    """The vectors of each head, `N x s`, from `N x d_in`; head h owns rows `h s .. (h + 1) s`."""
    return list(linear(x, weight, bias).chunk(heads, dim=1))


def joined(heads: Sequence[Tensor], weight: Tensor, bias: Tensor) -> Tensor:
    """The output projection of all heads, each `N x s`."""
    return linear(torch.cat(list(heads), dim=1), weight, bias)


def attend(query: Tensor, keys: Tensor, values: Tensor, visible: Sequence[int]) -> Tensor:
    """Softmax attention of one query to the positions `visible`, each counted once."""
    assert len(set(visible)) == len(visible)
    if not visible:
        return torch.zeros_like(query)
    scale = math.sqrt(len(query))
    weights = softmax_of([(query * keys[j]).sum() / scale for j in visible])
    return sum(weight * values[j] for weight, j in zip(weights, visible))


def attend_all(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    sees: Callable[[int, int], bool] = lambda i, j: True,
) -> Tensor:
    """The same for all queries (Vaswani et al.); `sees(i, j)`: whether query i sees key j."""
    rows = []
    for i in range(len(queries)):
        visible = [j for j in range(len(keys)) if sees(i, j)]
        rows.append(attend(queries[i], keys, values, visible))
    return torch.stack(rows)
