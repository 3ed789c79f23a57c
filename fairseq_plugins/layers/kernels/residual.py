"""Bias, dropout, residual and LayerNorm as one Triton kernel forward, and one plus a sum backward.

Forward reads both inputs and writes the sum and its LayerNorm. Backward reads the sum and the
gradients, draws the dropout again, and adds the gradients of the parameters over the rows of a
program; `add_parts` adds those of all programs. Plain torch has three kernels forward, a mask in
memory, and six backward: one more for the bias, and one that adds the gradients of a LayerNorm's
two uses, the next sublayer and the next residual.
"""

# Triton pointers have no Python type.
# mypy: disallow-incomplete-defs=False

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import Trial, block, draws
from .sums import PROGRAMS, add_parts

BLOCKS = {"tile": 2048}  # maximum numbers at a time. Others are not measured yet


@triton.jit(do_not_specialize=["tokens", "limit"])
def _forward(
    x, shift, residual, weight, bias, seed, out_sum, out, out_mean, out_deviation,
    tokens, epsilon, scale, limit,
    dim: tl.constexpr, DIM: tl.constexpr, ROWS: tl.constexpr, DROPS: tl.constexpr,
    SHIFTS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    feature = tl.arange(0, DIM)
    at = row[:, None].to(tl.int64) * dim + feature[None, :]
    real = (row[:, None] < tokens) & (feature[None, :] < dim)
    added = tl.load(x + at, mask=real, other=0.0).to(tl.float32)
    if SHIFTS:
        added += tl.load(shift + feature, mask=feature < dim, other=0.0).to(tl.float32)[None, :]
    if DROPS:
        added = tl.where(draws.kept(seed, 0, limit, row, DIM // 8, 0, DIM), added * scale, 0.0)
    total = added + tl.load(residual + at, mask=real, other=0.0).to(tl.float32)
    rounded = total.to(out_sum.dtype.element_ty)
    tl.store(out_sum + at, rounded, mask=real)
    total = rounded.to(tl.float32)  # what backward reads
    mean = tl.sum(total, axis=1) / dim
    centred = tl.where(feature[None, :] < dim, total - mean[:, None], 0.0)
    deviation = 1 / tl.sqrt(tl.sum(centred * centred, axis=1) / dim + epsilon)
    w = tl.load(weight + feature, mask=feature < dim, other=0.0).to(tl.float32)
    b = tl.load(bias + feature, mask=feature < dim, other=0.0).to(tl.float32)
    normalised = centred * deviation[:, None] * w[None, :] + b[None, :]
    tl.store(out + at, normalised.to(out.dtype.element_ty), mask=real)
    tl.store(out_mean + row, mean, mask=row < tokens)
    tl.store(out_deviation + row, deviation, mask=row < tokens)


@triton.jit(do_not_specialize=["tokens", "limit"])
def _backward(
    summed, weight, seed, mean, deviation, grad, grad_again, grad_sum,
    grad_x, grad_residual, grad_parameters, tokens, scale, limit,
    dim: tl.constexpr, DIM: tl.constexpr, ROWS: tl.constexpr, DROPS: tl.constexpr,
    SHIFTS: tl.constexpr, USES: tl.constexpr, HAS_GRAD_SUM: tl.constexpr,
):  # fmt: skip
    feature = tl.arange(0, DIM)
    w = tl.load(weight + feature, mask=feature < dim, other=0.0).to(tl.float32)
    grad_weight = tl.zeros((ROWS, DIM), dtype=tl.float32)
    grad_bias = tl.zeros((ROWS, DIM), dtype=tl.float32)
    grad_shift = tl.zeros((ROWS, DIM), dtype=tl.float32)
    for start in range(tl.program_id(0) * ROWS, tokens, tl.num_programs(0) * ROWS):
        row = start + tl.arange(0, ROWS)
        at = row[:, None].to(tl.int64) * dim + feature[None, :]
        real = (row[:, None] < tokens) & (feature[None, :] < dim)
        total = tl.zeros((ROWS, DIM), dtype=tl.float32)
        if USES > 0:
            g = tl.load(grad + at, mask=real, other=0.0).to(tl.float32)
            if USES > 1:
                g += tl.load(grad_again + at, mask=real, other=0.0).to(tl.float32)
            m = tl.load(mean + row, mask=row < tokens, other=0.0)
            d = tl.load(deviation + row, mask=row < tokens, other=0.0)
            s = tl.load(summed + at, mask=real, other=0.0).to(tl.float32)
            normalised = tl.where(feature[None, :] < dim, (s - m[:, None]) * d[:, None], 0.0)
            grad_weight += g * normalised
            grad_bias += g
            g = g * w[None, :]
            along = tl.sum(g * normalised, axis=1) / dim
            total = (g - tl.sum(g, axis=1)[:, None] / dim - normalised * along[:, None]) * d[
                :, None
            ]
        if HAS_GRAD_SUM:
            total += tl.load(grad_sum + at, mask=real, other=0.0).to(tl.float32)
        tl.store(grad_residual + at, total.to(grad_residual.dtype.element_ty), mask=real)
        if DROPS:
            mask = draws.kept(seed, 0, limit, row, DIM // 8, 0, DIM)
            total = tl.where(mask, total * scale, 0.0)
            tl.store(grad_x + at, total.to(grad_x.dtype.element_ty), mask=real)
        if SHIFTS:
            grad_shift += total
    at = grad_parameters + tl.program_id(0) * (2 + SHIFTS) * dim + feature
    tl.store(at, tl.sum(grad_weight, axis=0), mask=feature < dim)
    tl.store(at + dim, tl.sum(grad_bias, axis=0), mask=feature < dim)
    if SHIFTS:
        tl.store(at + 2 * dim, tl.sum(grad_shift, axis=0), mask=feature < dim)


class KernelResidual(torch.autograd.Function):
    """``s = residual + dropout(x + shift)`` and ``LayerNorm(s)``, twice; see `layers.residual`.

    The second LayerNorm is the first one's memory, for another use: backward adds both gradients.

    Args:
        x, residual: ... x d, of one dtype.
        shift: d, or None for 0.
        weight, bias: of the LayerNorm, d each.
        epsilon: the LayerNorm's epsilon.
        p: dropout probability.
        seed: the seed of the draws; None drops nothing.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        shift: Tensor | None,
        residual: Tensor,
        weight: Tensor,
        bias: Tensor,
        epsilon: float,
        p: float,
        seed: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        x, residual = x.contiguous(), residual.contiguous()
        dim = x.size(-1)
        tokens = x.numel() // dim
        summed, out = torch.empty_like(x), torch.empty_like(x)
        mean, deviation = x.new_empty(2, tokens, dtype=torch.float32).unbind()
        limit, scale = draws.limit_and_scale(p)
        blocks = _blocks(dim, seed, shift)
        with torch.cuda.device_of(x):  # Triton launches on the current GPU
            _forward[(triton.cdiv(tokens, blocks["ROWS"]),)](
                x, x if shift is None else shift, residual, weight, bias,
                x if seed is None else seed, summed, out, mean, deviation,
                tokens, epsilon, scale, limit, **blocks,
            )  # fmt: skip
        ctx.save_for_backward(summed, weight, mean, deviation, seed)
        ctx.scale, ctx.limit, ctx.dtype, ctx.blocks = scale, limit, bias.dtype, blocks
        ctx.set_materialize_grads(False)
        return summed, out, out.detach()

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_sum: Tensor | None, grad: Tensor | None, grad_again: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        summed, weight, mean, deviation, seed = ctx.saved_tensors
        dim, tokens, blocks = weight.numel(), mean.numel(), ctx.blocks
        uses = [each.contiguous() for each in (grad, grad_again) if each is not None]
        grad_residual = torch.empty_like(summed)
        grad_x = grad_residual if seed is None else torch.empty_like(summed)
        programs = min(PROGRAMS, triton.cdiv(tokens, blocks["ROWS"]))
        sums = summed.new_empty(programs, (2 + blocks["SHIFTS"]) * dim, dtype=torch.float32)
        _backward[(programs,)](
            summed, weight, summed if seed is None else seed, mean, deviation,
            *uses, *[summed] * (2 - len(uses)),
            summed if grad_sum is None else grad_sum.contiguous(),
            grad_x, grad_residual, sums, tokens, ctx.scale, ctx.limit,
            USES=len(uses), HAS_GRAD_SUM=grad_sum is not None, **blocks,
        )  # fmt: skip
        grad_weight, grad_bias, *grad_shift = add_parts(sums, ctx.dtype).split(dim)
        return (
            *(grad_x, grad_shift[0] if grad_shift else None, grad_residual),
            *(grad_weight, grad_bias, None, None, None),
        )


def _blocks(dim: int, seed: Tensor | None, shift: Tensor | None) -> Any:
    features = block(dim)
    return {
        "dim": dim,
        "DIM": features,
        "ROWS": max(1, BLOCKS["tile"] // features),
        "DROPS": seed is not None,
        "SHIFTS": int(shift is not None),
        "num_warps": max(4, features // 1024),
    }


def trials(draw: Callable[..., Tensor], dim: int, drops: int) -> Iterator[Trial]:
    """The trials of `kernels.usable`, for d and whether dropout is on."""
    tokens, p = 37, 0.3
    x = draw(tokens, dim)
    seed = torch.tensor([5], device=x.device) if drops else None
    mask = draws.mask(seed, p, tokens, block(dim))

    def plain(
        x: Tensor, shift: Tensor, residual: Tensor, weight: Tensor, bias: Tensor
    ) -> tuple[Tensor, ...]:
        x = x + shift
        if mask is not None:
            x = x * mask[:, :dim] * draws.limit_and_scale(p)[1]
        summed = residual + x
        out = F.layer_norm(summed, (dim,), weight, bias, 1e-5)
        return summed, out, out

    yield Trial(
        lambda *given: KernelResidual.apply(*given, 1e-5, p, seed),
        plain,
        [x, draw(dim), draw(tokens, dim), 1 + 0.1 * draw(dim), draw(dim)],
    )
