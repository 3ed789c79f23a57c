"""Linear attention (Katharopoulos et al. 2020, arXiv 2006.16236), as an encoder has it."""

from typing import Any, Optional

import torch
from fairseq.modules.quant_noise import quant_noise
from torch import Tensor, nn

from .token_mixer import MixerSpec, TokenMixer, register_token_mixer


@register_token_mixer("linear")
class LinearAttention(TokenMixer):
    """Attention whose weights are products of features, so that sums over keys come first.

    Per head of size s, with phi(x) = elu(x) + 1 for each feature (equations 5 and 7)::

        out_i = phi(q_i) (sum_j phi(k_j) v_j^T) / (phi(q_i) . sum_j phi(k_j) + 1e-6)

    q comes from `x`, k and v from `memory`; heads are concatenated and projected as in softmax
    attention. Time and memory are linear in length: d s multiply-adds a position for each sum.
    There are no weights that --attention-dropout could act on.

    Shape and masks: as every token mixer's. Sums over keys are in float32 at least.
    """

    def __init__(self, spec: MixerSpec, options: Any = None):
        super().__init__()
        self.num_heads = spec.num_heads
        self.epsilon = 1e-6  # of the authors' code; a sentence of padding alone has no keys
        dim, noise = spec.embed_dim, (spec.q_noise, spec.qn_block_size)
        self.q_proj = quant_noise(nn.Linear(dim, dim), *noise)
        self.k_proj = quant_noise(nn.Linear(spec.memory_dim, dim), *noise)
        self.v_proj = quant_noise(nn.Linear(spec.memory_dim, dim), *noise)
        self.out_proj = quant_noise(nn.Linear(dim, dim), *noise)
        for projection in (self.q_proj, self.k_proj, self.v_proj):  # as fairseq's attention
            nn.init.xavier_uniform_(projection.weight, gain=2**-0.5)
        nn.init.xavier_uniform_(self.out_proj.weight)
        nn.init.zeros_(self.out_proj.bias)

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        padding_mask: Optional[Tensor] = None,
        memory_padding_mask: Optional[Tensor] = None,
    ) -> Tensor:
        q = self._features(self.q_proj(x))  # T x B x h x s
        k = self._features(self.k_proj(memory))  # T' x B x h x s
        v = self._heads(self.v_proj(memory))
        if memory_padding_mask is not None:
            padding = memory_padding_mask.t()[:, :, None, None]
            k, v = k.masked_fill(padding, 0.0), v.masked_fill(padding, 0.0)
        if v.dtype != torch.float64:
            v = v.float()
        summary = torch.einsum("tbhi,tbho->bhio", k, v)
        total = torch.einsum("tbhi,bhi->tbh", q, k.sum(dim=0)) + self.epsilon
        out = torch.einsum("tbhi,bhio->tbho", q, summary) / total.unsqueeze(-1)
        return self.out_proj(out.flatten(2).type_as(x))

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(x.size(0), x.size(1), self.num_heads, -1)

    def _features(self, x: Tensor) -> Tensor:
        """phi, in float32 at least."""
        if x.dtype != torch.float64:
            x = x.float()
        return nn.functional.elu(self._heads(x)) + 1.0
