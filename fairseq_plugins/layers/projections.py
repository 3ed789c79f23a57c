"""Several linear projections of one tensor as one product."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from . import kernels


def project_together(x: Tensor, projections: Sequence[nn.Module]) -> tuple[Tensor, ...]:
    """``[projection(x) for projection in projections]``, as one product on a GPU.

    The parameters stay separate and are concatenated in each call, unless `store_together` did so.
    Queries, keys and values of self-attention are 3 products in forward; backward has 6, plus 2
    additions and 3 sums for the biases. Combined, they are 3 products, a sum and 3 copies; a Triton
    kernel in half precision joins copies and sum.
    Gradients of x are added in the product, so in half precision they are rounded once. On a CPU
    this is no faster (0.996 of the time). Therefore on a CPU, and for projections that are more
    than a linear layer (quantisation noise, 8 bits), each is called separately.

    Args:
        x: ... x d.
        projections: nn.Linear layers of input size d, all with a bias or all without.

    Returns:
        the results, ... x d_i each; on a GPU, views of one tensor that are contiguous only in the
            last dimension.
    """
    if x.device.type == "cpu" or not all(map(is_linear, projections)):
        return tuple(layer(x) for layer in projections)
    return _one_product(x, projections)


def _one_product(x: Tensor, projections: Sequence[nn.Module]) -> tuple[Tensor, ...]:
    weight, bias = concatenate(projections)
    kernel = kernel_of(projections)
    readable = x.dtype == weight.dtype and kernels.can_read(x)
    if kernel is not None and readable and kernels.usable(x, *kernel):
        from .kernels.projections import KernelProjections

        return KernelProjections.apply(x, weight, bias)
    # split, not slices: its backward concatenates the gradients in one copy
    sizes: list[Any] = [layer.out_features for layer in projections]
    return torch.split(F.linear(x, weight, bias), sizes, dim=-1)


def kernel_of(projections: Sequence[Any]) -> tuple[str, int] | None:
    """Name and size of the kernel, as `kernels.usable` takes them; None if there is none."""
    plain = len(projections) == 3 and all(map(is_linear, projections))
    if not plain or any(layer.bias is None for layer in projections):
        return None
    sizes = {layer.out_features for layer in projections}
    return ("projections", *sizes) if len(sizes) == 1 else None


def concatenate(projections: Sequence[nn.Module]) -> tuple[Tensor, Tensor | None]:
    """The weight and the bias (or None) of several linear layers as one."""
    weights, biases = _parameters(projections)
    return _join(weights), _join(biases) if biases else None


def store_together(projections: Sequence[nn.Module]) -> None:
    """Make the parameters of linear layers of one input size neighbours in memory.

    Then `concatenate` copies nothing, whichever neighbours it gets in this order.
    """
    for parameters in filter(None, _parameters(projections)):
        pieces = torch.cat([p.data for p in parameters]).split([len(p) for p in parameters])
        for p, piece in zip(parameters, pieces):
            p.data = piece


def _parameters(projections: Sequence[nn.Module]) -> tuple[list[Any], list[Any]]:
    """The weights, and the biases."""
    weights: list[Any] = [layer.weight for layer in projections]
    return weights, [layer.bias for layer in projections if layer.bias is not None]


def _join(parameters: Sequence[Tensor]) -> Tensor:
    """Parameters as one, without a copy if they are neighbours in memory."""
    for p, following in zip(parameters, parameters[1:]):
        same = p.untyped_storage().data_ptr() == following.untyped_storage().data_ptr()
        if not same or p.storage_offset() + p.numel() != following.storage_offset():
            return torch.cat(list(parameters))
    return _Neighbours.apply(*parameters)


class _Neighbours(torch.autograd.Function):
    """`torch.cat` of neighbours in memory, as a view of it."""

    @staticmethod
    def forward(ctx: Any, *parameters: Tensor) -> Tensor:
        ctx.sizes = [len(p) for p in parameters]
        first = parameters[0].data
        return first.as_strided((sum(ctx.sizes), *first.shape[1:]), first.stride())

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        return grad.split(ctx.sizes)


def is_linear(layer: nn.Module) -> bool:
    """Whether calling the layer only computes its product."""
    return type(layer) is nn.Linear and not (
        layer._forward_pre_hooks or layer._forward_hooks or layer._backward_hooks
    )
