"""Sum the parts that programs wrote, in a fixed order: results are reproducible."""

# Triton pointers have no Python type.
# mypy: disallow-incomplete-defs=False

import torch
import triton
import triton.language as tl
from torch import Tensor

# that write parts: two per multiprocessor of an H100, and the same on every GPU, as rounding
# depends on it
PROGRAMS = 264
TILE = 4096  # numbers at a time


@triton.jit(do_not_specialize=["number"])
def _add(parts, out, number, size, ROWS: tl.constexpr, COLS: tl.constexpr):
    col = tl.program_id(0) * COLS + tl.arange(0, COLS)
    total = tl.zeros((ROWS, COLS), dtype=tl.float32)
    for start in range(0, number, ROWS):
        row = start + tl.arange(0, ROWS)
        at = row[:, None].to(tl.int64) * size + col[None, :]
        real = (row[:, None] < number) & (col[None, :] < size)
        total += tl.load(parts + at, mask=real, other=0.0)
    tl.store(out + col, tl.sum(total, axis=0).to(out.dtype.element_ty), mask=col < size)


def add_parts(parts: Tensor, dtype: torch.dtype) -> Tensor:
    """The sum of the rows of a float32 matrix, rounded once to `dtype`."""
    number, size = parts.shape
    out = parts.new_empty(size, dtype=dtype)
    rows = min(128, triton.next_power_of_2(number))
    cols = TILE // rows
    _add[(triton.cdiv(size, cols),)](parts, out, number, size, ROWS=rows, COLS=cols)
    return out
