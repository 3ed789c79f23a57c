"""Summaries of additive attention: softmax-weighted sums over time."""

from typing import Any, Optional, Tuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fairseq_plugins.modules import kernels
from fairseq_plugins.modules.compilation import is_captured
from fairseq_plugins.modules.masking import at_least_float32, hide


def summarize(
    x: Tensor,
    directions: Tensor,
    padding_mask: Optional[Tensor],
    scaling: float,
    keep: Tensor,
) -> Tuple[Tensor, Tensor]:
    """``sum_t w_t x_t`` and ``sum_t w_t`` with ``w = keep * softmax_t(scaling * directions x_t)``.

    Outside TorchScript and torch.compile `Summaries` has the gradient, written by hand: one product
    instead of four passes over x. Results are the same to the bit. In half precision on a GPU,
    FAIRSEQ_PLUGINS_TRITON=1 replaces both directions by Triton kernels (`modules/kernels/`).

    Args:
        x: T x B x d, finite.
        directions: h x d, or B x h x d, in x's dtype.
        padding_mask: B x T, True at padding, or None. Padding gets weight zero; in a sentence of
            padding alone all weights are equal and finite.
        scaling: factor of the scores.
        keep: T x B x h, factors of the weights: ones, or ones after dropout.

    Returns:
        B x h x d and B x h x 1 in x's dtype; weights are normalised in float32 at least.
    """
    if torch.jit.is_scripting():
        return _summarize_plain(x, _weights(x, directions, padding_mask, scaling), keep)
    else:
        return _summarize_fast(x, directions, padding_mask, scaling, keep)


def _summarize_fast(
    x: Tensor,
    directions: Tensor,
    padding_mask: Optional[Tensor],
    scaling: float,
    keep: Tensor,
) -> Tuple[Tensor, Tensor]:
    if is_captured():
        return _summarize_plain(x, _weights(x, directions, padding_mask, scaling), keep)
    room = kernels.block(x.size(2)) * kernels.block(directions.size(-2)) <= kernels.MAX_SUMMARIES
    if room and x.numel() > 0 and kernels.usable(x):
        return _kernel(x, directions, padding_mask, scaling, keep)
    return Summaries.apply(x, directions, padding_mask, scaling, keep)


def _kernel(*arguments: Any) -> Tuple[Tensor, Tensor]:
    from fairseq_plugins.modules.kernels.summaries import KernelSummaries

    return KernelSummaries.apply(*arguments)


def _batched(directions: Tensor, bsz: int) -> Tensor:
    return directions if directions.dim() == 3 else directions.unsqueeze(0).expand(bsz, -1, -1)


def _weights(
    x: Tensor, directions: Tensor, padding_mask: Optional[Tensor], scaling: float
) -> Tensor:
    """The softmax of `summarize`: B x h x T, in float32 at least."""
    scores = torch.bmm(_batched(directions, x.size(1)), x.permute(1, 2, 0))
    scores = at_least_float32(scores) * scaling
    if padding_mask is not None:
        scores = hide(scores, padding_mask.unsqueeze(1))
    return torch.softmax(scores, dim=-1)


def _summarize_plain(x: Tensor, weights: Tensor, keep: Tensor) -> Tuple[Tensor, Tensor]:
    weights = (weights * keep.permute(1, 2, 0)).type_as(x)
    return torch.bmm(weights, x.transpose(0, 1)), weights.sum(dim=-1, keepdim=True)


class Summaries(torch.autograd.Function):
    """`summarize`, differentiable once: a second time is `once_differentiable`'s RuntimeError."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        directions: Tensor,
        padding_mask: Optional[Tensor],
        scaling: float,
        keep: Tensor,
    ) -> Tuple[Tensor, Tensor]:
        weights = _weights(x, directions, padding_mask, scaling)
        ctx.save_for_backward(x, directions, padding_mask, weights, keep)
        ctx.scaling = scaling
        return _summarize_plain(x, weights, keep)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, grad_sum: Tensor) -> Tuple[Optional[Tensor], ...]:
        x, directions, padding_mask, weights, keep = ctx.saved_tensors
        directions_of = _batched(directions, x.size(1))
        keep = keep.permute(1, 2, 0)
        grad_weights = (torch.bmm(grad, x.permute(1, 2, 0)) + grad_sum).type_as(weights) * keep
        mean = (grad_weights * weights).sum(dim=-1, keepdim=True)
        grad_scores = (weights * (grad_weights - mean) * ctx.scaling).type_as(x)
        if padding_mask is not None:
            grad_scores = grad_scores.masked_fill(padding_mask.unsqueeze(1), 0.0)
        # one product adds both gradients of x: through the scores, and through the sum
        left = torch.cat([grad_scores, (weights * keep).type_as(x)], dim=1)
        grad_x = torch.empty_like(x)
        right = torch.cat([directions_of, grad], dim=1)
        torch.bmm(left.transpose(1, 2), right, out=grad_x.transpose(0, 1))
        grad_directions = torch.bmm(grad_scores, x.transpose(0, 1))
        if directions.dim() == 2:
            grad_directions = grad_directions.sum(dim=0)
        return grad_x, grad_directions, None, None, None
