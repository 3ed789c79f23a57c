"""Bias, ReLU and dropout as one Triton kernel forward, and one plus a sum backward.

Backward reads the result, which is 0 wherever ReLU or dropout made it 0, and so needs neither the
input nor a mask. It also sums up the gradient of the bias over the rows of a program; `add_parts`
adds those of all programs.
"""

# Triton pointers have no Python type.
# mypy: disallow-incomplete-defs=False

from collections.abc import Callable, Iterator
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import Trial, draws
from .sums import PROGRAMS, add_parts

BLOCKS = {"ROWS": 16, "COLS": 128}  # numbers at a time. Others are not measured yet


@triton.jit(do_not_specialize=["rows", "limit"])
def _forward(
    x, bias, seed, out, rows, scale, limit,
    dim: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    start = tl.program_id(1) * COLS
    col = start + tl.arange(0, COLS)
    at = row[:, None].to(tl.int64) * dim + col[None, :]
    real = (row[:, None] < rows) & (col[None, :] < dim)
    y = tl.load(x + at, mask=real, other=0.0).to(tl.float32)
    y += tl.load(bias + col, mask=col < dim, other=0.0).to(tl.float32)[None, :]
    y = tl.where(y <= 0, 0.0, y)  # keeps NaN, like torch's
    if DROPS:
        kept = draws.kept(seed, 0, limit, row, (dim + 7) // 8, start, COLS)
        y = tl.where(kept, y * scale, 0.0)
    tl.store(out + at, y.to(out.dtype.element_ty), mask=real)


@triton.jit(do_not_specialize=["rows"])
def _backward(
    out, grad, grad_x, sums, rows, scale,
    dim: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    col = tl.program_id(1) * COLS + tl.arange(0, COLS)
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        row = start + tl.arange(0, ROWS)
        at = row[:, None].to(tl.int64) * dim + col[None, :]
        real = (row[:, None] < rows) & (col[None, :] < dim)
        y = tl.load(out + at, mask=real, other=0.0).to(tl.float32)
        g = tl.load(grad + at, mask=real, other=0.0).to(tl.float32)
        g = tl.where(y <= 0, 0.0, g * scale)
        tl.store(grad_x + at, g.to(grad_x.dtype.element_ty), mask=real)
        total += g
    tl.store(sums + tl.program_id(0) * dim + col, tl.sum(total, axis=0), mask=col < dim)


class KernelActivation(torch.autograd.Function):
    """``dropout(relu(x + bias))``; see `layers.activation`.

    Args:
        x: ... x d.
        bias: d.
        p: dropout probability.
        seed: the seed of the draws; None drops nothing.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, p: float, seed: Tensor | None) -> Tensor:
        x = x.contiguous()
        dim = x.size(-1)
        rows = x.numel() // dim
        limit, scale = draws.limit_and_scale(p) if seed is not None else (0, 1.0)
        out = torch.empty_like(x)
        grid = triton.cdiv(rows, BLOCKS["ROWS"]), triton.cdiv(dim, BLOCKS["COLS"])
        with torch.cuda.device_of(x):  # Triton launches on the current GPU
            _forward[grid](
                x, bias, x if seed is None else seed, out, rows, scale, limit,
                dim=dim, DROPS=seed is not None, **BLOCKS,
            )  # fmt: skip
        ctx.save_for_backward(out)
        ctx.scale, ctx.dtype = scale, bias.dtype
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (out,) = ctx.saved_tensors
        dim = out.size(-1)
        rows, cols = out.numel() // dim, triton.cdiv(dim, BLOCKS["COLS"])
        programs = min(max(1, PROGRAMS // cols), triton.cdiv(rows, BLOCKS["ROWS"]))
        grad_x, sums = torch.empty_like(out), out.new_empty(programs, dim, dtype=torch.float32)
        _backward[programs, cols](
            out, grad.contiguous(), grad_x, sums, rows, ctx.scale, dim=dim, **BLOCKS
        )
        return grad_x, add_parts(sums, ctx.dtype), None, None


def trials(draw: Callable[..., Tensor], dim: int, drops: int) -> Iterator[Trial]:
    """The trials of `kernels.usable`, for d and whether dropout is on."""
    rows, p = 37, 0.3
    x, bias = draw(rows, dim), draw(dim)
    x += 0.1 * (x + bias).sign()  # no sum so near zero that rounding changes ReLU
    seed = torch.tensor([5], device=x.device) if drops else None
    mask = draws.mask(seed, p, rows, dim)

    def plain(x: Tensor, bias: Tensor) -> Tensor:
        y = torch.relu(x + bias)
        return y if mask is None else y * mask * draws.limit_and_scale(p)[1]

    yield Trial(lambda *given: KernelActivation.apply(*given, p, seed), plain, [x, bias])
