"""The standard feed-forward network, MSCFFN's for one sentence, and Switch's for one batch."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .attention import linear


def standard(
    x: Tensor,
    first_weight: Tensor,
    first_bias: Tensor,
    second_weight: Tensor,
    second_bias: Tensor,
    activation: Callable[[Tensor], Tensor] = torch.relu,
) -> Tensor:
    """Equation (4) of MSCFFN's paper; `T x d` to `T x d`."""
    return linear(activation(linear(x, first_weight, first_bias)), second_weight, second_bias)


def mscffn(
    x: Tensor,
    in_weight: Tensor,
    in_bias: Tensor,
    expand_weight: Tensor,
    expand_bias: Tensor,
    contract_weight: Tensor,
    contract_bias: Tensor,
    out_weight: Tensor,
    out_bias: Tensor,
) -> Tensor:
    """Equations (6) to (10); `T x d` to `T x d`, with n subspaces and expansion m.

    in_weight `d x d`, expand_weight `n x m d/n x d/n`, contract_weight `n/2 x d/n x m d/n`,
    out_weight `d x d/2`; each bias `... x out`.
    """
    inside = linear(x, in_weight, in_bias).chunk(len(expand_weight), dim=1)
    large = [linear(*given) for given in zip(inside, expand_weight, expand_bias)]
    contracted = []
    for j in range(1, len(large) // 2 + 1):  # the paper counts from one
        crossed = torch.relu(large[(2 * j - 1) - 1]) * large[(2 * j) - 1]
        contracted.append(linear(crossed, contract_weight[j - 1], contract_bias[j - 1]))
    return linear(torch.cat(contracted, dim=1), out_weight, out_bias)


def switch(
    rows: list[Tensor],
    router: Tensor,
    experts: list[Callable[[Tensor], Tensor]],
    capacity_factor: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Equations (1) to (6) of Switch for the M real positions of a batch, in their order.

    router: `N x d`; experts: each `1 x d` to `1 x d`; capacity_factor: None where nothing is
    dropped. Gives `M x d`, and the loss without its weight.
    """
    count = len(experts)
    probabilities = [torch.softmax(torch.einsum("nd,d->n", router, row), dim=0) for row in rows]
    chosen = [int(p.argmax()) for p in probabilities]
    capacity = len(rows)
    if capacity_factor is not None:
        capacity = math.ceil(capacity_factor * len(rows) / count)
    taken = [0] * count
    out = []
    for row, p, e in zip(rows, probabilities, chosen):
        taken[e] += 1
        if taken[e] <= capacity:
            out.append(p[e] * experts[e](row.unsqueeze(0)).squeeze(0))
        else:
            out.append(torch.zeros_like(row))
    loss = sum(
        (chosen.count(i) / len(rows)) * (sum(p[i] for p in probabilities) / len(rows))
        for i in range(count)
    )
    return torch.stack(out), count * loss
