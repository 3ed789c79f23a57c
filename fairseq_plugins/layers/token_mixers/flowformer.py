"""Flow attention, linear in length (Flowformer: Wu et al., ICML 2022)."""

import torch
from torch import Tensor

from fairseq_plugins.layers.masking import Mask, hide
from fairseq_plugins.layers.token_mixer import register_token_mixer

from .multi_head import Float32Mixer


@register_token_mixer("flowformer")
class Flowformer(Float32Mixer):
    """Attention as flow conservation: sources compete, and flow is allocated to sinks.

    Per head, with phi the sigmoid, n sinks (queries) and m sources (keys), equations 4 to 8, where
    e = 1e-6 is added to both sides of each dot product::

        I_i  = phi(q_i) . sum_j phi(k_j)          flow into sink i
        O_j  = phi(k_j) . sum_i phi(q_i)          flow out of source j
        I^_i = phi(q_i) . sum_j phi(k_j) / O_j    when each source sends a flow of 1
        O^_j = phi(k_j) . sum_i phi(q_i) / I_i    when each sink receives a flow of 1
        v^_j = m softmax_j(O^_j) v_j              competition
        out_i = sigmoid(n / m I^_i) phi(q_i) / I_i (sum_j phi(k_j) v^_j')    aggregation, allocation

    The factors m and n / m and e come from the published code, not from the paper. Without m the
    result would shrink with length; without e gradients overflow once all features of a head are
    below -40. Flows are in float32 at least.

    Difference from that code: it clips O^ to [-1, 1], which changes outputs by 2 to 5 % when
    training begins.

    Time O((T + S) d s), memory O((T + S) d), beside the projections. There are no attention
    weights, so --attention-dropout does nothing.
    """

    drops_weights = False

    def combine(
        self, q: Tensor, k: Tensor, v: Tensor, padding_mask: Mask, memory_padding_mask: Mask
    ) -> Tensor:
        q, sinks = _positive(q, padding_mask)
        k, sources = _positive(k, memory_padding_mask)
        incoming = _flow(q, k)  # B x h x T x 1
        outgoing = _flow(k, q)  # B x h x S x 1
        conserved_in = _flow(q, k / outgoing)
        conserved_out = _flow(k, q / incoming)
        if memory_padding_mask is not None:
            hidden = memory_padding_mask.unsqueeze(1).unsqueeze(-1)
            conserved_out = hide(conserved_out, hidden)
        competing = v * torch.softmax(conserved_out, dim=2) * sources
        aggregated = torch.matmul(q / incoming, torch.matmul(k.transpose(2, 3), competing))
        allocation = torch.sigmoid(conserved_in * sinks / sources.clamp(min=1.0))
        return allocation * aggregated


def _positive(x: Tensor, padding_mask: Mask) -> tuple[Tensor, Tensor]:
    """phi of B x h x T x s, zero at padding, and the number of real positions, B x 1 x 1 x 1."""
    phi = torch.sigmoid(x)
    lengths = torch.full([x.size(0), 1, 1, 1], x.size(2), dtype=x.dtype, device=x.device)
    if padding_mask is not None:
        phi = phi.masked_fill(padding_mask.unsqueeze(1).unsqueeze(-1), 0.0)
        lengths = (~padding_mask).sum(dim=1).view(-1, 1, 1, 1).to(x.dtype)
    return phi, lengths


def _flow(phi: Tensor, others: Tensor) -> Tensor:
    """The flow between each row of B x h x T x s and all others: B x h x T x 1, never zero."""
    epsilon = 1e-6
    total = others.sum(dim=2, keepdim=True) + epsilon
    return ((phi + epsilon) * total).sum(dim=-1, keepdim=True)
