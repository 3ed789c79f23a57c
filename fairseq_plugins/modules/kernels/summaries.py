"""Fastformer's summaries as Triton kernels that read x once.

A forward program reads one part of one sentence. It computes the scores of all heads, a running
softmax and the weighted sum of its rows. Another kernel combines the parts, as in flash decoding.
Backward recomputes the weights from the saved maximum and total. The mean in softmax's gradient
needs no pass of its own: it is the dot product of the summary and its gradient.
"""

# Triton pointers have no Python type.
# mypy: disallow-incomplete-defs=False

from typing import Any, Optional, Tuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import MAX_SUMMARIES, block, shared_memory_of

TIMES = 16  # positions at a time
PART = 256  # positions of one program


@triton.jit
def _scores(
    x, directions, mask, bsz, length, dim, heads, stride_t, stride_b, direction_stride, scaling,
    b, times, HEADS: tl.constexpr, DIM: tl.constexpr, HAS_MASK: tl.constexpr,
):  # fmt: skip
    """Rows of x, the directions, their scaled scores (-inf past the end), and the padding mask."""
    head = tl.arange(0, HEADS)
    feature = tl.arange(0, DIM)
    at = times[:, None].to(tl.int64) * stride_t + b * stride_b + feature[None, :]
    real = (times[:, None] < length) & (feature[None, :] < dim)
    rows = tl.load(x + at, mask=real, other=0.0)
    at = b * direction_stride + head[:, None] * dim + feature[None, :]
    real = (head[:, None] < heads) & (feature[None, :] < dim)
    to = tl.load(directions + at, mask=real, other=0.0)
    scores = tl.dot(to, tl.trans(rows), input_precision="ieee") * scaling
    padded = tl.zeros(times.shape, dtype=tl.int1)
    if HAS_MASK:
        padded = tl.load(mask + b * length + times, mask=times < length, other=0) != 0
        # finite, so that a sentence of padding alone gets finite weights
        scores = tl.where(padded[None, :], -3e38, scores)
    scores = tl.where(times[None, :] < length, scores, float("-inf"))
    return rows, to, scores, padded


