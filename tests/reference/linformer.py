"""Linformer for one head (Wang et al. 2020, equation 7)."""

import torch
from torch import Tensor

from .multi_head import attend


def linformer(queries: Tensor, keys: Tensor, values: Tensor, e: Tensor, f: Tensor) -> Tensor:
    """`N x s`, from queries `N x s`, keys and values `M x s`, and E and F, `k x n` with n >= M."""
    short_keys = torch.stack([sum(row[j] * keys[j] for j in range(len(keys))) for row in e])
    short_values = torch.stack([sum(row[j] * values[j] for j in range(len(keys))) for row in f])
    return torch.stack([attend(q, short_keys, short_values, range(len(e))) for q in queries])
