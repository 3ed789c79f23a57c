"""The objective of criterions with one or two passes, and its loss from log-probabilities."""

from typing import NamedTuple

from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss
from torch import Tensor


class Objective(NamedTuple):
    """The loss of one pass, or of two passes over the same targets and their divergence.

    With ``p_k`` the distribution of a token in pass k and ``CE`` fairseq's label-smoothed cross
    entropy::

        loss = sum_k cross_entropy[k] CE(p_k)
               + divergence[0] KL(p_1 || p_2) + divergence[1] KL(p_2 || p_1)

    Gradients flow into both passes, through both sides of each divergence. `cross_entropy` has one
    weight per pass; they add up to 1. With one pass, `divergence` is not used.
    """

    smoothing: float
    cross_entropy: tuple[float, ...] = (1.0,)
    divergence: tuple[float, float] = (0.0, 0.0)


class Sums(NamedTuple):
    """Scalar sums over tokens, with the weights of `Objective`. Only `loss` has a gradient."""

    loss: Tensor
    nll_loss: Tensor
    divergence: Tensor
    correct: Tensor


def plain_loss(log_probs: Tensor, target: Tensor, objective: Objective) -> Sums:
    """The objective, computed from log-probabilities with the equation of `Objective`.

    Args:
        log_probs: P x N x V, for P passes.
        target: N, without padding.
        objective: of P passes.

    Returns:
        sums in the dtype of `log_probs`; `correct` counts the tokens whose most probable word is
        the target.
    """
    loss = nll_loss = divergence = correct = log_probs.new_zeros(())
    for weight, pass_log_probs in zip(objective.cross_entropy, log_probs):
        smoothed, nll = label_smoothed_nll_loss(pass_log_probs, target, objective.smoothing)
        loss = loss + weight * smoothed.sum()
        nll_loss = nll_loss + weight * nll.detach().sum()
        correct = correct + weight * pass_log_probs.argmax(dim=-1).eq(target).sum()
    if len(log_probs) == 2:
        first, second = log_probs
        there, back = objective.divergence
        divergence = there * (first.exp() * (first - second)).sum()
        divergence = divergence + back * (second.exp() * (second - first)).sum()
        loss = loss + divergence
    return Sums(loss, nll_loss, divergence.detach(), correct)
