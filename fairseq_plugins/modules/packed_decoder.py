"""Decoder layers on rows, for training: only real target positions are computed.

fairseq's decoder computes all B x T positions, padding included. Here projections, feed-forward
networks, LayerNorm, dropout and residuals act on N x C rows (see `rows.py`). Layers and weights are
fairseq's; results differ by the order of additions.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from torch import Tensor

from .decoder_layer import run_decoder_layer
from .rows import Layout, attention_on_rows


class Memory(NamedTuple):
    """The encoder's output as rows, N' x C, and their layout."""

    rows: Tensor
    at: Layout


def embed_rows(side: Any, tokens: Tensor, positions: Callable[[], Tensor]) -> Tensor:
    """The input of the first layer of fairseq's encoder or decoder, for tokens in any layout.

    Args:
        side: the encoder or decoder.
        tokens: integers of any shape.
        positions: computes position embeddings, ... x d, if there are any.
    """
    x = side.embed_scale * side.embed_tokens(tokens)
    if side.quant_noise is not None:
        x = side.quant_noise(x)
    if side.embed_positions is not None:
        x = x + positions()
    if side.layernorm_embedding is not None:
        x = side.layernorm_embedding(x)
    return side.dropout_module(x)


def decode_rows(
    decoder: Any, x: Tensor, at: Layout, memory: Memory | None, need_weights: bool = False
) -> tuple[Tensor, Tensor | None]:
    """Run the layers of a decoder that `has_standard_layers`.

    If fairseq's `checkpoint_wrapper` wraps a layer, backward recomputes its activations.

    Args:
        decoder: fairseq's decoder, or one with other layers or networks.
        x: N x d, embedded target positions.
        at: their layout.
        memory: the encoder's output, or None.
        need_weights: also return the attention of the last layer to the source.

    Returns:
        the features, N x C, and the mean over heads of the attention, N x width in the grid of the
        source, zero at padding; or None.
    """
    weights: Tensor | None = None
    rows = None if memory is None else memory.rows
    for number, layer in enumerate(decoder.layers):
        need = need_weights and number == len(decoder.layers) - 1
        run = _forward_of(layer, at, None if memory is None else memory.at, need)
        if hasattr(layer, "precheckpoint_forward"):
            run = checkpoint_wrapper(SimpleNamespace(forward=run)).forward
        x, weights = run(x, rows)
    if decoder.layer_norm is not None:
        x = decoder.layer_norm(x)
    if decoder.project_out_dim is not None:
        x = decoder.project_out_dim(x)
    return x, weights


def _forward_of(
    layer: Any, at: Layout, source: Layout | None, need_weights: bool
) -> Callable[[Tensor, Tensor | None], tuple[Tensor, Tensor | None]]:
    """The forward of a decoder layer on rows of the target, N x d, and of the memory or None."""

    def run(x: Tensor, memory: Tensor | None) -> tuple[Tensor, Tensor | None]:
        def attend_target(x: Tensor) -> tuple[Tensor, Tensor | None]:
            return attention_on_rows(layer.self_attn, x, at, x, at, causal=True)

        def attend_source(x: Tensor) -> tuple[Tensor, Tensor | None]:
            assert memory is not None and source is not None
            attention = layer.encoder_attn
            out, weights = attention_on_rows(
                attention, x, at, memory, source, need_weights=need_weights
            )
            return out, None if weights is None else at.from_grid(weights.mean(dim=1))

        reads_source = layer.encoder_attn is not None and memory is not None
        return run_decoder_layer(layer, x, attend_target, attend_source if reads_source else None)

    return run
