"""A decoder layer for one sentence: the Transformer's, around any feed-forward network."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

Rows = Callable[[Tensor], Tensor]  # T x C to T x C


class DecoderLayer(NamedTuple):
    """The three sublayers and their layer norms."""

    self_attention: Callable[[Tensor, Tensor], Tensor]  # (queries, keys and values)
    self_attention_norm: Rows
    cross_attention: Callable[[Tensor, Tensor], Tensor]
    cross_attention_norm: Rows
    feed_forward: Rows
    feed_forward_norm: Rows


def run_decoder_layer(layer: DecoderLayer, x: Tensor, memory: Tensor, pre_norm: bool) -> Tensor:
    """`T x d` given the encoder's `S x d_memory`; no position sees a later one."""

    def causal(x: Tensor) -> Tensor:
        return torch.cat([layer.self_attention(x[t : t + 1], x[: t + 1]) for t in range(len(x))])

    for sublayer, norm in (
        (causal, layer.self_attention_norm),
        (lambda x: layer.cross_attention(x, memory), layer.cross_attention_norm),
        (layer.feed_forward, layer.feed_forward_norm),
    ):
        x = x + sublayer(norm(x)) if pre_norm else norm(x + sublayer(x))
    return x
