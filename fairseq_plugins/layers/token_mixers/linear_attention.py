"""Linear attention for encoders (Katharopoulos et al. 2020, arXiv 2006.16236)."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_plugins.layers.masking import Mask
from fairseq_plugins.layers.token_mixer import MixerSpec, register_token_mixer

from .multi_head import Float32Mixer


@register_token_mixer("linear")
class LinearAttention(Float32Mixer):
    """Attention with a kernel feature map instead of softmax; sums over keys are computed first.

    Per head of size s, with phi(x) = elu(x) + 1 for each feature (equations 5 and 7)::

        out_i = phi(q_i) (sum_j phi(k_j) v_j^T) / (phi(q_i) . sum_j phi(k_j) + 1e-6)

    Time and memory are linear in length: 2 d s multiply-adds per position beside the projections.
    There are no attention weights, so --attention-dropout does nothing. Sums are in float32 at
    least.
    """

    drops_weights = False

    def __init__(self, spec: MixerSpec, options: Any = None):
        super().__init__(spec)
        self.epsilon = 1e-6  # as in the authors' code; a sentence of padding only has no keys

    def combine(
        self, q: Tensor, k: Tensor, v: Tensor, padding_mask: Mask, memory_padding_mask: Mask
    ) -> Tensor:
        q, k = F.elu(q) + 1.0, F.elu(k) + 1.0
        if memory_padding_mask is not None:
            k = k.masked_fill(memory_padding_mask[:, None, :, None], 0.0)
        summary = torch.matmul(k.transpose(2, 3), v)  # B x h x s x s
        total = torch.matmul(q, k.sum(dim=2).unsqueeze(-1)) + self.epsilon  # B x h x T x 1
        return torch.matmul(q, summary) / total
