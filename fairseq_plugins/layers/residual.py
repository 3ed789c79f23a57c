"""The end of a sublayer: dropout, residual and LayerNorm."""

from typing import Any

from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn

from fairseq_plugins.layers import kernels
from fairseq_plugins.layers.dropout import probability
from fairseq_plugins.layers.tracing import is_traced


def add_and_normalise(
    x: Tensor, residual: Tensor, dropout: FairseqDropout, norm: nn.Module
) -> tuple[Tensor, Tensor]:
    """``s = residual + dropout(x)`` and ``norm(s)``.

    A post-norm layer continues with ``norm(s)``. A pre-norm layer continues with both: s is the
    residual of the next sublayer, and norm is that sublayer's. In half precision on a GPU, a Triton
    kernel computes both; it rounds the dropout to a multiple of 1 / 65,536, and s once, not twice.

    Args:
        x, residual: ... x d.
        dropout: draws from torch's generator; in a CUDA graph, anew in each replay.
        norm: nn.LayerNorm over d; the kernel supports no other.

    Returns:
        both, ... x d. An unused result costs nothing in backward.
    """
    if has_kernel(x, residual, dropout, norm):
        return add_and_normalise_by_kernel(x, residual, dropout, norm)
    summed = residual + dropout(x)
    return summed, norm(summed)


def is_on_gpu(x: Tensor) -> bool:
    return x.is_cuda


def has_kernel(x: Tensor, residual: Tensor, dropout: FairseqDropout, norm: nn.Module) -> bool:
    """Arguments of `add_and_normalise`, and whether it uses the kernel."""
    if not is_on_gpu(x) or is_traced() or x.numel() == 0:
        return False
    dim = x.size(-1)
    fits = x.dtype == residual.dtype and x.shape == residual.shape and dim <= kernels.MAX_FEATURES
    plain = type(norm) is nn.LayerNorm and norm.bias is not None and norm.weight.shape == (dim,)
    return fits and plain and kernels.usable(x, *kernel_of(dim, dropout))


def kernel_of(dim: int, dropout: FairseqDropout) -> tuple[str, int, int]:
    """Name and sizes of the kernel, as `kernels.usable` takes them."""
    return "residual", dim, int(probability(dropout) > 0)


def add_and_normalise_by_kernel(
    x: Tensor, residual: Tensor, dropout: FairseqDropout, norm: Any
) -> tuple[Tensor, Tensor]:
    """`add_and_normalise` by the kernel; see `has_kernel`."""
    from fairseq_plugins.layers.kernels import draws
    from fairseq_plugins.layers.kernels.residual import KernelResidual

    p = probability(dropout)
    seed = draws.new_seed(x, p)
    return KernelResidual.apply(x, residual, norm.weight, norm.bias, norm.eps, p, seed)
