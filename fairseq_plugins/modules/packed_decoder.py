"""Decoder layers that compute only real target positions, for training.

fairseq's decoder computes all B x T positions, padding included. Here projections, feed-forward
networks, LayerNorm, dropout and residuals act on the N real positions, N x C. Only attention pads
the B sentences to equal width. Layers and weights are fairseq's; results differ by the order of
additions.
"""

from types import SimpleNamespace
from typing import Any, Callable, NamedTuple, Optional, Tuple

import torch
from fairseq.modules import MultiheadAttention
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from torch import Tensor

from .decoder_layer import run_decoder_layer
from .rows import Layout, Put, Take, attention_on_rows


class Packing(Layout):
    """Index of the real positions of a padded batch, in three layouts.

    - batch: B x T x C, as given, with padding on any side;
    - packed: N x C, the real positions of all sentences;
    - grid: B x width x C, every sentence from the start of its row, width the longest sentence.

    Args:
        real: B x T, True at real positions.
    """

    starts = None

    def __init__(self, real: Tensor):
        self.real = real
        self.batch, self.length = real.shape
        lengths = real.sum(dim=1, keepdim=True)  # B x 1
        self.width = max(1, int(lengths.max()))  # at least 1, even if all is padding
        self.rank = (real.cumsum(dim=1) - 1).clamp_(min=0)  # B x T, column in the grid
        self.index = real.reshape(-1).nonzero().squeeze(1)  # N, rows of the flattened batch
        self.sentence = torch.div(self.index, self.length, rounding_mode="floor")  # N
        # N, rows of the flat grid
        self.grid_index = self.rank.reshape(-1)[self.index] + self.sentence * self.width
        self.grid_padding = torch.arange(self.width, device=real.device) >= lengths  # B x width
        self.full = self.index.numel() == self.batch * self.width
        self.without_padding = self.index.numel() == real.numel()

    def pack(self, x: Tensor) -> Tensor:
        """B x T x C -> N x C."""
        x = x.reshape(-1, x.size(-1))
        return x if self.without_padding else Take.apply(x, self.index)

    def unpack(self, rows: Tensor) -> Tensor:
        """N x ... -> B x T x ... with zeros at padding."""
        if not self.without_padding:
            rows = Put.apply(rows, self.index, self.batch * self.length)
        return rows.view(self.batch, self.length, *rows.shape[1:])


class Memory(NamedTuple):
    """The encoder's output as rows, N' x C, and their layout."""

    rows: Tensor
    at: Layout


def pack_memory(encoder_out: Tensor, padding_mask: Optional[Tensor]) -> Memory:
    """Pack the encoder's output, T' x B x C; padding_mask: B x T', True at padding, or None."""
    x = encoder_out.transpose(0, 1)
    if padding_mask is None:
        padding_mask = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
    packing = Packing(~padding_mask.bool())
    return Memory(packing.pack(x), packing)


def embed_rows(side: Any, tokens: Tensor, positions: Callable[[], Tensor]) -> Tensor:
    """The input of the first layer of fairseq's encoder or decoder, for tokens in any layout.

    Args:
        side: the encoder or decoder.
        tokens: integers of any shape.
        positions: computes position embeddings, ... x d, if there are any.
    """
    x = side.embed_scale * side.embed_tokens(tokens)
    if getattr(side, "project_in_dim", None) is not None:
        x = side.project_in_dim(x)
    if side.embed_positions is not None:
        x = x + positions()
    if side.layernorm_embedding is not None:
        x = side.layernorm_embedding(x)
    return side.dropout_module(x)


def decode_rows(
    decoder: Any,
    x: Tensor,
    at: Layout,
    memory: Optional[Memory],
    alignment_layer: Optional[int] = None,
    alignment_heads: Optional[int] = None,
) -> Tuple[Tensor, Optional[Tensor]]:
    """Run the layers of a decoder that `has_standard_layers`; returns its features.

    Args:
        decoder: fairseq's decoder, or one with other layers or networks.
        x: N x d, embedded target positions; at: their layout.
        memory: the encoder's output, or None.
        alignment_layer, alignment_heads: the layer and the number of its first heads whose
            attention to the source is returned.

    Returns:
        N x C, and N x T' or None.
    """
    attention: Optional[Tensor] = None
    for number, layer in enumerate(decoder.layers):
        need = number == alignment_layer
        x, weights = packed_layer(layer, x, at, memory, need, alignment_heads)
        attention = attention if weights is None else weights
    if decoder.layer_norm is not None:
        x = decoder.layer_norm(x)
    if decoder.project_out_dim is not None:
        x = decoder.project_out_dim(x)
    return x, attention


def packed_layer(
    layer: TransformerDecoderLayerBase,
    x: Tensor,
    at: Layout,
    memory: Optional[Memory],
    need_weights: bool = False,
    weight_heads: Optional[int] = None,
) -> Tuple[Tensor, Optional[Tensor]]:
    """The forward of a decoder layer in training, with causal self-attention.

    If fairseq's `checkpoint_wrapper` wraps the layer, backward recomputes its activations.

    Args:
        layer: of a decoder that `has_standard_layers`.
        x: N x d, the real target positions.
        at: their layout.
        memory: the encoder's output, or None.
        need_weights: whether to return the weights of cross-attention.
        weight_heads: average the weights over this many of the first heads; None for all.

    Returns:
        N x d, and the weights or None: N x T', zero at padding of the source. T' is the length of
        the padded source, or without `Packing` the width of its layout's grid.
    """
    rows = None if memory is None else memory.rows
    source = None if memory is None else memory.at

    def run(x: Tensor, rows: Optional[Tensor]) -> Tuple[Tensor, Optional[Tensor]]:
        return _run(layer, x, at, rows, source, need_weights, weight_heads)

    if hasattr(layer, "precheckpoint_forward"):
        return checkpoint_wrapper(SimpleNamespace(forward=run)).forward(x, rows)
    return run(x, rows)


def _run(
    layer: TransformerDecoderLayerBase,
    x: Tensor,
    at: Layout,
    memory: Optional[Tensor],
    source: Optional[Layout],
    need_weights: bool,
    weight_heads: Optional[int],
) -> Tuple[Tensor, Optional[Tensor]]:
    def attend_target(x: Tensor) -> Tuple[Tensor, Optional[Tensor]]:
        return _attend(layer.self_attn, x, at, x, at, causal=True)

    def attend_source(x: Tensor) -> Tuple[Tensor, Optional[Tensor]]:
        assert memory is not None and source is not None
        attention = layer.encoder_attn
        return _attend(attention, x, at, memory, source, False, need_weights, weight_heads)

    reads_source = layer.encoder_attn is not None and memory is not None
    return run_decoder_layer(layer, x, attend_target, attend_source if reads_source else None)


def _attend(
    attention: MultiheadAttention,
    x: Tensor,
    at: Layout,
    memory: Tensor,
    source: Layout,
    causal: bool = False,
    need_weights: bool = False,
    weight_heads: Optional[int] = None,
) -> Tuple[Tensor, Optional[Tensor]]:
    out, weights = attention_on_rows(attention, x, at, memory, source, causal, need_weights)
    if weights is None:
        return out, None
    grid = at.from_grid(weights[:, :weight_heads].mean(dim=1))  # N x width
    if not isinstance(source, Packing):
        return out, grid
    assert isinstance(at, Packing)
    # from the columns of the grid to the positions of the source
    grid = grid.gather(1, source.rank[at.sentence])
    return out, grid.masked_fill(~source.real[at.sentence], 0.0)
