"""Linear attention: equations 5 and 7 of Katharopoulos et al. (2020), with their feature map."""

import torch
from torch import Tensor

from .attention import linear


def phi(x: Tensor) -> Tensor:
    """elu(x) + 1."""
    return torch.where(x > 0, x + 1, torch.exp(torch.clamp(x, max=0)))


def linear_attention(
    x: Tensor,
    memory: Tensor,
    heads: int,
    query_weight: Tensor,
    query_bias: Tensor,
    key_weight: Tensor,
    key_bias: Tensor,
    value_weight: Tensor,
    value_bias: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
) -> Tensor:
    """Queries from x (`N x d`), keys and values from memory (`M x d_memory`): `N x d`."""
    size = x.size(1) // heads
    queries = [phi(linear(row, query_weight, query_bias)) for row in x]
    keys = [phi(linear(row, key_weight, key_bias)) for row in memory]
    values = [linear(row, value_weight, value_bias) for row in memory]
    rows = []
    for query in queries:
        parts = []
        for h in range(heads):
            part = slice(h * size, (h + 1) * size)
            weights = [(query[part] * key[part]).sum() for key in keys]
            total = sum(weights) + 1e-6
            parts.append(sum(w * value[part] for w, value in zip(weights, values)) / total)
        rows.append(linear(torch.cat(parts), out_weight, out_bias))
    return torch.stack(rows)
