"""Equations 7 to 9 of MSCFFN as Triton kernels: L and C, the wide tensors, never leave the chip.

Forward is one kernel. A program has the I of some tokens and one pair of subspaces, and computes L
and C in registers, one block of their width at a time; C is the left factor of the next product.
Backward recomputes L in two kernels. One is like forward and gives the gradient of I. The other
holds a block of the width, with the gradients of its parameters, and loops over tokens; its
wide matrices are transposed (width x tokens), so that they are left factors again. A single kernel
would need partial gradients of I in memory, which costs more than computing L twice.

Dropout is drawn again in backward. Sums of the parameters' gradients are written per part of the
tokens and added in a fixed order, without atomics: results are reproducible.
"""

# Triton pointers have no Python type.
# mypy: disallow-incomplete-defs=False

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import LARGE, Trial, block, draws, shared_memory_of
from .sums import add_parts

WARPS = 132 * 8  # of the gradients of weights: eight on each multiprocessor of an H100; the same on
# every GPU, as rounding depends on it
LEAST = 128  # minimum tokens per part


@triton.jit
def _rows(at, rows, tokens, start, stride, size: tl.constexpr, SIZE: tl.constexpr):
    """The features `start` to `start + size` of some rows."""
    feature = tl.arange(0, SIZE)
    real = (rows[:, None] < tokens) & (feature[None, :] < size)
    return tl.load(at + rows[:, None] * stride + start + feature[None, :], mask=real, other=0.0)


@triton.jit
def _expansion(
    expand, bias, subspace, cols, size: tl.constexpr, width: tl.constexpr, SIZE: tl.constexpr
):
    """Columns of W_I of a subspace, SIZE x len(cols), and their biases."""
    feature = tl.arange(0, SIZE)
    at = subspace * size * width + feature[:, None] * width + cols[None, :]
    real = (feature[:, None] < size) & (cols[None, :] < width)
    w = tl.load(expand + at, mask=real, other=0.0)
    return w, tl.load(bias + subspace * width + cols, mask=cols < width, other=0.0).to(tl.float32)


@triton.jit
def _contraction(contract, pair, cols, size: tl.constexpr, width: tl.constexpr, SIZE: tl.constexpr):
    """Rows of W_C of a pair: len(cols) x SIZE."""
    feature = tl.arange(0, SIZE)
    at = pair * width * size + cols[:, None] * size + feature[None, :]
    real = (cols[:, None] < width) & (feature[None, :] < size)
    return tl.load(contract + at, mask=real, other=0.0)


@triton.jit
def _relu(x):
    return tl.where(x <= 0, 0.0, x)  # keeps NaN, like torch's


@triton.jit
def _kept(seed, limit, pair, tokens, rows, start, width: tl.constexpr, WIDTH: tl.constexpr):
    """Which C of these rows and columns dropout keeps: len(rows) x WIDTH."""
    groups: tl.constexpr = (width + 7) // 8
    return draws.kept(seed, pair * tokens, limit, rows, groups, start, WIDTH)


