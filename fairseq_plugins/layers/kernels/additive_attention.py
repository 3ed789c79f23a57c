"""Fastformer's additive attention as Triton kernels that read x once.

A forward program reads one part of one sentence. It computes the scores of all heads, a running
softmax and the weighted sum of its rows. Another kernel combines the parts, as in flash decoding.
Backward recomputes the weights from the saved maximum and total. The mean in softmax's gradient
needs no extra pass: it is the dot product of the sum and its gradient.

Features are cut into slices, the first dimension of all products: each warp holds a slice of the
directions in registers and reads its slice of every row. Without slices, each warp would read whole
rows and all directions from shared memory, whose bandwidth then is the limit. Parts are few,
because each writes its sums in float32: with 256 positions per part, these were a quarter of the
bytes of x.
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

from . import LARGE, Trial, block, draws, shared_memory_of
from .sums import add_parts

PROGRAMS = 264  # at a time: two on each multiprocessor of an H100; the same on every GPU, as
# rounding depends on it
LEAST = 128  # minimum positions per part
# Positions at a time, steps loaded ahead, and registers on GPUs with much shared memory. With two
# stages, the next rows are requested only when the last ones were used. 128 registers leave room
# for two programs per multiprocessor, of which one waits for memory. Other sizes are not measured
# yet.
BLOCKS: dict[str, dict[str, int]] = {
    "forward": {"TIMES": 16, "num_stages": 3, "maxnreg": 128},
    "backward": {"TIMES": 16, "num_stages": 3},
}
STEP = 32  # positions, a multiple of all TIMES; parts begin at multiples of it


@triton.jit
def _at(rows, stride, SLICES: tl.constexpr, SLICE: tl.constexpr):
    """The addresses of the features of some rows: SLICES x len(rows) x SLICE."""
    feature = tl.arange(0, SLICES)[:, None] * SLICE + tl.arange(0, SLICE)[None, :]
    return rows[None, :, None].to(tl.int64) * stride + feature[:, None, :]


@triton.jit
def _real(rows, number, dim: tl.constexpr, SLICES: tl.constexpr, SLICE: tl.constexpr):
    """Which of them exist, among `number` rows of `dim` features."""
    feature = tl.arange(0, SLICES)[:, None] * SLICE + tl.arange(0, SLICE)[None, :]
    return (rows[None, :, None] < number) & (feature[:, None, :] < dim)


@triton.jit
def _sentence(x, starts, b, bsz, length, stride_t, stride_b, HAS_STARTS: tl.constexpr):
    """A sentence's offset in x, its length, its first row, and the stride between its rows."""
    if HAS_STARTS:
        first = tl.load(starts + b).to(tl.int64)
        length = (tl.load(starts + b + 1) - first).to(tl.int32)
        x += first * stride_t
        step = 1
    else:
        first = b
        x += b * stride_b
        step = bsz
    return x, length, first, step


@triton.jit
def _products(heads, rows):
    """Each head times each row: HEADS x TIMES."""
    return tl.sum(tl.dot(heads, tl.permute(rows, (0, 2, 1)), input_precision="ieee"), axis=0)


@triton.jit
def _for_slices(x, SLICES: tl.constexpr):
    """The same matrix for every slice."""
    return tl.broadcast_to(x[None, :, :], (SLICES, x.shape[0], x.shape[1]))


@triton.jit
def _hidden(scores, mask, b, length, times, HAS_MASK: tl.constexpr):
    """Scores with -inf past the end and a low finite number at padding, and the padding."""
    padded = tl.zeros(times.shape, dtype=tl.int1)
    if HAS_MASK:
        padded = tl.load(mask + b * length + times, mask=times < length, other=0) != 0
        # finite, so that a sentence of padding only gets finite weights
        scores = tl.where(padded[None, :], -3e38, scores)
    return tl.where(times[None, :] < length, scores, float("-inf")), padded


