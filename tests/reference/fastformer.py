"""Additive attention for one head: section 3.1 of Fastformer, and its interactions (4.4)."""

import math

import torch
from torch import Tensor

from .attention import softmax_of


def interact(summary: Tensor, row: Tensor, interaction: str) -> Tensor:
    """A global vector meets the vector of one position."""
    if interaction == "product":
        return summary * row
    if interaction == "add":
        return summary + row
    return torch.cat([summary, row])


def summarize(rows: list[Tensor], score: Tensor, size: int) -> Tensor:
    """The sum of vectors, weighted by the softmax of their products with one vector."""
    weights = softmax_of([(score * row).sum() / math.sqrt(size) for row in rows])
    return sum(weight * row for weight, row in zip(weights, rows))  # type: ignore[return-value]


def fastformer(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    query_score: Tensor,
    key_score: Tensor,
    interaction: str = "product",
) -> Tensor:
    """`N x s`, or `N x 3 s` for "concat", from queries and values `N x s` and keys `M x s`.

    query_score: `s` (w_q); key_score: `s`, or `2 s` for "concat" (w_k).
    """
    size = queries.size(1)
    global_query = summarize(list(queries), query_score, size)
    p = [interact(global_query, key, interaction) for key in keys]
    global_key = summarize(p, key_score, size)
    return torch.stack([interact(global_key, value, interaction) for value in values])
