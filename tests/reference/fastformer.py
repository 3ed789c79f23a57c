"""Additive attention: section 3.1 of Fastformer, its interactions (4.4) and its sharing (4.5)."""

import math

import torch
from torch import Tensor

from .attention import linear, softmax_of


def project(row: Tensor, weight: Tensor, bias: Tensor, heads: int, shared: bool) -> list[Tensor]:
    """The vector of each head, for one position.

    Not shared: weight `d x d_in`, head h owns rows `h s .. (h + 1) s`. Shared: one weight
    `s x d_in / heads` for all heads, applied to the head's slice of the features.
    """
    if shared:
        size = row.numel() // heads
        return [linear(row[h * size : (h + 1) * size], weight, bias) for h in range(heads)]
    size = weight.size(0) // heads
    parts = [slice(h * size, (h + 1) * size) for h in range(heads)]
    return [linear(row, weight[part], bias[part]) for part in parts]


def interact(summary: Tensor, row: Tensor, interaction: str) -> Tensor:
    """A global vector meets the vector of one position."""
    if interaction == "product":
        return summary * row
    if interaction == "add":
        return summary + row
    return torch.cat([summary, row])


def fastformer(
    x: Tensor,
    memory: Tensor,
    heads: int,
    query_weight: Tensor,
    query_bias: Tensor,
    key_weight: Tensor,
    key_bias: Tensor,
    value_weight: Tensor,
    value_bias: Tensor,
    query_score: Tensor,
    key_score: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
    interaction: str = "product",
    head_sharing: bool = False,
) -> Tensor:
    """Queries and values from x (`N x d`), keys from memory (`M x d_memory`): `N x d`.

    query_score: `heads x s` (w_q); key_score: `heads x s`, or `heads x 2 s` for "concat" (w_k).
    out_weight: `d x d`, or `d x 3 d` for "concat", whose columns go head by head.
    Sharing between query and value, heads' score vectors or layers: pass the same tensor twice.
    """
    queries = [project(row, query_weight, query_bias, heads, head_sharing) for row in x]
    values = [project(row, value_weight, value_bias, heads, head_sharing) for row in x]
    keys = [project(row, key_weight, key_bias, heads, head_sharing) for row in memory]
    scale = math.sqrt(x.size(1) // heads)

    interactions: list[list[Tensor]] = [[] for _ in values]
    for h in range(heads):
        alpha = softmax_of([(query_score[h] * query[h]).sum() / scale for query in queries])
        global_query = sum(a * query[h] for a, query in zip(alpha, queries))
        p = [interact(global_query, key[h], interaction) for key in keys]
        beta = softmax_of([(key_score[h] * p_i).sum() / scale for p_i in p])
        global_key = sum(b * p_i for b, p_i in zip(beta, p))
        for u_i, value in zip(interactions, values):
            u_i.append(interact(global_key, value[h], interaction))
    return torch.stack(
        [
            linear(torch.cat(u_i), out_weight, out_bias) + torch.cat(query)
            for u_i, query in zip(interactions, queries)
        ]
    )
