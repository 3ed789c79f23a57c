"""Scaled dot-product attention as a token mixer, with fairseq's parameters."""

from typing import Any

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor

from fairseq_plugins.layers.attention import attend, fused_pays
from fairseq_plugins.layers.masking import Mask
from fairseq_plugins.layers.packed import Layout, packed_attention
from fairseq_plugins.layers.token_mixer import MixerSpec, TokenMixer, register_token_mixer


@register_token_mixer("softmax")
class SoftmaxAttention(TokenMixer):
    """``softmax(Q K^T / sqrt(s)) V`` per head, queries from `x`, keys and values from `memory`.

    Vaswani et al. 2017, equation 1. Time O(T T' d), beside the projections.

    Training on the fast path (--training-path) uses `attend` instead of fairseq's computation if
    torch's fused attention is not the fastest: on a CPU with dropout or in half precision. Only the
    order of additions and the random stream differ.

    Shape:
        x: T x B x d; memory: T' x B x memory_dim; memory_padding_mask: B x T', True at padding,
        or None; result: T x B x d. `padding_mask` is not used: no position reads another's query.
    """

    is_linear = False

    def __init__(self, spec: MixerSpec, options: Any = None):
        super().__init__()
        self.fast = spec.fast
        self.attention = MultiheadAttention(
            spec.embed_dim,
            spec.num_heads,
            kdim=spec.memory_dim,
            vdim=spec.memory_dim,
            dropout=spec.dropout,
        )

    def forward(
        self, x: Tensor, memory: Tensor, padding_mask: Mask = None, memory_padding_mask: Mask = None
    ) -> Tensor:
        if not torch.jit.is_scripting():
            if self.fast and self.training and not fused_pays(x, self.attention.dropout_module.p):
                return self._attend(x, memory, memory_padding_mask)
        return self.attention(
            query=x,
            key=memory,
            value=memory,
            key_padding_mask=memory_padding_mask,
            need_weights=False,
        )[0]

    @torch.jit.unused
    def forward_packed(self, x: Tensor, at: Layout, memory: Tensor, memory_at: Layout) -> Tensor:
        return self.attention.out_proj(
            packed_attention(self.attention, x, at, memory, memory_at)[0]
        )

    @torch.jit.unused
    def _attend(self, x: Tensor, memory: Tensor, padding_mask: Mask) -> Tensor:
        attention = self.attention

        def heads(projected: Tensor) -> Tensor:  # T x B x d -> B x h x T x s
            length, batch, dim = projected.shape
            split = projected.view(length, batch, attention.num_heads, -1)
            return split.permute(1, 2, 0, 3)

        mask = None if padding_mask is None else padding_mask.bool()[:, None, None, :]
        mixed = attend(
            heads(attention.q_proj(x)),
            heads(attention.k_proj(memory)),
            heads(attention.v_proj(memory)),
            mask,
            False,
            attention.dropout_module,
        )
        return attention.out_proj(mixed.permute(2, 0, 1, 3).flatten(2))
