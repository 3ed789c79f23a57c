"""Summaries of additive attention: softmax-weighted sums over time."""

import torch
from torch import Tensor

from fairseq_plugins.modules import kernels
from fairseq_plugins.modules.captured import is_captured
from fairseq_plugins.modules.masking import Mask
from fairseq_plugins.modules.rows import Layout

from .plain_summaries import Summaries, weighted_sums, weights_of


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
        return weighted_sums(x, weights_of(x, directions, padding_mask, scaling), keep)
    else:
        return _summarize_fast(x, directions, padding_mask, scaling, keep)


def _summarize_fast(
    x: Tensor, directions: Tensor, padding_mask: Mask, scaling: float, keep: Tensor | None
) -> tuple[Tensor, Tensor]:
    if is_captured():
        return weighted_sums(x, weights_of(x, directions, padding_mask, scaling), keep)
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
