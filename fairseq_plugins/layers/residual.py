"""The end of a sublayer: its last projection, dropout, residual and LayerNorm."""

from typing import Any

import torch.nn.functional as F
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn

from fairseq_plugins.layers import kernels
from fairseq_plugins.layers.dropout import new_seed, probability
from fairseq_plugins.layers.projections import is_linear

# attribute of a result of the kernel: the same numbers for the next residual. Both uses then have
# gradients of their own, which the kernel adds
AS_RESIDUAL = "as_residual"


def add_and_normalise(
    x: Tensor,
    residual: Tensor,
    dropout: FairseqDropout,
    norm: nn.Module,
    project: nn.Module | None = None,
) -> tuple[Tensor, Tensor]:
    """``s = residual + dropout(project(x))`` and ``norm(s)``.

    A post-norm layer continues with ``norm(s)``. A pre-norm layer continues with both: s is the
    residual of the next sublayer, and norm is that sublayer's. In half precision on a GPU, a Triton
    kernel computes both; it rounds the dropout to a multiple of 1 / 65,536, and s once, not twice.
    It also adds the bias of the projection, as it sums up the gradient at little cost.

    Args:
        x: ... x d', in the shape of `residual` but for the last dimension.
        residual: ... x d.
        dropout: draws from torch's generator; in a CUDA graph, anew in each replay.
        norm: nn.LayerNorm over d; the kernel supports no other.
        project: from d' to d; None for the identity.

    Returns:
        both, ... x d. An unused result costs nothing in backward.
    """
    if has_kernel(x, residual, dropout, norm):
        return add_and_normalise_by_kernel(x, residual, dropout, norm, project)
    summed = residual + dropout(x if project is None else project(x))
    return summed, norm(summed)


def has_kernel(x: Tensor, residual: Tensor, dropout: FairseqDropout, norm: nn.Module) -> bool:
    """Arguments of `add_and_normalise`, and whether it uses the kernel."""
    if not kernels.can_read(x):
        return False
    dim, positions = residual.size(-1), residual.shape[:-1]
    fits = (x.dtype, x.shape[:-1]) == (residual.dtype, positions) and dim <= kernels.MAX_FEATURES
    plain = type(norm) is nn.LayerNorm and norm.bias is not None and norm.weight.shape == (dim,)
    return fits and plain and kernels.usable(x, *kernel_of(dim, dropout))


def kernel_of(dim: int, dropout: FairseqDropout) -> tuple[str, int, int]:
    """Name and sizes of the kernel, as `kernels.usable` takes them."""
    return "residual", dim, int(probability(dropout) > 0)


def add_and_normalise_by_kernel(
    x: Tensor, residual: Tensor, dropout: FairseqDropout, norm: Any, project: Any = None
) -> tuple[Tensor, Tensor]:
    """`add_and_normalise` by the kernel; see `has_kernel`."""
    from fairseq_plugins.layers.kernels.residual import KernelResidual

    p, shift = probability(dropout), None
    if project is not None and is_linear(project):
        x, shift = F.linear(x, project.weight), project.bias
    elif project is not None:
        x = project(x)
    residual = getattr(residual, AS_RESIDUAL, residual)
    summed, out, again = KernelResidual.apply(
        *(x, shift, residual, norm.weight, norm.bias, norm.eps, p, new_seed(x, p))
    )
    setattr(out, AS_RESIDUAL, again)
    return summed, out
