"""Mean pooling of packed sequences over time and features, and its inverse, as Triton kernels.

Either is one kernel forward and one backward, as the gradient of a sum repeats and that of a
repetition sums up. The inverse also adds the first block. A program finds its rows from the starts
of sentences; plain torch has some 30 kernels for that and for padding the windows.
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

from fairseq_plugins.layers.compression import FeaturePooling, TimePooling
from fairseq_plugins.layers.packed import Layout, Windows

from . import Trial

BLOCKS = {"tile": 2048}  # maximum numbers at a time. Others are not measured yet


@triton.jit(do_not_specialize=["rows"])
def _sum(
    x, starts, pooled_starts, sentence, out, rows,
    dim: tl.constexpr, DIM: tl.constexpr, ROWS: tl.constexpr,
    window: tl.constexpr, features: tl.constexpr, FEATURES: tl.constexpr, MEAN: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    feature, part = tl.arange(0, DIM), tl.arange(0, FEATURES)
    of = tl.load(sentence + row, mask=row < rows, other=0)
    first = tl.load(starts + of) + (row - tl.load(pooled_starts + of)) * window
    left = tl.load(starts + of + 1) - first  # below 1 without rows to pool
    column = feature[:, None] * features + part[None, :]
    real = (row < rows)[:, None, None]
    real = real & ((feature < dim)[:, None] & (part < features)[None, :])[None, :, :]
    total = tl.zeros((ROWS, DIM, FEATURES), dtype=tl.float32)
    for step in range(window):  # not unrolled: the windows of all blocks multiply
        at = ((first + step) * (dim * features))[:, None, None] + column[None, :, :]
        total += tl.load(x + at, mask=real & (step < left)[:, None, None], other=0.0).to(tl.float32)
    pooled = tl.sum(total, axis=2)
    if MEAN:
        count = tl.minimum(tl.maximum(left, 1), window) * features
        pooled = pooled / count.to(tl.float32)[:, None]
    at = row[:, None].to(tl.int64) * dim + feature[None, :]
    real = (row < rows)[:, None] & (feature < dim)[None, :]
    tl.store(out + at, pooled.to(out.dtype.element_ty), mask=real)


@triton.jit(do_not_specialize=["rows"])
def _repeat(
    x, starts, pooled_starts, sentence, first, out, rows,
    dim: tl.constexpr, DIM: tl.constexpr, ROWS: tl.constexpr,
    window: tl.constexpr, features: tl.constexpr, MEAN: tl.constexpr, ADDS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    feature = tl.arange(0, DIM)
    of = tl.load(sentence + row, mask=row < rows, other=0)
    start = tl.load(starts + of)
    number = (row - start) // window  # of the window in its sentence
    real = (row < rows)[:, None] & (feature < dim)[None, :]
    at = (tl.load(pooled_starts + of) + number) * (dim // features)
    found = tl.load(x + at[:, None] + (feature // features)[None, :], mask=real, other=0.0)
    found = found.to(tl.float32)
    if MEAN:
        left = tl.load(starts + of + 1) - start - number * window
        found = found / (tl.minimum(left, window) * features).to(tl.float32)[:, None]
    at = row[:, None].to(tl.int64) * dim + feature[None, :]
    if ADDS:
        found += tl.load(first + at, mask=real, other=0.0).to(tl.float32)
    tl.store(out + at, found.to(out.dtype.element_ty), mask=real)


def _sums(x: Tensor, windows: Windows, features: int, mean: bool) -> Tensor:
    """N x C -> P x C / features: the sum, or the mean, of each window."""
    rows, dim = windows.pooled.rows, x.size(1) // features
    out = x.new_empty(rows, dim)
    width = triton.next_power_of_2(features)
    blocks = _blocks(dim, width)
    with torch.cuda.device_of(x):  # Triton launches on the current GPU
        _sum[(triton.cdiv(rows, blocks["ROWS"]),)](
            x.contiguous(), windows.at.starts, windows.pooled.starts, windows.pooled.sentence, out,
            rows, window=windows.window, features=features, FEATURES=width, MEAN=mean, **blocks,
        )  # fmt: skip
    return out


def _repeated(
    x: Tensor, windows: Windows, features: int, mean: bool, first: Tensor | None = None
) -> Tensor:
    """P x C' -> N x C' features: each number over its window, or its share; `first` is added."""
    rows, dim = windows.at.rows, x.size(1) * features
    out = x.new_empty(rows, dim)
    blocks = _blocks(dim)
    with torch.cuda.device_of(x):
        _repeat[(triton.cdiv(rows, blocks["ROWS"]),)](
            x.contiguous(), windows.at.starts, windows.pooled.starts, windows.at.sentence,
            x if first is None else first.contiguous(), out,
            rows, window=windows.window, features=features, MEAN=mean,
            ADDS=first is not None, **blocks,
        )  # fmt: skip
    return out


def _blocks(dim: int, width: int = 1) -> Any:
    size = triton.next_power_of_2(dim)
    return {"dim": dim, "DIM": size, "ROWS": max(1, BLOCKS["tile"] // (size * width))}


class KernelPooling(torch.autograd.Function):
    """The mean of each window.

    Args:
        x: N x C.
        windows: over time.
        features: neighbouring features to a window.

    Returns:
        P x C / features.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, windows: Windows, features: int) -> Tensor:
        ctx.windows, ctx.features = windows, features
        return _sums(x, windows, features, True)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _repeated(grad, ctx.windows, ctx.features, True), None, None


class KernelUpsampling(torch.autograd.Function):
    """``first`` plus each row and feature of x, repeated over its window.

    Args:
        first: N x C.
        x: P x C / features.
        windows, features: as for `KernelPooling`.

    Returns:
        N x C.
    """

    @staticmethod
    def forward(ctx: Any, first: Tensor, x: Tensor, windows: Windows, features: int) -> Tensor:
        ctx.windows, ctx.features = windows, features
        return _repeated(x, windows, features, False, first)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return grad, _sums(grad, ctx.windows, ctx.features, False), None, None


def trials(draw: Callable[..., Tensor], dim: int, window: int, features: int) -> Iterator[Trial]:
    """The trials of `kernels.usable`, for C and the windows over time and features."""
    x, long, short = draw(37, dim), -(-30 // window), -(-7 // window)

    def layout(*starts: int) -> Layout:
        return Layout(torch.tensor(starts, device=x.device), starts[-1], 30)

    at, pooled = layout(0, 30, 30, 37), layout(0, long, long, long + short + 2)
    windows = Windows(at, pooled if window > 1 else at, window)
    time, average = TimePooling(window), FeaturePooling(dim, features)
    yield Trial(
        lambda x: KernelPooling.apply(x, windows, features),
        lambda x: average(windows.pool(x, time).unsqueeze(1)).squeeze(1),
        [x],
    )
    yield Trial(
        lambda *given: KernelUpsampling.apply(*given, windows, features),
        windows.upsample,
        [x, draw(windows.pooled.rows, dim // features)],
    )