@triton.jit
def _dropped(
    weights, seed, limit, scale, first, step, times, HEADS: tl.constexpr, DROPS: tl.constexpr
):  # fmt: skip
    """Dropout of HEADS x TIMES weights."""
    if DROPS:
        row = (first + times * step)[None, :]
        mask = draws.kept_alone(seed, limit, row, tl.arange(0, HEADS)[:, None], HEADS // 8)
        weights = tl.where(mask, weights * scale, 0.0)
    return weights


@triton.jit(do_not_specialize=["bsz", "length", "part_length", "limit"])
def _forward(
    x, directions, mask, starts, seed, out, out_sum, out_max, out_total,
    bsz, length, part_length, stride_t, stride_b, direction_stride, scaling, scale, limit,
    dim: tl.constexpr, heads: tl.constexpr, HEADS: tl.constexpr,
    SLICES: tl.constexpr, SLICE: tl.constexpr, TIMES: tl.constexpr,
    HAS_MASK: tl.constexpr, HAS_STARTS: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    head = tl.arange(0, HEADS)
    of_heads, real = _at(head, dim, SLICES, SLICE), _real(head, heads, dim, SLICES, SLICE)
    to = tl.load(directions + b * direction_stride + of_heads, mask=real, other=0.0)
    x, length, first, step = _sentence(
        x, starts, b, bsz, length, stride_t, stride_b, HAS_STARTS
    )  # fmt: skip
    largest = tl.full((HEADS,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((HEADS,), dtype=tl.float32)
    kept = tl.zeros((HEADS,), dtype=tl.float32)
    summary = tl.zeros((SLICES, HEADS, SLICE), dtype=tl.float32)
    for start in range(part * part_length, min(length, (part + 1) * part_length), TIMES):
        times = start + tl.arange(0, TIMES)
        at = x + _at(times, stride_t, SLICES, SLICE)
        rows = tl.load(at, mask=_real(times, length, dim, SLICES, SLICE), other=0.0)
        scores = _products(to, rows) * scaling
        scores, _ = _hidden(scores, mask, b, length, times, HAS_MASK)
        larger = tl.maximum(largest, tl.max(scores, axis=1))
        shrink = tl.exp(largest - larger)
        weights = tl.exp(scores - larger[:, None])
        total = total * shrink + tl.sum(weights, axis=1)
        weights = _dropped(weights, seed, limit, scale, first, step, times, HEADS, DROPS)
        kept = kept * shrink + tl.sum(weights, axis=1)
        summary = summary * shrink[None, :, None]
        weights = _for_slices(weights.to(rows.dtype), SLICES)
        summary = tl.dot(weights, rows, summary, input_precision="ieee")
        largest = larger
    place = (part.to(tl.int64) * bsz + b) * heads
    tl.store(out_max + place + head, largest, mask=head < heads)
    tl.store(out_total + place + head, total, mask=head < heads)
    tl.store(out_sum + place + head, kept, mask=head < heads)
    tl.store(out + place * dim + of_heads, summary, mask=real)


@triton.jit(do_not_specialize=["parts", "rows"])
def _combine(
    sums, kept, largest, total, summary, weight, rounded, rounded_weight, out_max, out_total,
    parts, rows, dim, DIM: tl.constexpr,
):  # fmt: skip
    """Combine the parts of one head of one sentence, in float32 and in the dtype of x."""
    row = tl.program_id(0).to(tl.int64)
    feature = tl.arange(0, DIM)
    maximum = tl.load(largest + row)
    for part in range(1, parts):
        maximum = tl.maximum(maximum, tl.load(largest + part * rows + row))
    maximum = tl.where(maximum == float("-inf"), 0.0, maximum)  # for an empty sentence
    # not merged into maximum + log(total): next to the -3e38 of padding, the log would vanish
    denominator = 0.0
    for part in range(0, parts):
        at = part * rows + row
        denominator += tl.load(total + at) * tl.exp(tl.load(largest + at) - maximum)
    denominator = tl.where(denominator == 0, 1.0, denominator)
    sum_of_weights = 0.0
    result = tl.zeros((DIM,), dtype=tl.float32)
    for part in range(0, parts):
        at = part * rows + row
        share = tl.exp(tl.load(largest + at) - maximum) / denominator
        sum_of_weights += tl.load(kept + at) * share
        result += tl.load(sums + at * dim + feature, mask=feature < dim, other=0.0) * share
    tl.store(summary + row * dim + feature, result, mask=feature < dim)
    to = rounded.dtype.element_ty
    tl.store(rounded + row * dim + feature, result.to(to), mask=feature < dim)
    tl.store(weight + row, sum_of_weights)
    tl.store(rounded_weight + row, tl.cast(sum_of_weights, to))
    tl.store(out_max + row, maximum)
    tl.store(out_total + row, denominator)


@triton.jit(do_not_specialize=["bsz", "length", "part_length", "limit"])
def _backward(
    x, directions, mask, starts, seed, maximum, softmax_total, grad, grad_sum, summary, weight,
    grad_x, grad_directions,
    bsz, length, part_length, stride_t, stride_b, direction_stride, scaling, scale, limit,
    dim: tl.constexpr, heads: tl.constexpr, HEADS: tl.constexpr,
    SLICES: tl.constexpr, SLICE: tl.constexpr, TIMES: tl.constexpr,
    HAS_MASK: tl.constexpr, HAS_STARTS: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    head = tl.arange(0, HEADS)
    of_head = b * heads + head
    maximum_h = tl.load(maximum + of_head, mask=head < heads, other=0.0)
    total_h = tl.load(softmax_total + of_head, mask=head < heads, other=1.0)
    grad_sum_h = tl.load(grad_sum + of_head, mask=head < heads, other=0.0).to(tl.float32)
    of_heads, real = _at(head, dim, SLICES, SLICE), _real(head, heads, dim, SLICES, SLICE)
    to = tl.load(directions + b * direction_stride + of_heads, mask=real, other=0.0)
    grad_h = tl.load(grad + b * heads * dim + of_heads, mask=real, other=0.0)
    summary_h = tl.load(summary + b * heads * dim + of_heads, mask=real, other=0.0)
    mean_h = tl.sum(tl.sum(summary_h * grad_h.to(tl.float32), axis=2), axis=0)
    mean_h += grad_sum_h * tl.load(weight + of_head, mask=head < heads, other=0.0)
    total = tl.zeros((SLICES, HEADS, SLICE), dtype=tl.float32)
    x, length, first, step = _sentence(
        x, starts, b, bsz, length, stride_t, stride_b, HAS_STARTS
    )  # fmt: skip
    for start in range(part * part_length, min(length, (part + 1) * part_length), TIMES):
        times = start + tl.arange(0, TIMES)
        at = x + _at(times, stride_t, SLICES, SLICE)
        rows = tl.load(at, mask=_real(times, length, dim, SLICES, SLICE), other=0.0)
        scores = _products(to, rows) * scaling
        scores, padded = _hidden(scores, mask, b, length, times, HAS_MASK)
        weights = tl.exp(scores - maximum_h[:, None]) / total_h[:, None]
        grad_weights = _products(grad_h, rows) + grad_sum_h[:, None]
        grad_weights = _dropped(grad_weights, seed, limit, scale, first, step, times, HEADS, DROPS)
        grad_scores = weights * (grad_weights - mean_h[:, None]) * scaling
        # scores of padding are constants, even if all is padding and their weights are not zero
        known = (times[None, :] < length) & (padded[None, :] == 0) & (head[:, None] < heads)
        grad_scores = tl.where(known, grad_scores, 0.0).to(rows.dtype)
        weights = _dropped(weights, seed, limit, scale, first, step, times, HEADS, DROPS)
        weights = weights.to(rows.dtype)
        of_rows = tl.dot(_for_slices(tl.trans(grad_scores), SLICES), to, input_precision="ieee")
        kept_weights = _for_slices(tl.trans(weights), SLICES)
        of_rows = tl.dot(kept_weights, grad_h, of_rows, input_precision="ieee")
        at = grad_x + first * dim + _at(times, step * dim, SLICES, SLICE)
        mask_rows = _real(times, length, dim, SLICES, SLICE)
        tl.store(at, of_rows.to(grad_x.dtype.element_ty), mask=mask_rows)
        total = tl.dot(_for_slices(grad_scores, SLICES), rows, total, input_precision="ieee")
    place = (part.to(tl.int64) * bsz + b) * heads * dim
    tl.store(grad_directions + place + of_heads, total, mask=real)


class KernelSums(torch.autograd.Function):
    """`token_mixers.additive_attention.WeightedSums` on a GPU.

    The same arguments and result, but no float64, and dropout of the weights as its probability
    and a seed (None drops nothing).

    With `starts`, S + 1, x is N x d with concatenated sentences: the start of each sentence, and
    the end of the last one, N. None has more than `longest` rows; an empty one has a sum of
    zeros.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        directions: Tensor,
        padding_mask: Tensor | None,
        scaling: float,
        p: float,
        seed: Tensor | None,
        starts: Tensor | None = None,
        longest: int = 0,
    ) -> tuple[Tensor, Tensor]:
        x = x if x.stride(-1) == 1 else x.contiguous()
        directions = directions.contiguous()
        mask = None if padding_mask is None else padding_mask.contiguous()
        dim, heads = x.size(-1), directions.size(-2)
        bsz, length = _grid(x, starts, longest)
        parts, part_length = _parts(bsz, length, heads)
        strides = (x.stride(0), x.stride(1), heads * dim if directions.dim() == 3 else 0)
        ctx.numbers = (bsz, length, part_length, *strides, scaling, *_draw(p, seed))
        ctx.longest = longest
        sums = torch.empty(parts, bsz, heads, dim, dtype=torch.float32, device=x.device)
        kept, largest, total = torch.empty(
            3, parts, bsz, heads, dtype=torch.float32, device=x.device
        ).unbind()
        # sums in float32: backward subtracts means computed from them, and what x has in
        # common at all positions must cancel
        summary = torch.empty(bsz, heads, dim, dtype=torch.float32, device=x.device)
        weight, maximum, all_total = torch.empty(
            3, bsz, heads, dtype=torch.float32, device=x.device
        ).unbind()
        rounded, rounded_weight = x.new_empty(bsz, heads, dim), x.new_empty(bsz, heads, 1)
        with torch.cuda.device_of(x):  # Triton launches on the current GPU
            _forward[(bsz, parts)](
                x, directions, x if mask is None else mask, x if starts is None else starts,
                x if seed is None else seed, sums, kept, largest, total, *ctx.numbers,
                **_blocks("forward", dim, heads, mask, starts, seed, shared_memory_of(x)),
            )  # fmt: skip
            _combine[(bsz * heads,)](
                sums, kept, largest, total, summary, weight, rounded, rounded_weight,
                maximum, all_total, parts, bsz * heads, dim, DIM=block(dim),
            )  # fmt: skip
        ctx.save_for_backward(
            x, directions, mask, starts, seed, maximum, all_total, summary, weight
        )  # fmt: skip
        return rounded, rounded_weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, grad_sum: Tensor) -> tuple[Tensor | None, ...]:
        (
            x, directions, mask, starts, seed, maximum, total, summary, weight
        ) = ctx.saved_tensors  # fmt: skip
        dim, heads = x.size(-1), directions.size(-2)
        bsz, length = _grid(x, starts, ctx.longest)
        grad_x = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        parts, _ = _parts(bsz, length, heads)
        sums = torch.empty(parts, bsz, heads, dim, dtype=torch.float32, device=x.device)
        _backward[(bsz, parts)](
            x, directions, x if mask is None else mask, x if starts is None else starts,
            x if seed is None else seed, maximum, total, grad.contiguous(),
            grad_sum.contiguous(), summary, weight, grad_x, sums, *ctx.numbers,
            **_blocks("backward", dim, heads, mask, starts, seed, shared_memory_of(x)),
        )  # fmt: skip
        rows = parts * bsz if directions.dim() == 2 else parts
        grad_directions = add_parts(sums.view(rows, -1), directions.dtype)
        return grad_x, grad_directions.view(directions.shape), *[None] * 6


def _parts(bsz: int, length: int, heads: int) -> tuple[int, int]:
    """How many parts to cut a sentence into, and positions per part: the fastest by rows read.

    Each part costs as much as the rows that equal its sums, written and read in float32.
    """
    most = max(1, triton.cdiv(length, LEAST))

    def rows(parts: int) -> int:
        at_a_time = triton.cdiv(bsz * parts, PROGRAMS)
        return at_a_time * (triton.cdiv(length, parts) + 4 * heads + STEP)

    parts = min(range(1, most + 1), key=rows)
    part_length = triton.cdiv(triton.cdiv(length, parts), STEP) * STEP
    return triton.cdiv(length, part_length), part_length


def _grid(x: Tensor, starts: Tensor | None, longest: int) -> tuple[int, int]:
    """How many sentences there are, and the length of the longest."""
    return (x.size(1), x.size(0)) if starts is None else (starts.numel() - 1, longest)


def _draw(p: float, seed: Tensor | None) -> tuple[float, int]:
    limit, scale = draws.limit_and_scale(p)
    return (1.0, 0) if seed is None else (scale, limit)


def _blocks(
    kernel: str,
    dim: int,
    heads: int,
    mask: Tensor | None,
    starts: Tensor | None,
    seed: Tensor | None,
    shared_memory: int,
) -> Any:
    features = block(dim)
    slices = min(8, features // 16)
    chosen = {
        "dim": dim,
        "heads": heads,
        "HEADS": block(heads),
        "SLICES": slices,
        "SLICE": features // slices,
        "HAS_MASK": mask is not None,
        "HAS_STARTS": starts is not None,
        "DROPS": seed is not None,
        "num_warps": max(4, slices),
        **BLOCKS[kernel],
    }
    return chosen if shared_memory >= LARGE else {**chosen, "num_stages": 2}


def trials(draw: Callable[..., Tensor], dim: int, heads: int, drops: int) -> Iterator[Trial]:
    """The trials of `kernels.usable`, for d, h and whether dropout is on."""
    from fairseq_plugins.layers.additive_attention import WeightedSums

    length, bsz, p = 2 * LEAST + 5, 3, 0.3
    x = draw(length, bsz, dim)
    seed = torch.tensor([5], device=x.device) if drops else None
    mask = draws.mask(seed, p, length * bsz, block(heads))
    keep = None
    if mask is not None:
        keep = mask[:, :heads].view(length, bsz, heads).float() * draws.limit_and_scale(p)[1]
    padding = torch.zeros(bsz, length, dtype=torch.bool, device=x.device)
    padding[0, -3:] = True
    for hidden, directions in ((None, draw(heads, dim)), (padding, draw(bsz, heads, dim))):

        def fast(x: Tensor, directions: Tensor, hidden: Tensor | None = hidden) -> Any:
            return KernelSums.apply(x, directions, hidden, dim**-0.5, p, seed)

        def plain(x: Tensor, directions: Tensor, hidden: Tensor | None = hidden) -> Any:
            return WeightedSums.apply(x, directions, hidden, dim**-0.5, keep)

        yield Trial(fast, plain, [x, directions])

    # concatenated sentences, one of them empty
    ends = [length - 7, length - 7, length + 20, bsz * length]
    starts = torch.tensor([0, *ends], device=x.device)

    def forward_packed(x: Tensor, directions: Tensor) -> Any:
        rows = x.flatten(0, 1)
        return KernelSums.apply(rows, directions, None, dim**-0.5, p, seed, starts, 2 * length)

    def one_by_one(x: Tensor, directions: Tensor) -> Any:
        rows, found = x.reshape(-1, 1, dim), []
        kept = None if keep is None else keep.reshape(-1, 1, heads)
        for sentence, (start, end) in enumerate(zip([0, *ends], ends)):
            own = directions[sentence : sentence + 1]
            factors = None if kept is None else kept[start:end]
            if start == end:
                found.append((own * 0, own[:, :, :1] * 0))
            else:
                found.append(WeightedSums.apply(rows[start:end], own, None, dim**-0.5, factors))
        return tuple(torch.cat(parts) for parts in zip(*found))

    yield Trial(forward_packed, one_by_one, [x, draw(len(ends), heads, dim)])
