"""The first half of a position-wise feed-forward network."""

from collections.abc import Callable
from typing import Any

import torch.nn.functional as F
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor

from fairseq_plugins.layers import kernels
from fairseq_plugins.layers.dropout import new_seed, probability
from fairseq_plugins.layers.projections import is_linear


def activate(
    x: Tensor, project: Any, activation: Callable[[Tensor], Tensor], dropout: Any
) -> Tensor:
    """``dropout(activation(project(x)))``: ... x d -> ... x d_inner.

    In half precision on a GPU, a Triton kernel adds the bias and computes ReLU and dropout, which
    it rounds to a multiple of 1 / 65,536.
    """
    kernel = kernel_of(project, activation, dropout)
    if kernel is None or not kernels.can_read(x):
        return dropout(activation(project(x)))
    if x.dtype != project.weight.dtype or not kernels.usable(x, *kernel):
        return dropout(activation(project(x)))
    from fairseq_plugins.layers.kernels.activation import KernelActivation

    p = probability(dropout)
    return KernelActivation.apply(F.linear(x, project.weight), project.bias, p, new_seed(x, p))


def kernel_of(project: Any, activation: Any, dropout: Any) -> tuple[str, int, int] | None:
    """Name and sizes of the kernel, as `kernels.usable` takes them; None if there is none."""
    plain = activation is F.relu and isinstance(dropout, FairseqDropout)
    if not plain or not is_linear(project) or project.bias is None:
        return None
    return "activation", project.out_features, int(probability(dropout) > 0)
