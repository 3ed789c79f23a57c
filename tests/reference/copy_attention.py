"""Copying of the pointer-generator (See et al. 2017, equations 8 and 9)."""

import torch
from torch import Tensor


def copy_probabilities(
    logits: Tensor, attention: Tensor, source: list[int], gate: Tensor
) -> Tensor:
    """Of one target token: `V` probabilities from `V` logits, `T` weights and the gate's sum."""
    generate = torch.sigmoid(gate)
    copied = torch.zeros_like(logits).index_add(0, torch.tensor(source), attention)
    return generate * logits.softmax(dim=0) + (1 - generate) * copied


def divide_unknown(
    probabilities: list[float], attention: list[float], source: list[int], unknown: int
) -> list[float]:
    """Of one target token: the probability of <unk> is that of the source's unknown words.

    Args:
        probabilities: of the V words.
        attention: T weights; source: T words, of which those from V on are unknown.
        unknown: the number of <unk>.
    """
    vocabulary = len(probabilities)
    weights = [0.0] * (1 + max(source) - vocabulary)
    for weight, word in zip(attention, source):
        if word >= vocabulary:
            weights[word - vocabulary] += weight
    if not weights:
        return probabilities
    known = [0.0 if word == unknown else p for word, p in enumerate(probabilities)]
    return known + [probabilities[unknown] * weight / sum(weights) for weight in weights]


def go_on(attention: Tensor, source: list[int], previous: int, gate: Tensor) -> Tensor:
    """Of one target token: the weights that also follow the word last written.

    Args:
        attention: `T` weights; source: `T` words, 1 at padding; previous: the word last written.
        gate: the logit of the share of the positions that follow it.
    """
    follows, last = [], 2  # the end symbol stands before the first word
    for word in source:
        follows.append(word != 1 and last == previous)
        last = last if word == 1 else word
    if not any(follows):
        return attention
    share, following = torch.sigmoid(gate), (attention + 1e-4) * torch.tensor(follows)
    return (1 - share) * attention + share * following / following.sum()
