"""Longformer: a sliding window and global tokens (Beltagy et al., arXiv 2004.05150)."""

from dataclasses import dataclass

import torch
from fairseq.dataclass import FairseqDataclass
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor

from fairseq_plugins.layers.masking import Mask
from fairseq_plugins.layers.token_mixer import MixerSpec, register_token_mixer
from fairseq_plugins.options.fields import option

from .multi_head import MultiHeadMixer, masked_softmax, real_lengths
from .windows import WindowAttention


@dataclass
class LongformerOptions(FairseqDataclass):
    window: int = option(64, "Longformer's window, half of it on each side", least=2, odd=False)
    global_tokens: int = option(
        1,
        "Longformer's global tokens: the first tokens of a sentence, which attend to all tokens "
        "and are attended to by all",
        least=1,
    )


@register_token_mixer("longformer", LongformerOptions)
class Longformer(MultiHeadMixer):
    """Softmax attention to a sliding window and to the first g tokens, which are global.

    For a window of w and g global tokens (section 3.1)::

        i >= g:  out_i = softmax_j(q_i . k_j / sqrt(s)) v_j    over |i - j| <= w / 2 and all j < g
        i < g:   out_i = softmax_j(q'_i . k'_j / sqrt(s)) v'_j over all j

    q', k', v' have their own projections ("linear projections for global attention"). A pooled
    query covers the `time_window` positions of memory that it was pooled from, and sees w / 2
    positions beyond them on both sides. Positions count from the first real token. Dilation and
    window sizes per layer are not implemented. The paper chooses global tokens by task; fairseq's
    encoders mark none, so the first ones are used. Fastformer's table 9 uses w = g = 64 for
    CNN/DailyMail and 8 for IMDB.

    Time O(T (w + g) d + S g d), memory O(T (w + g) h + S g h), beside the projections.

    Options:
        window: w, even, at least 2.
        global_tokens: g, at least 1.
    """

    def __init__(self, spec: MixerSpec, options: LongformerOptions | None = None):
        super().__init__(spec, counts_positions=True)
        options = options or LongformerOptions()
        self.global_tokens = options.global_tokens
        self.window = WindowAttention(
            options.window // 2,
            ratio=spec.time_window,
            first=options.global_tokens,
            dropout=spec.dropout,
        )
        self.global_q_proj = self.projection(spec.embed_dim, spec.embed_dim)
        self.global_k_proj = self.projection(spec.memory_dim, spec.embed_dim)
        self.global_v_proj = self.projection(spec.memory_dim, spec.embed_dim)
        self.dropout_module = FairseqDropout(spec.dropout, module_name=self.__class__.__name__)

    def length_multiple(self) -> int:
        return self.window.length_multiple()

    def mix(
        self, x: Tensor, memory: Tensor, padding_mask: Mask, memory_padding_mask: Mask
    ) -> Tensor:
        lengths = real_lengths(memory, memory_padding_mask)
        q = self.split(self.q_proj(x)) * self.scaling
        k, v = self.split(self.k_proj(memory)), self.split(self.v_proj(memory))
        local = self.window(q, k, v, lengths)

        q = self.split(self.global_q_proj(x[: self.global_tokens])) * self.scaling
        k, v = self.split(self.global_k_proj(memory)), self.split(self.global_v_proj(memory))
        hidden = torch.arange(k.size(2), device=k.device) >= lengths.view(-1, 1, 1, 1)
        weights = self.dropout_module(masked_softmax(torch.matmul(q, k.transpose(2, 3)), hidden))
        return torch.cat([torch.matmul(weights, v), local[:, :, self.global_tokens :]], dim=2)
