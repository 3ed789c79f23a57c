"""The gradients of queries, keys and values side by side, and their sum, as one Triton kernel.

Attention's backward gives three gradients. The products that follow need them as one matrix, and
the bias their sum over the rows. The kernel writes the matrix and adds the rows of a program;
`add_parts` adds those of all programs. Plain torch concatenates, and reads the matrix once more.
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

from . import Trial
from .sums import PROGRAMS, add_parts

BLOCKS = {"ROWS": 16, "COLS": 128}  # numbers at a time. Others are not measured yet


@triton.jit(do_not_specialize=["rows"])
def _join(
    grad_q, grad_k, grad_v, joined, sums, rows,
    dim: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    part = tl.program_id(2)
    grad = grad_q
    if part == 1:
        grad = grad_k
    if part == 2:
        grad = grad_v
    col = tl.program_id(1) * COLS + tl.arange(0, COLS)
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        row = start + tl.arange(0, ROWS)
        at = row[:, None].to(tl.int64) * dim
        real = (row[:, None] < rows) & (col[None, :] < dim)
        g = tl.load(grad + at + col[None, :], mask=real, other=0.0)
        tl.store(joined + 3 * at + part * dim + col[None, :], g, mask=real)
        total += g.to(tl.float32)
    at = tl.program_id(0) * 3 * dim + part * dim + col
    tl.store(sums + at, tl.sum(total, axis=0), mask=col < dim)


class KernelProjections(torch.autograd.Function):
    """``linear(x, weight, bias)`` in three equal parts; see `layers.projections`.

    Args:
        x: ... x d.
        weight: 3 d' x d.
        bias: 3 d'.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight, bias).chunk(3, dim=-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        x, weight = ctx.saved_tensors
        x_rows = x.reshape(-1, x.size(-1))
        rows, dim = len(x_rows), len(weight) // 3
        cols = triton.cdiv(dim, BLOCKS["COLS"])
        programs = min(max(1, PROGRAMS // (3 * cols)), triton.cdiv(rows, BLOCKS["ROWS"]))
        joined = x.new_empty(rows, 3 * dim)
        sums = x.new_empty(programs, 3 * dim, dtype=torch.float32)
        _join[programs, cols, 3](
            *(grad.contiguous() for grad in grads), joined, sums, rows, dim=dim, **BLOCKS
        )
        grad_x = torch.mm(joined, weight).view_as(x)
        return grad_x, torch.mm(joined.t(), x_rows), add_parts(sums, weight.dtype)


def trials(draw: Callable[..., Tensor], dim: int) -> Iterator[Trial]:
    """The trials of `kernels.usable`, for d'."""
    x, weight, bias = draw(37, 16), draw(3 * dim, 16), draw(3 * dim)

    def plain(x: Tensor, weight: Tensor, bias: Tensor) -> tuple[Tensor, ...]:
        return F.linear(x, weight, bias).chunk(3, dim=-1)

    yield Trial(KernelProjections.apply, plain, [x, weight, bias])
