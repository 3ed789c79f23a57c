"""Multi-head softmax attention (Vaswani et al.; Fastformer's equations 1 and 2)."""

import math

import torch
from torch import Tensor


def softmax_of(scores: list[Tensor]) -> list[Tensor]:
    """Weights that sum to one, from the scores of the positions of one sentence."""
    largest = max(score.item() for score in scores)
    exponentials = [torch.exp(score - largest) for score in scores]
    total = sum(exponentials)
    return [exponential / total for exponential in exponentials]


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`weight x + bias` for one position: weight is `out x in`."""
    return torch.einsum("oi,i->o", weight, x) + bias


def softmax_attention(
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
    queries = [linear(row, query_weight, query_bias) for row in x]
    keys = [linear(row, key_weight, key_bias) for row in memory]
    values = [linear(row, value_weight, value_bias) for row in memory]
    rows = []
    for query in queries:
        parts = []
        for h in range(heads):
            part = slice(h * size, (h + 1) * size)
            scores = [(query[part] * key[part]).sum() / math.sqrt(size) for key in keys]
            weights = softmax_of(scores)
            parts.append(sum(w * value[part] for w, value in zip(weights, values)))
        rows.append(linear(torch.cat(parts), out_weight, out_bias))
    return torch.stack(rows)
