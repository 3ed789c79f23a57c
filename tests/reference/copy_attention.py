"""Copying and coverage of the pointer-generator (See et al. 2017, equations 8, 9 and 12)."""

from typing import List

import torch
from torch import Tensor


def copy_probabilities(
    logits: Tensor, attention: Tensor, source: List[int], gate: Tensor
) -> Tensor:
    """Of one target token: `V` probabilities from `V` logits, `T` weights and the gate's sum."""
    generate = 1 / (1 + torch.exp(-gate))
    exponentials = [torch.exp(logit - logits.max().item()) for logit in logits]
    total = sum(exponentials)
    rows = []
    for word, exponential in enumerate(exponentials):
        copied = sum((a for a, w in zip(attention, source) if w == word), torch.zeros_like(gate))
        rows.append(generate * exponential / total + (1 - generate) * copied)
    return torch.stack(rows)


def coverage_loss(attention: Tensor) -> Tensor:
    """Of one sentence: `sum_t sum_i min(a_ti, c_ti)` of `t x T` weights."""
    loss = attention.new_zeros(())
    covered = [attention.new_zeros(()) for _ in attention[0]]
    for row in attention:
        for i, weight in enumerate(row):
            loss = loss + (weight if weight < covered[i] else covered[i])
            covered[i] = covered[i] + weight
    return loss
