"""Linformer for one head (Wang et al. 2020, equation 7)."""

from torch import Tensor

from .multi_head import attend_all


def linformer(queries: Tensor, keys: Tensor, values: Tensor, e: Tensor, f: Tensor) -> Tensor:
    """`N x s`, from queries `N x s`, keys and values `M x s`, and E and F, `k x n` with n >= M."""
    length = len(keys)
    return attend_all(queries, e[:, :length] @ keys, f[:, :length] @ values)
