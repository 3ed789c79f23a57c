"""An encoder of blocks for one sentence (TransformerFTC, 3.2.1), around any mixer and FFN."""

from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from .compression import upsample

Rows = Callable[[Tensor], Tensor]  # T x C to T x C


class Layer(NamedTuple):
    """One layer: the two sublayers and their layer norms."""

    mixer: Callable[[Tensor, Tensor], Tensor]  # (queries, keys and values)
    mixer_norm: Rows
    feed_forward: Rows
    feed_forward_norm: Rows


def identity(x: Tensor) -> Tensor:
    return x


class Block(NamedTuple):
    """Layers of one size, and the pooling in front of them (identity in front of the first)."""

    layers: list[Layer]
    pool: Rows = identity


def run_layer(layer: Layer, x: Tensor, pool: Rows, pre_norm: bool) -> Tensor:
    """A layer whose queries and residual are pooled, while its keys and values are not."""
    if pre_norm:
        normed = layer.mixer_norm(x)
        y = pool(x) + layer.mixer(pool(normed), normed)
        return y + layer.feed_forward(layer.feed_forward_norm(y))
    pooled = pool(x)
    y = layer.mixer_norm(pooled + layer.mixer(pooled, x))
    return layer.feed_forward_norm(y + layer.feed_forward(y))


def encode(
    x: Tensor,
    blocks: list[Block],
    time_window: int,
    feature_window: int,
    pre_norm: bool,
    final_norm: Rows = identity,
) -> Tensor:
    """`T x d` embedded tokens to the `T x d` that the decoder attends to."""
    length = len(x)
    first = x
    for number, block in enumerate(blocks):
        for position, layer in enumerate(block.layers):
            x = run_layer(layer, x, block.pool if position == 0 else identity, pre_norm)
        if number == 0:
            first = x
    if len(blocks) > 1:
        poolings = len(blocks) - 1
        x = first + upsample(x, time_window**poolings, feature_window**poolings, length)
    return final_norm(x)
