"""Summaries of additive attention: softmax-weighted sums over time."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fairseq_plugins.modules import kernels
from fairseq_plugins.modules.captured import is_captured
from fairseq_plugins.modules.masking import Mask, at_least_float32, hide
from fairseq_plugins.modules.rows import Layout


def summarize(
    x: Tensor, directions: Tensor, padding_mask: Mask, scaling: float, keep: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """``sum_t w_t x_t`` and ``sum_t w_t`` with ``w = keep * softmax_t(scaling * directions x_t)``.

    Outside TorchScript and torch.compile `Summaries` has the gradient, written by hand: one product
    instead of four passes over x. Results are the same to the bit. In half precision on a GPU,
    Triton kernels replace both directions (`modules/kernels/`), unless `keep` is given.

    Args:
        x: T x B x d, finite.
        directions: h x d, or B x h x d, in x's dtype.
        padding_mask: B x T, True at padding, or None. Padding gets weight zero; in a sentence of
            only padding, all weights are equal and finite.
        scaling: factor of the scores.
        keep: T x B x h, factors of the weights after dropout of ones; None for ones.

    Returns:
        B x h x d and B x h x 1 in x's dtype; weights are normalised in float32 at least.
    """
    if torch.jit.is_scripting():
        return _summarize_plain(x, _weights(x, directions, padding_mask, scaling), keep)
    else:
        return _summarize_fast(x, directions, padding_mask, scaling, keep)


def _summarize_fast(
    x: Tensor, directions: Tensor, padding_mask: Mask, scaling: float, keep: Tensor | None
) -> tuple[Tensor, Tensor]:
    if is_captured():
        return _summarize_plain(x, _weights(x, directions, padding_mask, scaling), keep)
    if keep is None and has_kernel(x, directions, False):
        return summarize_by_kernel(x, directions, padding_mask, scaling, 0.0)
    return Summaries.apply(x, directions, padding_mask, scaling, keep)


def is_on_gpu(x: Tensor) -> bool:
    return x.is_cuda


def has_kernel(x: Tensor, directions: Tensor, drops: bool) -> bool:
    """Whether `summarize_by_kernel` can be called with these arguments and this dropout."""
    if not is_on_gpu(x) or is_captured() or x.numel() == 0:
        return False
    heads = directions.size(-2)
    return kernels.has_room_for_summaries(x, heads) and kernels.usable(
        x, "summaries", x.size(-1), heads, int(drops)
    )


def summarize_by_kernel(
    x: Tensor, directions: Tensor, padding_mask: Mask, scaling: float, p: float
) -> tuple[Tensor, Tensor]:
    """`summarize` with dropout of the weights of probability p, by Triton kernels."""
    from fairseq_plugins.modules.kernels import draws
    from fairseq_plugins.modules.kernels.summaries import KernelSummaries

    seed = draws.new_seeds(x) if p > 0 else None
    return KernelSummaries.apply(x, directions, padding_mask, scaling, p, seed)


def summarize_rows(
    x: Tensor, directions: Tensor, scaling: float, p: float, at: Layout
) -> tuple[Tensor, Tensor]:
    """`summarize_by_kernel` for concatenated sentences: N x d; an empty one has zeros."""
    from fairseq_plugins.modules.kernels import draws
    from fairseq_plugins.modules.kernels.summaries import KernelSummaries

    seed = draws.new_seeds(x) if p > 0 else None
    x, directions = x.contiguous(), directions.type_as(x)
    return KernelSummaries.apply(x, directions, None, scaling, p, seed, at.starts, at.width)


def _batched(directions: Tensor, bsz: int) -> Tensor:
    return directions if directions.dim() == 3 else directions.unsqueeze(0).expand(bsz, -1, -1)


def _weights(x: Tensor, directions: Tensor, padding_mask: Mask, scaling: float) -> Tensor:
    """The softmax of `summarize`: B x h x T, in float32 at least."""
    scores = torch.bmm(_batched(directions, x.size(1)), x.permute(1, 2, 0))
    scores = at_least_float32(scores) * scaling
    if padding_mask is not None:
        scores = hide(scores, padding_mask.unsqueeze(1))
    return torch.softmax(scores, dim=-1)


def _summarize_plain(x: Tensor, weights: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
    if keep is not None:
        weights = weights * keep.permute(1, 2, 0)
    weights = weights.type_as(x)
    return torch.bmm(weights, x.transpose(0, 1)), weights.sum(dim=-1, keepdim=True)


class Summaries(torch.autograd.Function):
    """`summarize`, differentiable once: a second time is `once_differentiable`'s RuntimeError."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        directions: Tensor,
        padding_mask: Mask,
        scaling: float,
        keep: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        weights = _weights(x, directions, padding_mask, scaling)
        ctx.save_for_backward(x, directions, padding_mask, weights, keep)
        ctx.scaling = scaling
        return _summarize_plain(x, weights, keep)

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