@triton.jit(do_not_specialize=["tokens", "limit"])
def _forward(
    inner, expand, expand_bias, contract, contract_bias, seed, out, tokens, scale, limit,
    dim: tl.constexpr, size: tl.constexpr, width: tl.constexpr,
    SIZE: tl.constexpr, TOKENS: tl.constexpr, WIDTH: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    pair = tl.program_id(1)
    i_1 = _rows(inner, rows, tokens, 2 * pair * size, dim, size, SIZE)
    i_2 = _rows(inner, rows, tokens, (2 * pair + 1) * size, dim, size, SIZE)
    total = tl.zeros((TOKENS, SIZE), dtype=tl.float32)
    for start in range(0, width, WIDTH):
        cols = start + tl.arange(0, WIDTH)
        w_1, b_1 = _expansion(expand, expand_bias, 2 * pair, cols, size, width, SIZE)
        w_2, b_2 = _expansion(expand, expand_bias, 2 * pair + 1, cols, size, width, SIZE)
        w_c = _contraction(contract, pair, cols, size, width, SIZE)
        first = _relu(tl.dot(i_1, w_1, input_precision="ieee") + b_1[None, :])
        if DROPS:
            first = tl.where(
                _kept(seed, limit, pair, tokens, rows, start, width, WIDTH), first, 0.0
            )
        crossed = first * (tl.dot(i_2, w_2, input_precision="ieee") + b_2[None, :])
        total = tl.dot(crossed.to(w_c.dtype), w_c, total, input_precision="ieee")
    feature = tl.arange(0, SIZE)
    b_c = tl.load(contract_bias + pair * size + feature, mask=feature < size, other=0.0)
    total = total * scale + b_c.to(tl.float32)[None, :]
    at = rows[:, None] * (dim // 2) + pair * size + feature[None, :]
    real = (rows[:, None] < tokens) & (feature[None, :] < size)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=real)


@triton.jit(do_not_specialize=["tokens", "limit"])
def _backward_inner(
    inner, expand, expand_bias, contract, seed, grad, out, tokens, scale, limit,
    dim: tl.constexpr, size: tl.constexpr, width: tl.constexpr,
    SIZE: tl.constexpr, TOKENS: tl.constexpr, WIDTH: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    pair = tl.program_id(1)
    i_1 = _rows(inner, rows, tokens, 2 * pair * size, dim, size, SIZE)
    i_2 = _rows(inner, rows, tokens, (2 * pair + 1) * size, dim, size, SIZE)
    g = _rows(grad, rows, tokens, pair * size, dim // 2, size, SIZE)
    total_1 = tl.zeros((TOKENS, SIZE), dtype=tl.float32)
    total_2 = tl.zeros((TOKENS, SIZE), dtype=tl.float32)
    for start in range(0, width, WIDTH):
        cols = start + tl.arange(0, WIDTH)
        w_1, b_1 = _expansion(expand, expand_bias, 2 * pair, cols, size, width, SIZE)
        w_2, b_2 = _expansion(expand, expand_bias, 2 * pair + 1, cols, size, width, SIZE)
        w_c = _contraction(contract, pair, cols, size, width, SIZE)
        first = _relu(tl.dot(i_1, w_1, input_precision="ieee") + b_1[None, :])
        if DROPS:  # then `first` is zero where relu or dropout gave zero
            first = tl.where(
                _kept(seed, limit, pair, tokens, rows, start, width, WIDTH), first, 0.0
            )
        g_c = tl.dot(g, tl.trans(w_c), input_precision="ieee")
        g_2 = (g_c * first).to(w_2.dtype)
        total_2 = tl.dot(g_2, tl.trans(w_2), total_2, input_precision="ieee")
        second = tl.dot(i_2, w_2, input_precision="ieee") + b_2[None, :]
        g_1 = tl.where(first <= 0, 0.0, g_c * second).to(w_1.dtype)
        total_1 = tl.dot(g_1, tl.trans(w_1), total_1, input_precision="ieee")
    feature = tl.arange(0, SIZE)
    at = rows[:, None] * dim + 2 * pair * size + feature[None, :]
    real = (rows[:, None] < tokens) & (feature[None, :] < size)
    tl.store(out + at, (total_1 * scale).to(out.dtype.element_ty), mask=real)
    tl.store(out + at + size, (total_2 * scale).to(out.dtype.element_ty), mask=real)


@triton.jit(do_not_specialize=["tokens", "limit", "tokens_of_part"])
def _backward_weights(
    inner, expand, expand_bias, contract, seed, grad,
    grad_expand, grad_expand_bias, grad_contract, grad_contract_bias,
    tokens, scale, limit, tokens_of_part, part_stride,
    dim: tl.constexpr, size: tl.constexpr, width: tl.constexpr,
    SIZE: tl.constexpr, TOKENS: tl.constexpr, WIDTH: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    start = tl.program_id(0) * WIDTH
    cols = start + tl.arange(0, WIDTH)
    pair = tl.program_id(1)
    part = tl.program_id(2).to(tl.int64)
    w_1, b_1 = _expansion(expand, expand_bias, 2 * pair, cols, size, width, SIZE)
    w_2, b_2 = _expansion(expand, expand_bias, 2 * pair + 1, cols, size, width, SIZE)
    w_c = _contraction(contract, pair, cols, size, width, SIZE)
    w_1, w_2 = tl.trans(w_1), tl.trans(w_2)
    total_1 = tl.zeros((WIDTH, SIZE), dtype=tl.float32)
    total_2 = tl.zeros((WIDTH, SIZE), dtype=tl.float32)
    total_c = tl.zeros((WIDTH, SIZE), dtype=tl.float32)
    bias_1 = tl.zeros((WIDTH,), dtype=tl.float32)
    bias_2 = tl.zeros((WIDTH,), dtype=tl.float32)
    bias_c = tl.zeros((SIZE,), dtype=tl.float32)
    for begin in range(0, tokens_of_part, TOKENS):
        # rows past the end add nothing: their gradients are loaded as zeros
        rows = part * tokens_of_part + begin + tl.arange(0, TOKENS)
        i_1 = _rows(inner, rows, tokens, 2 * pair * size, dim, size, SIZE)
        i_2 = _rows(inner, rows, tokens, (2 * pair + 1) * size, dim, size, SIZE)
        g = _rows(grad, rows, tokens, pair * size, dim // 2, size, SIZE)
        # all three are WIDTH x TOKENS
        first = _relu(tl.dot(w_1, tl.trans(i_1), input_precision="ieee") + b_1[:, None])
        if DROPS:
            mask = _kept(seed, limit, pair, tokens, rows, start, width, WIDTH)
            first = tl.where(tl.trans(mask), first, 0.0)
        second = tl.dot(w_2, tl.trans(i_2), input_precision="ieee") + b_2[:, None]
        g_c = tl.dot(w_c, tl.trans(g), input_precision="ieee")
        total_c = tl.dot((first * second).to(g.dtype), g, total_c, input_precision="ieee")
        g_1 = tl.where(first <= 0, 0.0, g_c * second)
        g_2 = g_c * first
        total_1 = tl.dot(g_1.to(i_1.dtype), i_1, total_1, input_precision="ieee")
        total_2 = tl.dot(g_2.to(i_2.dtype), i_2, total_2, input_precision="ieee")
        bias_1 += tl.sum(g_1, axis=1)
        bias_2 += tl.sum(g_2, axis=1)
        bias_c += tl.sum(g.to(tl.float32), axis=0)
    feature = tl.arange(0, SIZE)
    real = (cols[:, None] < width) & (feature[None, :] < size)
    part_at = part * part_stride
    to = grad_expand + part_at + 2 * pair * size * width + feature[None, :] * width + cols[:, None]
    tl.store(to, total_1 * scale, mask=real)
    tl.store(to + size * width, total_2 * scale, mask=real)
    to = grad_contract + part_at + pair * width * size + cols[:, None] * size + feature[None, :]
    tl.store(to, total_c * scale, mask=real)
    to = grad_expand_bias + part_at + 2 * pair * width + cols
    tl.store(to, bias_1 * scale, mask=cols < width)
    tl.store(to + width, bias_2 * scale, mask=cols < width)
    if tl.program_id(0) == 0:  # every block of columns has this sum
        to_bias = grad_contract_bias + part_at + pair * size + feature
        tl.store(to_bias, bias_c, mask=feature < size)


class KernelProducts(torch.autograd.Function):
    """`feed_forward.chunked_products.ChunkedProducts` on a GPU.

    The same arguments, but no float64, and dropout as its probability and a seed (None drops
    nothing).
    """

    @staticmethod
    def forward(
        ctx: Any,
        inner: Tensor,
        expand_weight: Tensor,
        expand_bias: Tensor,
        contract_weight: Tensor,
        contract_bias: Tensor,
        p: float,
        seed: Tensor | None,
    ) -> Tensor:
        inner = inner.contiguous()
        weights = expand_weight.contiguous(), expand_bias.contiguous(), contract_weight.contiguous()
        tokens, dim = inner.shape
        pairs, width, size = contract_weight.shape
        limit, ctx.scale = draws.limit_and_scale(p) if seed is not None else (0, 1.0)
        ctx.limit = limit
        out = inner.new_empty(tokens, pairs * size)
        blocks = _blocks("forward", dim, size, width, seed, shared_memory_of(inner))
        if tokens > 0:
            with torch.cuda.device_of(inner):  # Triton launches on the current GPU
                _forward[(triton.cdiv(tokens, blocks["TOKENS"]), pairs)](
                    inner, *weights, contract_bias.contiguous(), inner if seed is None else seed,
                    out, tokens, ctx.scale, limit, **blocks,
                )  # fmt: skip
        ctx.save_for_backward(inner, *weights, seed)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        inner, *weights, seed = ctx.saved_tensors
        tokens, dim = inner.shape
        pairs, width, size = weights[2].shape
        room = shared_memory_of(inner)
        common = (*([inner, *weights]), inner if seed is None else seed, grad.contiguous())
        draw = (ctx.scale, ctx.limit)
        grad_inner = torch.empty_like(inner)
        shapes = [*(tuple(weight.shape) for weight in weights), (pairs, 1, size)]
        sizes = [math.prod(shape) for shape in shapes]
        if tokens == 0:
            total = grad.new_zeros(sum(sizes))
        else:
            blocks = _blocks("inner", dim, size, width, seed, room)
            _backward_inner[(triton.cdiv(tokens, blocks["TOKENS"]), pairs)](
                *common, grad_inner, tokens, *draw, **blocks
            )
            blocks = _blocks("weights", dim, size, width, seed, room)
            wide = triton.cdiv(width, blocks["WIDTH"])
            programs = WARPS // blocks["num_warps"]
            parts = min(max(1, programs // (wide * pairs)), triton.cdiv(tokens, LEAST))
            step = blocks["TOKENS"]
            tokens_of_part = triton.cdiv(triton.cdiv(tokens, parts), step) * step
            sums = grad.new_empty(parts, sum(sizes), dtype=torch.float32)
            _backward_weights[(wide, pairs, parts)](
                *common, *sums.split(sizes, dim=1), tokens, *draw, tokens_of_part, sums.size(1),
                **blocks,
            )  # fmt: skip
            total = add_parts(sums, inner.dtype)
        parameters = (part.view(shape) for part, shape in zip(total.split(sizes), shapes))
        return (grad_inner, *parameters, None, None)


# TOKENS, WIDTH, num_warps and num_stages for subspaces of up to 64 and 128 features, with much
# shared memory and with little. By the compiler's report for an H100 hardly a register is in
# memory, and eight warps or more are on a multiprocessor. Other sizes are not measured yet.
BLOCKS: dict[tuple[str, int, bool], tuple[int, int, int, int]] = {
    ("forward", 64, True): (128, 64, 8, 3),
    ("forward", 64, False): (128, 64, 8, 2),
    ("forward", 128, True): (64, 64, 8, 2),
    ("forward", 128, False): (64, 64, 8, 1),
    ("inner", 64, True): (64, 64, 4, 2),
    ("inner", 64, False): (64, 32, 4, 2),
    ("inner", 128, True): (64, 32, 8, 2),
    ("inner", 128, False): (64, 32, 8, 1),
    ("weights", 64, True): (64, 64, 4, 2),
    ("weights", 64, False): (32, 64, 4, 2),
    ("weights", 128, True): (32, 64, 8, 2),
    ("weights", 128, False): (32, 64, 8, 1),
}


def _blocks(
    kernel: str, dim: int, size: int, width: int, seed: Tensor | None, shared_memory: int
) -> Any:
    features = block(size)
    chosen = BLOCKS[kernel, max(64, features), shared_memory >= LARGE]
    tokens, wide, warps, stages = chosen
    return {
        "dim": dim,
        "size": size,
        "width": width,
        "SIZE": features,
        "TOKENS": tokens,
        "WIDTH": wide,
        "DROPS": seed is not None,
        "num_warps": warps,
        "num_stages": stages,
    }


def trials(draw: Callable[..., Tensor], dim: int, size: int, width: int, drops: int) -> Iterator:
    """The trials of `kernels.usable`, for d, d/n, m d/n and whether dropout is on."""
    from fairseq_plugins.layers.chunked_products import ChunkedProducts

    tokens, subspaces, p = 150, dim // size, 0.3
    pairs = subspaces // 2
    leaves = [draw(tokens, dim), draw(subspaces, size, width), draw(subspaces, 1, width)]
    leaves += [draw(pairs, width, size), draw(pairs, 1, size)]
    # no gate near zero, where rounding would open or close it: products have a deviation of 0.4
    leaves[1] *= 0.4 * size**-0.5
    leaves[2] += 3 * leaves[2].sign()
    leaves[3] *= width**-0.5
    seed = torch.tensor([5], device=leaves[0].device) if drops else None
    mask = draws.mask(seed, p, pairs * tokens, width)
    keep = None if mask is None else mask.view(pairs, tokens, width)
    scale = 1.0 if mask is None else draws.limit_and_scale(p)[1]
    yield Trial(
        lambda *given: KernelProducts.apply(*given, p, seed),
        lambda *given: ChunkedProducts.apply(*given, keep, scale),
        leaves,
    )
