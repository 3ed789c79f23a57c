"""Padding masks, and softmax with hidden positions: its precision, and the hidden scores."""

import torch
from torch import Tensor

Mask = Tensor | None  # of padding, B x T, True at padding; None if a batch has none


def at_least_float32(x: Tensor) -> Tensor:
    """x in float32; float64 stays float64."""
    return x if x.dtype == torch.float64 else x.float()


def hide(scores: Tensor, hidden: Tensor) -> Tensor:
    """The scores, with -3e38 where `hidden`, so that softmax gives these positions no weight.

    If all positions are hidden, softmax stays finite; -inf would give NaN.

    Args:
        scores: in float32 or float64.
        hidden: bool, of a shape that broadcasts to that of the scores.
    """
    return scores.masked_fill(hidden, -3e38)
