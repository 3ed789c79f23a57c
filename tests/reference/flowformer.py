"""Flow attention for one head (Wu et al. 2022, equations 4 to 8)."""

import torch
from torch import Tensor

from .attention import softmax_of


def flowformer(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """`N x s`, with the factors M of the competition and N / M of the allocation."""
    sinks, sources = torch.sigmoid(queries), torch.sigmoid(keys)
    n, m = len(sinks), len(sources)
    incoming = [sum((q * k).sum() for k in sources) for q in sinks]
    outgoing = [sum((q * k).sum() for q in sinks) for k in sources]
    conserved_in = [sum((q * k).sum() / o for k, o in zip(sources, outgoing)) for q in sinks]
    conserved_out = [sum((q * k).sum() / i for q, i in zip(sinks, incoming)) for k in sources]
    competition = softmax_of(conserved_out)
    rows = []
    for q, flow, conserved in zip(sinks, incoming, conserved_in):
        row = sum(
            (q * k).sum() / flow * (m * weight * value)
            for k, weight, value in zip(sources, competition, values)
        )
        rows.append(torch.sigmoid(conserved * n / m) * row)
    return torch.stack(rows)
