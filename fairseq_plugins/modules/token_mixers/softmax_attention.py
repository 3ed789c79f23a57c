"""Scaled dot-product attention with fairseq's parameters, behind the interface of a token mixer."""

from typing import Optional

import torch
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from fairseq_plugins.modules.attention import attend, fused_pays


class SoftmaxAttention(nn.Module):
    """``softmax(Q K^T / sqrt(s)) V`` per head, queries from `x`, keys and values from `memory`.

    Args:
        embed_dim: d, size of `x` and of the result.
        num_heads: h, a divisor of d.
        memory_dim: size of `memory` (default d). TransformerFTC queries a memory of the previous
            block's size with the pooled sequence (section 3.2.1).
        self_attention: whether `memory` is always `x` itself.
        dropout: on the attention weights.
        q_noise, qn_block_size: fairseq's quantisation noise on the projections.
        xformers_att_config: passed on to fairseq.
        fast: in training, `attend` in the place of fairseq's computation where torch's fused
            attention does not pay, as on a CPU with dropout or in half precision. Equal but for the
            order of additions and the random stream.

    Shape:
        x: T x B x d; memory: T' x B x memory_dim; memory_padding_mask: B x T', True at padding,
        or None; result: T x B x d. `padding_mask`, that of x, is not needed: no position reads
        another's query.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        memory_dim: Optional[int] = None,
        self_attention: bool = True,
        dropout: float = 0.0,
        q_noise: float = 0.0,
        qn_block_size: int = 8,
        xformers_att_config: Optional[str] = None,
        fast: bool = False,
    ):
        super().__init__()
        self.fast = fast
        # only name what is asked for: fairseq 0.12.2 and its successors order these differently,
        # and the first does not know xformers_att_config in every build
        extra = {} if xformers_att_config is None else {"xformers_att_config": xformers_att_config}
        self.attention = MultiheadAttention(
            embed_dim,
            num_heads,
            kdim=memory_dim,
            vdim=memory_dim,
            dropout=dropout,
            self_attention=self_attention,
            q_noise=q_noise,
            qn_block_size=qn_block_size,
            **extra,
        )

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        padding_mask: Optional[Tensor] = None,
        memory_padding_mask: Optional[Tensor] = None,
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
    def _attend(self, x: Tensor, memory: Tensor, padding_mask: Optional[Tensor]) -> Tensor:
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
