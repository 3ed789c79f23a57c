"""Softmax and linear projections, which most equations share."""

import torch
from torch import Tensor


def softmax_of(scores: list[Tensor]) -> list[Tensor]:
    """Weights that sum to one, from the scores of the positions of one sentence."""
    largest = max(score.item() for score in scores)
    exponentials = [torch.exp(score - largest) for score in scores]
    total = sum(exponentials)
    return [exponential / total for exponential in exponentials]


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """`weight x + bias` for one position or all of a sentence: weight is `out x in`."""
    return x @ weight.t() + bias