@triton.jit
def _forward(
    x, directions, mask, keep, out, out_sum, out_max, out_total,
    bsz, length, dim, heads, stride_t, stride_b, direction_stride, scaling,
    HEADS: tl.constexpr, DIM: tl.constexpr, TIMES: tl.constexpr, PART: tl.constexpr,
    HAS_MASK: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    head = tl.arange(0, HEADS)
    feature = tl.arange(0, DIM)
    largest = tl.full((HEADS,), float("-inf"), dtype=tl.float32)
    total = tl.zeros((HEADS,), dtype=tl.float32)
    kept = tl.zeros((HEADS,), dtype=tl.float32)
    summary = tl.zeros((HEADS, DIM), dtype=tl.float32)
    for start in range(part * PART, min(length, (part + 1) * PART), TIMES):
        times = start + tl.arange(0, TIMES)
        rows, _, scores, _ = _scores(
            x, directions, mask, bsz, length, dim, heads, stride_t, stride_b, direction_stride,
            scaling, b, times, HEADS, DIM, HAS_MASK,
        )  # fmt: skip
        larger = tl.maximum(largest, tl.max(scores, axis=1))
        shrink = tl.exp(largest - larger)
        weights = tl.exp(scores - larger[:, None])
        total = total * shrink + tl.sum(weights, axis=1)
        at = (times[None, :].to(tl.int64) * bsz + b) * heads + head[:, None]
        real = (times[None, :] < length) & (head[:, None] < heads)
        weights = weights * tl.load(keep + at, mask=real, other=0.0)
        kept = kept * shrink + tl.sum(weights, axis=1)
        summary = summary * shrink[:, None]
        summary += tl.dot(weights.to(rows.dtype), rows, input_precision="ieee")
        largest = larger
    at = (part.to(tl.int64) * bsz + b) * heads + head
    tl.store(out_max + at, largest, mask=head < heads)
    tl.store(out_total + at, total, mask=head < heads)
    tl.store(out_sum + at, kept, mask=head < heads)
    real = (head[:, None] < heads) & (feature[None, :] < dim)
    tl.store(out + at[:, None] * dim + feature[None, :], summary, mask=real)


@triton.jit
def _combine(
    sums, kept, largest, total, summary, weight, rounded, rounded_weight, out_max, out_total,
    parts, rows, dim, DIM: tl.constexpr,
):  # fmt: skip
    """The parts of one head of one sentence together, in float32 and in the dtype of x."""
    row = tl.program_id(0).to(tl.int64)
    feature = tl.arange(0, DIM)
    maximum = tl.load(largest + row)
    for part in range(1, parts):
        maximum = tl.maximum(maximum, tl.load(largest + part * rows + row))
    # not merged into maximum + log(total): beside the -3e38 of padding the log would vanish
    denominator = 0.0
    for part in range(0, parts):
        at = part * rows + row
        denominator += tl.load(total + at) * tl.exp(tl.load(largest + at) - maximum)
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


@triton.jit
def _backward(
    x, directions, mask, keep, maximum, softmax_total, grad, grad_sum, mean,
    grad_x, grad_directions,
    bsz, length, dim, heads, stride_t, stride_b, direction_stride, scaling,
    HEADS: tl.constexpr, DIM: tl.constexpr, TIMES: tl.constexpr, PART: tl.constexpr,
    HAS_MASK: tl.constexpr,
):  # fmt: skip
    b = tl.program_id(0).to(tl.int64)
    part = tl.program_id(1)
    head = tl.arange(0, HEADS)
    feature = tl.arange(0, DIM)
    of_head = b * heads + head
    maximum_h = tl.load(maximum + of_head, mask=head < heads, other=0.0)
    total_h = tl.load(softmax_total + of_head, mask=head < heads, other=1.0)
    grad_sum_h = tl.load(grad_sum + of_head, mask=head < heads, other=0.0).to(tl.float32)
    mean_h = tl.load(mean + of_head, mask=head < heads, other=0.0)
    at = of_head[:, None] * dim + feature[None, :]
    real_summary = (head[:, None] < heads) & (feature[None, :] < dim)
    grad_h = tl.load(grad + at, mask=real_summary, other=0.0)
    total = tl.zeros((HEADS, DIM), dtype=tl.float32)
    for start in range(part * PART, min(length, (part + 1) * PART), TIMES):
        times = start + tl.arange(0, TIMES)
        rows, to, scores, padded = _scores(
            x, directions, mask, bsz, length, dim, heads, stride_t, stride_b, direction_stride,
            scaling, b, times, HEADS, DIM, HAS_MASK,
        )  # fmt: skip
        weights = tl.exp(scores - maximum_h[:, None]) / total_h[:, None]
        # other names than before the loop: there a name keeps its shape
        of_time = (times[None, :].to(tl.int64) * bsz + b) * heads + head[:, None]
        real = (times[None, :] < length) & (head[:, None] < heads)
        kept = tl.load(keep + of_time, mask=real, other=0.0)
        grad_weights = tl.dot(grad_h, tl.trans(rows), input_precision="ieee")
        grad_weights = (grad_weights + grad_sum_h[:, None]) * kept
        grad_scores = weights * (grad_weights - mean_h[:, None]) * scaling
        # scores of padding are constants, also where all is padding and their weights are not zero
        grad_scores = tl.where(real & (padded[None, :] == 0), grad_scores, 0.0).to(rows.dtype)
        grad_rows = tl.dot(tl.trans(grad_scores), to, input_precision="ieee")
        kept_weights = (weights * kept).to(rows.dtype)
        grad_rows += tl.dot(tl.trans(kept_weights), grad_h, input_precision="ieee")
        of_row = (times[:, None].to(tl.int64) * bsz + b) * dim + feature[None, :]
        real_row = (times[:, None] < length) & (feature[None, :] < dim)
        tl.store(grad_x + of_row, grad_rows.to(grad_x.dtype.element_ty), mask=real_row)
        total += tl.dot(grad_scores, rows, input_precision="ieee")
    at = (part.to(tl.int64) * bsz + b) * heads + head
    tl.store(grad_directions + at[:, None] * dim + feature[None, :], total, mask=real_summary)


class KernelSummaries(torch.autograd.Function):
    """`token_mixers.summaries.summarize` on a GPU: same arguments and result, but no float64."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        directions: Tensor,
        padding_mask: Optional[Tensor],
        scaling: float,
        keep: Tensor,
    ) -> Tuple[Tensor, Tensor]:
        x = x if x.stride(-1) == 1 else x.contiguous()
        directions, keep = directions.contiguous(), keep.contiguous()
        mask = None if padding_mask is None else padding_mask.contiguous()
        length, bsz, dim = x.shape
        heads = directions.size(-2)
        parts = triton.cdiv(length, PART)
        sums = torch.empty(parts, bsz, heads, dim, dtype=torch.float32, device=x.device)
        kept, largest, total = torch.empty(
            3, parts, bsz, heads, dtype=torch.float32, device=x.device
        ).unbind()
        # the summaries in float32: backward subtracts means that were computed from them, and what
        # x has in common at all positions must cancel
        summary = torch.empty(bsz, heads, dim, dtype=torch.float32, device=x.device)
        weight, maximum, all_total = torch.empty(
            3, bsz, heads, dtype=torch.float32, device=x.device
        ).unbind()
        rounded, rounded_weight = x.new_empty(bsz, heads, dim), x.new_empty(bsz, heads, 1)
        with torch.cuda.device_of(x):  # Triton launches on the current GPU
            _forward[(bsz, parts)](
                x, directions, x if mask is None else mask, keep, sums, kept, largest, total,
                *_sizes(x, directions), scaling, **_blocks(dim, heads, mask, shared_memory_of(x)),
            )  # fmt: skip
            _combine[(bsz * heads,)](
                sums, kept, largest, total, summary, weight, rounded, rounded_weight,
                maximum, all_total, parts, bsz * heads, dim, DIM=block(dim),
            )  # fmt: skip
        ctx.save_for_backward(x, directions, mask, keep, maximum, all_total, summary, weight)
        ctx.scaling = scaling
        return rounded, rounded_weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor, grad_sum: Tensor) -> Tuple[Optional[Tensor], ...]:
        x, directions, mask, keep, maximum, total, summary, weight = ctx.saved_tensors
        length, bsz, dim = x.shape
        heads = directions.size(-2)
        grad, grad_sum = grad.contiguous(), grad_sum.contiguous()
        mean = (grad.float() * summary).sum(dim=-1)
        mean = mean + grad_sum.float().squeeze(-1) * weight
        grad_x = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        parts = triton.cdiv(length, PART)
        grad_directions = torch.empty(parts, bsz, heads, dim, dtype=torch.float32, device=x.device)
        _backward[(bsz, parts)](
            x, directions, x if mask is None else mask, keep, maximum, total, grad, grad_sum,
            mean, grad_x, grad_directions,
            *_sizes(x, directions), ctx.scaling, **_blocks(dim, heads, mask, shared_memory_of(x)),
        )  # fmt: skip
        over = (0, 1) if directions.dim() == 2 else (0,)
        return grad_x, grad_directions.sum(dim=over).type_as(directions), None, None, None


def _sizes(x: Tensor, directions: Tensor) -> Tuple[int, ...]:
    length, bsz, dim = x.shape
    heads = directions.size(-2)
    step = heads * dim if directions.dim() == 3 else 0
    return bsz, length, dim, heads, x.stride(0), x.stride(1), step


def _blocks(dim: int, heads: int, mask: Optional[Tensor], shared_memory: int) -> Any:
    features = block(dim)
    return {
        "HEADS": block(heads),
        "DIM": features,
        "TIMES": TIMES,
        "PART": PART,
        "HAS_MASK": mask is not None,
        # the fastest of eleven on an H200 (d 1,024, 16 heads): eight warps took twice as long
        "num_warps": 4,
        "num_stages": _stages(features, block(heads), shared_memory),
    }


def _stages(features: int, heads: int, shared_memory: int) -> int:
    """How many steps are loaded ahead: three, or what fits.

    By the compiler's report backward needs for the largest sizes, with 1, 2 and 3 steps: 65, 113
    and 178 KB for 16 heads of 1,024 features, and at most 140 KB for 32 heads of 512.
    """
    if features * heads < MAX_SUMMARIES or shared_memory >= 192 * 1024:
        return 3
    return 2 if features < 1024 or shared_memory >= 132 * 1024 else 1
