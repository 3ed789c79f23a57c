"""Several linear projections of one tensor as one product."""

from typing import Any, List, Sequence, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def project_together(x: Tensor, projections: Sequence[nn.Module]) -> Tuple[Tensor, ...]:
    """``[projection(x) for projection in projections]``, as one product on a GPU.

    The parameters stay apart, and are put behind each other for each call: small beside x. Queries,
    keys and values of self-attention are 3 products in forward; backward has 6, 2 additions and 3
    sums for the biases. Together they are 3 products, a sum, and 3 copies. Gradients of x are added
    in the product, so in half precision they are rounded once. On a CPU this gains nothing (0.996
    of the time), so there, and for projections that are more than a linear layer (quantisation
    noise, 8 bits), each is called by itself.

    Args:
        x: ... x d.
        projections: nn.Linear layers of input size d, all with a bias or all without.

    Returns:
        the results, ... x d_i each; on a GPU views of one tensor, whose last dimension is
        contiguous and no other.
    """
    if x.device.type == "cpu" or not all(_is_plain(layer) for layer in projections):
        return tuple(layer(x) for layer in projections)
    return _one_product(x, projections)


def _one_product(x: Tensor, projections: Sequence[nn.Module]) -> Tuple[Tensor, ...]:
    weights: List[Any] = [layer.weight for layer in projections]
    biases: List[Any] = [layer.bias for layer in projections if layer.bias is not None]
    if len(biases) not in (0, len(weights)):
        raise ValueError("projections must all have a bias, or none of them")
    bias = torch.cat(biases) if biases else None
    # split, and not slices: its backward puts the gradients behind each other in one copy
    out = F.linear(x, torch.cat(weights), bias)
    return torch.split(out, [weight.size(0) for weight in weights], dim=-1)


def _is_plain(layer: nn.Module) -> bool:
    """Whether calling the layer is its product and nothing more."""
    return type(layer) is nn.Linear and not (
        layer._forward_pre_hooks or layer._forward_hooks or layer._backward_hooks
    )
