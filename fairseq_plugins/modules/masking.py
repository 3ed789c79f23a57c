"""Softmax over positions of which some are hidden: its precision, and the scores of the hidden."""

import torch
from torch import Tensor


def at_least_float32(x: Tensor) -> Tensor:
    """x in float32; float64 stays."""
    return x if x.dtype == torch.float64 else x.float()


def hide(scores: Tensor, hidden: Tensor) -> Tensor:
    """The scores, and -3e38 where `hidden`, so that a softmax gives these positions no weight.

    Where all positions are hidden it stays finite; -inf would give NaN there.

    Args:
        scores: in float32 or float64.
        hidden: bool, of a shape that broadcasts to that of the scores.
    """
    return scores.masked_fill(hidden, -3e38)
