"""Cross entropy with label smoothing, and its gradient over the logits, as one Triton kernel.

A program reads the logits of a token twice, once for their largest, their sum and the softmax's
total, and once to replace them by the gradient. Plain torch needs eight passes over numbers in
float32.
"""

# Triton pointers have no Python type.
# mypy: disallow-incomplete-defs=False

from collections.abc import Callable, Iterator
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from . import Trial, block

BLOCKS = {"most": 4096}  # maximum numbers at a time. Others are not measured yet


@triton.jit
def _replace(
    logits, target, counted, losses, share, confidence, scale,
    vocabulary: tl.constexpr, COLS: tl.constexpr, COUNTS: tl.constexpr,
):  # fmt: skip
    row, rows = tl.program_id(0), tl.num_programs(0)
    col = tl.arange(0, COLS)
    logits += row.to(tl.int64) * vocabulary
    y = tl.load(target + row)
    real = tl.load(counted + row).to(tl.int1) if COUNTS else True
    at_target = tl.load(logits + y).to(tl.float32)
    largest, total, sum_of_logits = -float("inf"), 0.0, 0.0
    for start in range(0, vocabulary, COLS):
        inside = start + col < vocabulary
        z = tl.load(logits + start + col, mask=inside, other=-float("inf")).to(tl.float32)
        before, largest = largest, tl.maximum(largest, tl.max(z, axis=0))
        total = total * tl.exp(before - largest) + tl.sum(tl.exp(z - largest), axis=0)
        sum_of_logits += tl.sum(tl.where(inside, z, 0.0), axis=0)
    log_total = tl.log(total)
    nll = largest - at_target + log_total
    smooth = (largest + log_total) * vocabulary - sum_of_logits
    tl.store(losses + row, tl.where(real, nll, 0.0))
    tl.store(losses + rows + row, tl.where(real, smooth, 0.0))
    for start in range(0, vocabulary, COLS):
        inside = start + col < vocabulary
        z = tl.load(logits + start + col, mask=inside, other=-float("inf")).to(tl.float32)
        # not exp(z - largest - log_total), whose error is that of the largest logit
        grad = tl.exp(z - largest) / total - share
        grad = tl.where(start + col == y, grad - confidence, grad)
        grad = tl.where(real, grad * scale, 0.0)
        tl.store(logits + start + col, grad.to(logits.dtype.element_ty), mask=inside)


def replace_by_gradient(
    logits: Tensor,
    target: Tensor,
    counted: Tensor | None,
    share: float,
    confidence: float,
    scale: float,
) -> Tensor:
    """The two losses of each token, and in place of its logits their gradient.

    Args:
        logits: n x V, contiguous; overwritten with
            ``scale (softmax(z) - share - confidence onehot(y))``.
        target: n.
        counted: n, True at tokens that count, or None for all. Others have zeros.

    Returns:
        2 x n, float32: ``nll = logsumexp(z) - z_y``, and ``sum_v (logsumexp(z) - z_v)``.
    """
    rows, vocabulary = logits.shape
    losses = logits.new_empty(2, rows, dtype=torch.float32)
    cols = min(BLOCKS["most"], block(vocabulary))
    with torch.cuda.device_of(logits):  # Triton launches on the current GPU
        _replace[(rows,)](
            logits, target, target if counted is None else counted, losses,
            share, confidence, scale, vocabulary=vocabulary, COLS=cols,
            COUNTS=counted is not None, num_warps=max(1, cols // 512),
        )  # fmt: skip
    return losses


class Losses(torch.autograd.Function):
    """``confidence nll + share sum_v (logsumexp(z) - z_v)`` of each token."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, target: Tensor, counted: Any, share: float, confidence: float
    ) -> Tensor:
        grad = logits.clone()
        nll, smooth = replace_by_gradient(grad, target, counted, share, confidence, 1.0)
        ctx.save_for_backward(grad)
        return confidence * nll + share * smooth

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = ctx.saved_tensors
        return (grad_output.unsqueeze(1) * grad).to(grad), None, None, None, None


def trials(draw: Callable[..., Tensor], vocabulary: int) -> Iterator[Trial]:
    """The trials of `kernels.usable`, for V."""
    logits, share, confidence = 3 * draw(7, vocabulary), 0.1 / vocabulary, 0.8
    target = torch.arange(7, device=logits.device) * 5 % vocabulary
    counted = torch.arange(7, device=logits.device) != 3

    def plain(logits: Tensor) -> Tensor:
        exact = logits.to(torch.promote_types(logits.dtype, torch.float32))
        losses = -exact.log_softmax(dim=1)
        at_target = losses.gather(1, target.unsqueeze(1)).squeeze(1)
        total = confidence * at_target + share * losses.sum(dim=1)
        return total.masked_fill(~counted, 0)

    yield Trial(
        lambda logits: Losses.apply(logits, target, counted, share, confidence), plain, [logits]
    )
