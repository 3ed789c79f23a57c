"""A decoder layer for one sentence: the Transformer's, around any feed-forward network."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Rows = Callable[[Tensor], Tensor]  # T x C to T x C


def causal(attention: Callable[[Tensor, Tensor], Tensor]) -> Rows:
    """Attention, of (queries, keys and values), where no position sees a later one."""
    return lambda x: torch.cat([attention(x[t : t + 1], x[: t + 1]) for t in range(len(x))])


def run_decoder_layer(sublayers: Sequence[tuple[Rows, Rows]], x: Tensor, pre_norm: bool) -> Tensor:
    """`T x d`, from the sublayers, each with its layer norm."""
    for sublayer, norm in sublayers:
        x = x + sublayer(norm(x)) if pre_norm else norm(x + sublayer(x))
    return x
