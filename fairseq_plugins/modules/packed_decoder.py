"""Decoder layers that compute only real target positions, for training.

fairseq's decoder computes all B x T positions, padding included. Here projections, feed-forward
networks, LayerNorm, dropout and residuals act on the N real positions, N x C. Only attention pads
the B sentences to equal width. Layers and weights are fairseq's; results differ by the order of
additions.
"""

from types import SimpleNamespace
from typing import Any, NamedTuple, Optional, Tuple

import torch
from fairseq.modules import MultiheadAttention
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from torch import Tensor

from .attention import attend, attend_plainly
from .compilation import can_compile, compiled, is_captured
from .decoder_layer import run_decoder_layer


class Packing:
    """Index of the real positions of a batch, in three layouts.

    - batch: B x T x C, as given, with padding on any side;
    - packed: N x C, the real positions of all sentences;
    - grid: B x width x C, every sentence from the start of its row, width the longest sentence.

    Args:
        real: B x T, True at real positions.
        shortcuts: skip copies if there is no padding. Compiled layers set this to False, because
            each shortcut would need another compiled version.
    """

    def __init__(self, real: Tensor, shortcuts: bool = True):
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
        self.full = shortcuts and self.index.numel() == self.batch * self.width
        self.without_padding = shortcuts and self.index.numel() == real.numel()

    def pack(self, x: Tensor) -> Tensor:
        """B x T x C -> N x C."""
        x = x.reshape(-1, x.size(-1))
        return x if self.without_padding else _Take.apply(x, self.index)

    def unpack(self, rows: Tensor) -> Tensor:
        """N x ... -> B x T x ... with zeros at padding."""
        if not self.without_padding:
            rows = _Put.apply(rows, self.index, self.batch * self.length)
        return rows.view(self.batch, self.length, *rows.shape[1:])

    def to_grid(self, rows: Tensor) -> Tensor:
        """N x C -> B x width x C, with zeros after the end of each sentence."""
        if not self.full:
            rows = _Put.apply(rows, self.grid_index, self.batch * self.width)
        return rows.view(self.batch, self.width, -1)

    def from_grid(self, grid: Tensor) -> Tensor:
        """B x width x C -> N x C."""
        grid = grid.reshape(self.batch * self.width, -1)
        return grid if self.full else _Take.apply(grid, self.grid_index)


def take_rows(x: Tensor, index: Tensor) -> Tensor:
    """The rows `index` of x, in ascending order and each once; x itself if these are all rows."""
    return x if index.numel() == x.size(0) else _Take.apply(x, index)


class _Take(torch.autograd.Function):
    """Take distinct rows. index_select's own backward would add them one by one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.size = x.size(0)
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        (index,) = ctx.saved_tensors
        return _Put.apply(grad, index, ctx.size), None


class _Put(torch.autograd.Function):
    """The inverse of `_Take`: put rows into a zero tensor of `size` rows."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: Tensor, size: int) -> Tensor:
        ctx.save_for_backward(index)
        empty = rows.new_zeros(size, *rows.shape[1:])
        if is_captured():  # torch 2.11 drops the gradient of a result that was changed in place
            return empty.index_copy(0, index, rows)
        return empty.index_copy_(0, index, rows)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        (index,) = ctx.saved_tensors
        return _Take.apply(grad, index), None, None


class Memory(NamedTuple):
    """The encoder's output: its real positions, N' x C, and their packing."""

    rows: Tensor
    packing: Packing


def pack_memory(
    encoder_out: Tensor, padding_mask: Optional[Tensor], shortcuts: bool = True
) -> Memory:
    """Pack the encoder's output, T' x B x C; padding_mask: B x T', True at padding, or None."""
    x = encoder_out.transpose(0, 1)
    if padding_mask is None:
        padding_mask = torch.zeros(x.shape[:2], dtype=torch.bool, device=x.device)
    packing = Packing(~padding_mask.bool(), shortcuts)
    return Memory(packing.pack(x), packing)


