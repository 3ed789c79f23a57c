"""FAVOR+ attention of the Performer, linear in length (Choromanski et al., ICLR 2021)."""

from dataclasses import dataclass

import torch
from fairseq.dataclass import FairseqDataclass
from torch import Tensor

from fairseq_plugins.layers.masking import Mask, hide
from fairseq_plugins.layers.token_mixer import MixerSpec, register_token_mixer
from fairseq_plugins.options.fields import option

from .multi_head import Float32Mixer


@dataclass
class PerformerOptions(FairseqDataclass):
    features: int = option(256, "random features of each Performer head", least=1, most=2**16)


@register_token_mixer("performer", PerformerOptions)
class Performer(Float32Mixer):
    """Estimate of softmax attention from positive orthogonal random features (FAVOR+).

    With m features w_1 .. w_m, and q and k divided by s^(1/4) (lemma 1 and section 2.4)::

        phi(x) = exp(-|x|^2 / 2) / sqrt(m) [exp(w_1 . x), ..., exp(w_m . x)]
        out_i  = phi(q_i) (sum_j phi(k_j) v_j') / (phi(q_i) . sum_j phi(k_j))

    The w are Gaussian vectors, orthogonal in groups of s. --seed determines them, and a checkpoint
    stores them as a buffer. All heads of a layer share them. Unlike in section 4.2, they are drawn
    once.

    To avoid overflow, exponents of keys are reduced by their maximum over the keys (for each
    feature), and exponents of queries by their maximum over the features. Both cancel in the
    quotient, and the denominator is then at least 1. The published code subtracts one maximum for
    all keys, and adds 1e-6 to each feature to avoid zeros.

    Time O((T + S) m d), memory O((T + S) m h), beside the projections. There are no attention
    weights, so --attention-dropout does nothing.

    Options:
        features: m.
    """

    drops_weights = False

    directions: Tensor

    def __init__(self, spec: MixerSpec, options: PerformerOptions | None = None):
        super().__init__(spec)
        options = options or PerformerOptions()
        generator = torch.Generator().manual_seed(int(torch.randint(2**31, (1,))))
        drawn = orthogonal_features(options.features, self.head_dim, generator)
        self.register_buffer("directions", drawn.to(torch.get_default_dtype()))

    def combine(
        self, q: Tensor, k: Tensor, v: Tensor, padding_mask: Mask, memory_padding_mask: Mask
    ) -> Tensor:
        scale = self.head_dim**-0.25
        q, k = q * scale, k * scale
        directions = self.directions.to(q.dtype).t()
        # without |q_i|^2 / 2, which cancels in the quotient
        query_exponents = torch.matmul(q, directions)  # B x h x T x m
        key_exponents = torch.matmul(k, directions) - k.pow(2).sum(dim=-1, keepdim=True) / 2
        hidden: Tensor | None = None
        if memory_padding_mask is not None:
            hidden = memory_padding_mask.unsqueeze(1).unsqueeze(-1)
            key_exponents = hide(key_exponents, hidden)
        largest = key_exponents.detach().amax(dim=2, keepdim=True)  # B x h x 1 x m
        phi_k = torch.exp(key_exponents - largest)
        if hidden is not None:
            phi_k = phi_k.masked_fill(hidden, 0.0)
        query_exponents = query_exponents + largest
        phi_q = torch.exp(query_exponents - query_exponents.detach().amax(dim=-1, keepdim=True))

        total = torch.matmul(phi_q, phi_k.sum(dim=2).unsqueeze(-1))  # B x h x T x 1
        total = total.masked_fill(total == 0, 1.0)  # the memory may be all padding
        summed = torch.matmul(phi_k.transpose(2, 3), v)  # B x h x m x s
        return torch.matmul(phi_q, summed) / total


def orthogonal_features(count: int, size: int, generator: torch.Generator) -> Tensor:
    """count x size: Gaussian vectors, orthogonal in groups of `size`."""

    def gaussian(rows: int) -> Tensor:
        return torch.randn(rows, size, generator=generator, dtype=torch.float64)

    groups = []
    for _ in range(-(-count // size)):
        basis, triangle = torch.linalg.qr(gaussian(size))
        # fix the signs: those of LAPACK would give the vectors a non-zero mean
        groups.append((basis * triangle.diagonal().sign()).t())
    return torch.cat(groups)[:count] * gaussian(count).norm(dim=1, keepdim=True)
