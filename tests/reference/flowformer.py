"""Flow attention for one head (Wu et al. 2022, equations 4 to 8)."""

from collections.abc import Sequence

import torch
from torch import Tensor

from .attention import softmax_of

EPSILON = 1e-6


def flow(phi: Tensor, others: Sequence[Tensor]) -> Tensor:
    return ((phi + EPSILON) * (sum(others) + EPSILON)).sum()


def flowformer(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """`N x s`, with the factors M of the competition and N / M of the allocation, and epsilon."""
    sinks, sources = torch.sigmoid(queries), torch.sigmoid(keys)
    n, m = len(sinks), len(sources)
    incoming = [flow(q, sources) for q in sinks]
    outgoing = [flow(k, sinks) for k in sources]
    conserved_in = [flow(q, [k / o for k, o in zip(sources, outgoing)]) for q in sinks]
    conserved_out = [flow(k, [q / i for q, i in zip(sinks, incoming)]) for k in sources]
    competition = softmax_of(conserved_out)
    rows = []
    for q, received, conserved in zip(sinks, incoming, conserved_in):
        row = sum(
            (q * k).sum() / received * (m * weight * value)
            for k, weight, value in zip(sources, competition, values)
        )
        rows.append(torch.sigmoid(conserved * n / m) * row)
    return torch.stack(rows)
