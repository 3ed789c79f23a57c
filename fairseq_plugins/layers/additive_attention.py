"""Fastformer's additive attention in plain torch, with a gradient written by hand."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fairseq_plugins.layers.masking import Mask, at_least_float32, hide


def _batched(directions: Tensor, bsz: int) -> Tensor:
    return directions if directions.dim() == 3 else directions.unsqueeze(0).expand(bsz, -1, -1)


def weights_of(x: Tensor, directions: Tensor, padding_mask: Mask, scaling: float) -> Tensor:
    """The softmax of `fastformer.attend_additively`: B x h x T, in float32 at least."""
    scores = torch.bmm(_batched(directions, x.size(1)), x.permute(1, 2, 0))
    scores = at_least_float32(scores) * scaling
    if padding_mask is not None:
        scores = hide(scores, padding_mask.unsqueeze(1))
    return torch.softmax(scores, dim=-1)


def weighted_sums(x: Tensor, weights: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
    """The sums of `fastformer.attend_additively`, given its softmax."""
    if keep is not None:
        weights = weights * keep.permute(1, 2, 0)
    weights = weights.type_as(x)
    return torch.bmm(weights, x.transpose(0, 1)), weights.sum(dim=-1, keepdim=True)


class WeightedSums(torch.autograd.Function):
    """`fastformer.attend_additively`, differentiable once; a second time is a RuntimeError."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        directions: Tensor,
        padding_mask: Mask,
        scaling: float,
        keep: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        weights = weights_of(x, directions, padding_mask, scaling)
        ctx.save_for_backward(x, directions, padding_mask, weights, keep)
        ctx.scaling = scaling
        return weighted_sums(x, weights, keep)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, grad_sum: Tensor) -> tuple[Tensor | None, ...]:
        x, directions, padding_mask, weights, keep = ctx.saved_tensors
        directions_of = _batched(directions, x.size(1))
        kept = weights
        grad_weights = (torch.bmm(grad, x.permute(1, 2, 0)) + grad_sum).type_as(weights)
        if keep is not None:
            keep = keep.permute(1, 2, 0)
            grad_weights, kept = grad_weights * keep, weights * keep
        mean = (grad_weights * weights).sum(dim=-1, keepdim=True)
        grad_scores = (weights * (grad_weights - mean) * ctx.scaling).type_as(x)
        if padding_mask is not None:
            grad_scores = grad_scores.masked_fill(padding_mask.unsqueeze(1), 0.0)
        # one product adds both gradients of x: through the scores, and through the sum
        left = torch.cat([grad_scores, kept.type_as(x)], dim=1)
        grad_x = torch.empty_like(x)
        right = torch.cat([directions_of, grad], dim=1)
        torch.bmm(left.transpose(1, 2), right, out=grad_x.transpose(0, 1))
        grad_directions = torch.bmm(grad_scores, x.transpose(0, 1))
        if directions.dim() == 2:
            grad_directions = grad_directions.sum(dim=0)
        return grad_x, grad_directions, None, None, None
