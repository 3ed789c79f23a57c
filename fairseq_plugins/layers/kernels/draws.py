"""Dropout in Triton kernels: forward and backward repeat the draws, with no mask in memory.

A kernel draws from a seed (on the GPU) and the number of an element, by Philox with seven rounds
(Salmon et al. 2011). The seed comes from torch's generator of that GPU (`layers/dropout.py`).
Therefore torch.manual_seed determines all draws, checkpointed activations repeat theirs, and a CUDA
graph draws anew in each replay: torch advances its generator for `random_` within a graph, and the
kernels read the result.
"""

# Triton pointers have no Python type.
# mypy: disallow-incomplete-defs=False

import torch
import triton
import triton.language as tl
from torch import Tensor

# a draw has 16 bits: one call of Philox gives eight; otherwise it took longer than a LayerNorm
STEPS = 2**16


def limit_and_scale(p: float) -> tuple[int, float]:
    """The number of the `STEPS` draws that keep an element, and the factor that compensates.

    p is rounded to a multiple of 1 / `STEPS`; the factor belongs to the rounded one.
    """
    limit = round((1 - p) * STEPS)
    return limit, STEPS / limit if limit else 0.0


@triton.jit
def kept(seed, first, limit, rows, GROUPS: tl.constexpr, START, WIDTH: tl.constexpr):
    """Which of `WIDTH` elements of each row are kept: len(rows) x WIDTH.

    Args:
        seed: a pointer to the seed.
        first: the number of the first row among all rows of this draw.
        limit: from `limit_and_scale`.
        rows: the numbers of the rows, relative to `first`.
        GROUPS: groups of eight in a whole row.
        START: the first element, a multiple of eight.
    """
    group = START // 8 + tl.arange(0, WIDTH // 8)
    at = ((first + rows)[:, None] * GROUPS + group[None, :]).to(tl.uint32)
    a, b, c, d = tl.randint4x(tl.load(seed), at, n_rounds=7)
    four = tl.join(tl.join(a, b), tl.join(c, d))
    eight = tl.join(four & 0xFFFF, (four >> 16) & 0xFFFF)
    return tl.reshape(eight.to(tl.int32), (at.shape[0], WIDTH)) < limit


@triton.jit
def kept_alone(seed, limit, row, column, GROUPS: tl.constexpr):
    """The same for elements of any shape: each calls Philox by itself, so nothing moves.

    Where a program has few elements for its threads, this costs no more than `kept`.

    Args:
        row, column: the numbers of the elements, which broadcast; rows among all of this draw.
    """
    a, b, c, d = tl.randint4x(tl.load(seed), (row * GROUPS + column // 8).to(tl.uint32), n_rounds=7)
    word = column % 8 // 2  # in the order of `kept`
    four = tl.where(word == 0, a, tl.where(word == 1, c, tl.where(word == 2, b, d)))
    eight = tl.where(column % 2 == 0, four & 0xFFFF, (four >> 16) & 0xFFFF)
    return eight.to(tl.int32) < limit


@triton.jit(do_not_specialize=["rows", "limit"])
def _mask(seed, out, limit, rows, width, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    start = tl.program_id(1) * WIDTH
    col = start + tl.arange(0, WIDTH)
    mask = kept(seed, 0, limit, row, (width + 7) // 8, start, WIDTH)
    real = (row[:, None] < rows) & (col[None, :] < width)
    tl.store(out + row[:, None].to(tl.int64) * width + col[None, :], mask, mask=real)


def mask(seed: Tensor | None, p: float, rows: int, width: int) -> Tensor | None:
    """Which elements of `rows` rows are kept: bool, rows x width; without a seed, None."""
    if seed is None:
        return None
    out = torch.empty(rows, width, dtype=torch.bool, device=seed.device)
    limit, _ = limit_and_scale(p)
    grid = (triton.cdiv(rows, 16), triton.cdiv(width, 64))
    _mask[grid](seed, out, limit, rows, width, ROWS=16, WIDTH=64)
    return out