def packed_layer(
    layer: TransformerDecoderLayerBase,
    x: Tensor,
    packing: Packing,
    memory: Optional[Memory],
    need_weights: bool = False,
    weight_heads: Optional[int] = None,
    compile_training: bool = False,
) -> Tuple[Tensor, Optional[Tensor]]:
    """The forward of a decoder layer in training, with causal self-attention.

    If fairseq's `checkpoint_wrapper` wraps the layer, backward recomputes its activations.

    Args:
        layer: of a decoder that `has_standard_layers`.
        x: N x d, the real target positions.
        packing: where these positions are in the batch.
        memory: the encoder's output, or None.
        need_weights: whether to return the weights of cross-attention.
        weight_heads: average the weights over so many of the first heads; None for all.
        compile_training: compute with torch.compile.

    Returns:
        N x d, and the weights or None: N x T', zero at padding of the source.
    """
    rows = None if memory is None else memory.rows
    source = None if memory is None else memory.packing

    def run(x: Tensor, rows: Optional[Tensor]) -> Tuple[Tensor, Optional[Tensor]]:
        compute = compiled(_run) if compile_training and can_compile(x) else _run
        return compute(layer, x, packing, rows, source, need_weights, weight_heads)

    if hasattr(layer, "precheckpoint_forward"):
        return checkpoint_wrapper(SimpleNamespace(forward=run)).forward(x, rows)
    return run(x, rows)


def _run(
    layer: TransformerDecoderLayerBase,
    x: Tensor,
    packing: Packing,
    memory: Optional[Tensor],
    source: Optional[Packing],
    need_weights: bool,
    weight_heads: Optional[int],
) -> Tuple[Tensor, Optional[Tensor]]:
    def attend_target(x: Tensor) -> Tuple[Tensor, Optional[Tensor]]:
        return _attend(layer.self_attn, x, packing, x, packing, causal=True)

    def attend_source(x: Tensor) -> Tuple[Tensor, Optional[Tensor]]:
        assert memory is not None and source is not None
        attention = layer.encoder_attn
        return _attend(attention, x, packing, memory, source, False, need_weights, weight_heads)

    reads_source = layer.encoder_attn is not None and memory is not None
    return run_decoder_layer(layer, x, attend_target, attend_source if reads_source else None)


def _attend(
    attention: MultiheadAttention,
    x: Tensor,
    packing: Packing,
    memory: Tensor,
    source: Packing,
    causal: bool = False,
    need_weights: bool = False,
    weight_heads: Optional[int] = None,
) -> Tuple[Tensor, Optional[Tensor]]:
    def heads(rows: Tensor, at: Packing) -> Tensor:
        grid = at.to_grid(rows)
        return grid.view(at.batch, at.width, attention.num_heads, -1).transpose(1, 2)

    query = heads(attention.q_proj(x), packing)  # B x h x T x s
    key = heads(attention.k_proj(memory), source)
    value = heads(attention.v_proj(memory), source)
    mask: Optional[Tensor] = None
    if not causal and not source.full:
        # causal attention needs no mask: in the grid, padding comes last
        mask = source.grid_padding[:, None, None, :]
    weights: Optional[Tensor] = None
    if need_weights:
        mixed, weights = attend_plainly(query, key, value, mask, causal, attention.dropout_module)
    else:
        mixed = attend(query, key, value, mask, causal, attention.dropout_module)
    mixed = mixed.transpose(1, 2).reshape(packing.batch, packing.width, -1)
    out = attention.out_proj(packing.from_grid(mixed))
    if weights is None:
        return out, None
    # from the columns of the grid to the positions of the source
    grid = packing.from_grid(weights[:, :weight_heads].mean(dim=1))  # N x width
    grid = grid.gather(1, source.rank[packing.sentence])
    return out, grid.masked_fill(~source.real[packing.sentence], 0.0)
