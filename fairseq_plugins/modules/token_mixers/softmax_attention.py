"""Scaled dot-product attention: fairseq's own, behind the interface of a token mixer."""

from typing import Optional

from fairseq.modules import MultiheadAttention
from torch import Tensor, nn


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
    ):
        super().__init__()
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
        return self.attention(
            query=x,
            key=memory,
            value=memory,
            key_padding_mask=memory_padding_mask,
            need_weights=False,
        )[0]
