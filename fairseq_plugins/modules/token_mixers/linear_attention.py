"""Linear attention for encoders (Katharopoulos et al. 2020, arXiv 2006.16236)."""

from typing import Any, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from .multi_head import MultiHeadMixer
from .token_mixer import MixerSpec, register_token_mixer


@register_token_mixer("linear")
class LinearAttention(MultiHeadMixer):
    """Attention with a kernel feature map instead of softmax; sums over keys are computed first.

    Per head of size s, with phi(x) = elu(x) + 1 for each feature (equations 5 and 7)::

        out_i = phi(q_i) (sum_j phi(k_j) v_j^T) / (phi(q_i) . sum_j phi(k_j) + 1e-6)

    Time and memory are linear in length: 2 d s multiply-adds per position beside the projections.
    There are no attention weights, so --attention-dropout does nothing. Sums are in float32 at
    least.
    """

    def __init__(self, spec: MixerSpec, options: Any = None):
        super().__init__(spec)
        self.epsilon = 1e-6  # as in the authors' code; a sentence of padding alone has no keys

    def mix(
        self,
        x: Tensor,
        memory: Tensor,
        padding_mask: Optional[Tensor],
        memory_padding_mask: Optional[Tensor],
    ) -> Tensor:
        q, k = self.split(self.q_proj(x)), self.split(self.k_proj(memory))
        v = self.split(self.v_proj(memory))
        if torch.jit.is_scripting():
            return self._sums(q, k, v, memory_padding_mask)
        else:
            with torch.autocast(v.device.type, enabled=False):  # sums need float32
                return self._sums(q, k, v, memory_padding_mask)

    def _sums(
        self, q: Tensor, k: Tensor, v: Tensor, memory_padding_mask: Optional[Tensor]
    ) -> Tensor:
        dtype = torch.float64 if v.dtype == torch.float64 else torch.float32
        given, v = v, v.to(dtype)
        q = F.elu(q.to(dtype)) + 1.0  # B x h x T x s
        k = F.elu(k.to(dtype)) + 1.0  # B x h x T' x s
        if memory_padding_mask is not None:
            k = k.masked_fill(memory_padding_mask[:, None, :, None], 0.0)
        summary = torch.matmul(k.transpose(2, 3), v)  # B x h x s x s
        total = torch.matmul(q, k.sum(dim=2).unsqueeze(-1)) + self.epsilon  # B x h x T x 1
        return (torch.matmul(q, summary) / total).type_as(given)
