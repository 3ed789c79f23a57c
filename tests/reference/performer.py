"""FAVOR+ for one head (Choromanski et al. 2021, lemma 1 and equation 4)."""

import math

import torch
from torch import Tensor


def features(x: Tensor, directions: Tensor) -> Tensor:
    """phi(x), the positive random features of one vector."""
    exponents = torch.einsum("ms,s->m", directions, x) - (x * x).sum() / 2
    return torch.exp(exponents) / math.sqrt(len(directions))


def performer(queries: Tensor, keys: Tensor, values: Tensor, directions: Tensor) -> Tensor:
    """`N x s`, from queries `N x s`, keys and values `M x s` and directions `m x s`."""
    scale = queries.size(1) ** -0.25
    key_features = [features(key * scale, directions) for key in keys]
    rows = []
    for query in queries:
        phi = features(query * scale, directions)
        kernels = [(phi * feature).sum() for feature in key_features]
        rows.append(sum(a * value for a, value in zip(kernels, values)) / sum(kernels))
    return torch.stack(rows)
