"""Longformer for one head (Beltagy et al. 2020, section 3.1)."""

import torch
from torch import Tensor

from .multi_head import attend_all


def near(i: int, j: int, window: int, ratio: int = 1) -> bool:
    """Whether j is within half a window of one of the positions that query i was pooled from."""
    return any(abs(j - p) <= window // 2 for p in range(i * ratio, (i + 1) * ratio))


def longformer(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    global_queries: Tensor,
    global_keys: Tensor,
    global_values: Tensor,
    window: int,
    global_tokens: int,
    ratio: int = 1,
) -> Tensor:
    """`N x s`; the second three are the projections for global attention."""
    local = attend_all(
        queries, keys, values, lambda i, j: j < global_tokens or near(i, j, window, ratio)
    )
    everywhere = attend_all(global_queries, global_keys, global_values)
    return torch.stack(
        [everywhere[i] if i < global_tokens else local[i] for i in range(len(queries))]
    )
