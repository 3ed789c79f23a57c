"""Poolingformer: a window, then a larger window of pooled keys (Zhang et al., ICML 2021)."""

import math
from dataclasses import dataclass

import torch
from fairseq.dataclass import FairseqDataclass
from torch import Tensor, nn

from fairseq_plugins.layers.masking import Mask
from fairseq_plugins.layers.token_mixer import MixerSpec, register_token_mixer
from fairseq_plugins.options.fields import option

from .multi_head import MultiHeadMixer, masked_softmax, real_lengths
from .windows import WindowAttention, window_positions, windows


@dataclass
class PoolingformerOptions(FairseqDataclass):
    window: int = option(
        64, "window of Poolingformer's first level, half of it on each side", least=2, odd=False
    )
    pooling_window: int = option(
        256, "window of Poolingformer's second level, on pooled keys", least=2, odd=False
    )
    kernel: int = option(
        5, "positions that Poolingformer pools into one, odd", least=1, most=1001, odd=True
    )
    stride: int = option(4, "positions between Poolingformer's pooled keys", least=1)


@register_token_mixer("poolingformer", PoolingformerOptions)
class Poolingformer(MultiHeadMixer):
    """Two levels: attention to a small window, then to pooled keys and values of a larger one.

    With windows of w and w2, kernel c and stride z (section 3)::

        y_i   = softmax_j(q_i . k_j / sqrt(s)) v_j            over |i - j| <= w / 2
        Q', K', V' = projections of y
        K~_m  = pool(k'_(mz - c//2), ..., k'_(mz + c//2)), and V~_m from v'
        z_i   = softmax_m(q'_i . K~_m / sqrt(s)) V~_m         over |i - m z| <= w2 / 2
        out_i = W (y_i + z_i) + b

    pool is the paper's best one, lightweight dynamic convolution: ``sum_t delta_t k'_t`` with
    ``delta = softmax(W_p k'_(mz))`` from the middle of the pooled positions. Positions beyond the
    sentence get weight zero.

    Assumed, as the authors published no code: W_p is c x s for each head, one for keys and one for
    values; the second level has projections of its own for each head and reads the output of the
    first, not memory.

    The paper pools the window of each query on its own grid. Here one grid, which begins at the
    first real token, serves all queries. In the first level a pooled query covers the `time_window`
    positions of memory that it was pooled from, and sees w / 2 positions beyond them on both sides.
    The paper's global tokens (the question, in question answering) are not implemented.

    Time O(T (w + w2 / z + c) d), memory O(T (w + w2 / z) h + T c d / z), beside the projections.

    Options:
        window, pooling_window: w and w2, even.
        kernel: c, odd.
        stride: z.
    """

    def __init__(self, spec: MixerSpec, options: PoolingformerOptions | None = None):
        super().__init__(spec, counts_positions=True)
        options = options or PoolingformerOptions()
        self.kernel, self.stride = options.kernel, options.stride
        self.window = WindowAttention(
            options.window // 2, ratio=spec.time_window, dropout=spec.dropout
        )
        self.pooling_window = WindowAttention(
            options.pooling_window // 2, stride=options.stride, dropout=spec.dropout
        )
        self.pooled_q_proj = self.projection(spec.embed_dim, spec.embed_dim)
        self.pooled_k_proj = self.projection(spec.embed_dim, spec.embed_dim)
        self.pooled_v_proj = self.projection(spec.embed_dim, spec.embed_dim)
        size = (spec.num_heads, options.kernel, self.head_dim)
        self.key_pooling = nn.Parameter(torch.empty(size).normal_(std=self.scaling))  # W_p
        self.value_pooling = nn.Parameter(torch.empty(size).normal_(std=self.scaling))

    def length_multiple(self) -> int:
        return math.lcm(self.window.length_multiple(), self.pooling_window.length_multiple())

    def mix(
        self, x: Tensor, memory: Tensor, padding_mask: Mask, memory_padding_mask: Mask
    ) -> Tensor:
        q = self.split(self.q_proj(x)) * self.scaling
        k, v = self.split(self.k_proj(memory)), self.split(self.v_proj(memory))
        y = self.window(q, k, v, real_lengths(memory, memory_padding_mask))

        merged = self.merge(y)
        lengths = real_lengths(x, padding_mask)
        q = self.split(self.pooled_q_proj(merged)) * self.scaling
        k = self._pool(self.split(self.pooled_k_proj(merged)), self.key_pooling, lengths)
        v = self._pool(self.split(self.pooled_v_proj(merged)), self.value_pooling, lengths)
        return y + self.pooling_window(q, k, v, (lengths + self.stride - 1) // self.stride)

    def _pool(self, x: Tensor, weight: Tensor, lengths: Tensor) -> Tensor:
        """B x h x T x s -> B x h x ceil(T / stride) x s."""
        kernel, stride = self.kernel, self.stride
        middles = x[:, :, ::stride]  # B x h x n x s
        count = middles.size(2)
        positions = window_positions(count, stride, kernel // 2, kernel, x.device)  # n x kernel
        hidden = (positions < 0) | (positions >= lengths.view(-1, 1, 1))  # B x n x kernel
        scores = torch.matmul(middles, weight.transpose(1, 2).type_as(x))  # B x h x n x kernel
        delta = masked_softmax(scores, hidden.unsqueeze(1))
        return (windows(x, count, stride, kernel // 2, kernel) * delta.unsqueeze(3)).sum(dim=-1)
