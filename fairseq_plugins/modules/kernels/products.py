"""Equations 7 to 9 of MSCFFN as Triton kernels.

Forward is one kernel. It computes L and C in registers, one block of their width at a time; only I,
the result and the weights are in device memory. Backward recomputes L in two kernels: one loops
over the width for the gradient of I, the other over the tokens for the gradients of the parameters.
The latter writes one sum for each part of the tokens; these are added in a fixed order, without
atomics, so that results are reproducible. All parameters' sums lie in one tensor: on an H200 adding
them one by one took half as long as the kernels.

Block sizes are the fastest of 24 on an H200 (d 768, 12 subspaces, 4,096 tokens).
"""

# Triton pointers have no Python type.
# mypy: disallow-incomplete-defs=False

import math
from typing import Any, Optional, Tuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from . import block

TOKENS = 64  # tokens of a block
WIDTH = 32  # columns of L and C of a block
PARTS = 8  # parts of the tokens for the gradients of the weights


@triton.jit
def _wide(
    inner, expand, bias, keep, tokens, rows, cols, pair, dim, size, width,
    SIZE: tl.constexpr, HAS_KEEP: tl.constexpr,
):  # fmt: skip
    """I_1, I_2, relu(L_1) after dropout, L_2, and both W_I, for a block of tokens and columns."""
    feature = tl.arange(0, SIZE)
    at = rows[:, None] * dim + 2 * pair * size + feature[None, :]
    real = (rows[:, None] < tokens) & (feature[None, :] < size)
    i_1 = tl.load(inner + at, mask=real, other=0.0)
    i_2 = tl.load(inner + at + size, mask=real, other=0.0)
    at = 2 * pair * size * width + feature[:, None] * width + cols[None, :]
    real = (feature[:, None] < size) & (cols[None, :] < width)
    w_1 = tl.load(expand + at, mask=real, other=0.0)
    w_2 = tl.load(expand + at + size * width, mask=real, other=0.0)
    b_1 = tl.load(bias + 2 * pair * width + cols, mask=cols < width, other=0.0).to(tl.float32)
    b_2 = tl.load(bias + (2 * pair + 1) * width + cols, mask=cols < width, other=0.0)
    first = tl.dot(i_1, w_1, input_precision="ieee") + b_1[None, :]
    second = tl.dot(i_2, w_2, input_precision="ieee") + b_2.to(tl.float32)[None, :]
    first = tl.where(first <= 0, 0.0, first)  # keeps NaN, like torch's relu
    if HAS_KEEP:
        at = pair.to(tl.int64) * tokens * width + rows[:, None] * width + cols[None, :]
        real = (rows[:, None] < tokens) & (cols[None, :] < width)
        first = tl.where(tl.load(keep + at, mask=real, other=0) != 0, first, 0.0)
    return i_1, i_2, first, second, w_1, w_2


@triton.jit
def _forward(
    inner, expand, expand_bias, contract, contract_bias, keep, out,
    tokens, scale, dim, size, width,
    SIZE: tl.constexpr, TOKENS: tl.constexpr, WIDTH: tl.constexpr, HAS_KEEP: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    pair = tl.program_id(1)
    feature = tl.arange(0, SIZE)
    total = tl.zeros((TOKENS, SIZE), dtype=tl.float32)
    for start in range(0, width, WIDTH):
        cols = start + tl.arange(0, WIDTH)
        _, _, first, second, _, _ = _wide(
            inner, expand, expand_bias, keep, tokens, rows, cols, pair, dim, size, width,
            SIZE, HAS_KEEP,
        )  # fmt: skip
        at = pair * width * size + cols[:, None] * size + feature[None, :]
        real = (cols[:, None] < width) & (feature[None, :] < size)
        w_c = tl.load(contract + at, mask=real, other=0.0)
        total += tl.dot((first * second).to(w_c.dtype), w_c, input_precision="ieee")
    b_c = tl.load(contract_bias + pair * size + feature, mask=feature < size, other=0.0)
    total = total * scale + b_c.to(tl.float32)[None, :]
    at = rows[:, None] * (dim // 2) + pair * size + feature[None, :]
    real = (rows[:, None] < tokens) & (feature[None, :] < size)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=real)


@triton.jit
def _gradients(
    inner, expand, expand_bias, contract, keep, grad, tokens, scale, rows, cols, pair,
    dim, size, width, SIZE: tl.constexpr, HAS_KEEP: tl.constexpr,
):  # fmt: skip
    """I_1, I_2, C_j, both W_I, and the gradients of the result, of L_1 and of L_2, for a block."""
    i_1, i_2, first, second, w_1, w_2 = _wide(
        inner, expand, expand_bias, keep, tokens, rows, cols, pair, dim, size, width,
        SIZE, HAS_KEEP,
    )  # fmt: skip
    feature = tl.arange(0, SIZE)
    at = pair * width * size + cols[None, :] * size + feature[:, None]
    real = (cols[None, :] < width) & (feature[:, None] < size)
    w_c = tl.load(contract + at, mask=real, other=0.0)  # W_C transposed
    at = rows[:, None] * (dim // 2) + pair * size + feature[None, :]
    real = (rows[:, None] < tokens) & (feature[None, :] < size)
    g = tl.load(grad + at, mask=real, other=0.0)
    g_c = tl.dot(g, w_c, input_precision="ieee") * scale
    g_1 = tl.where(first <= 0, 0.0, g_c * second)
    return i_1, i_2, first * second, w_1, w_2, g, g_1, g_c * first


@triton.jit
def _backward_inner(
    inner, expand, expand_bias, contract, keep, grad, out, tokens, scale, dim, size, width,
    SIZE: tl.constexpr, TOKENS: tl.constexpr, WIDTH: tl.constexpr, HAS_KEEP: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    pair = tl.program_id(1)
    total_1 = tl.zeros((TOKENS, SIZE), dtype=tl.float32)
    total_2 = tl.zeros((TOKENS, SIZE), dtype=tl.float32)
    for start in range(0, width, WIDTH):
        cols = start + tl.arange(0, WIDTH)
        _, _, _, w_1, w_2, _, g_1, g_2 = _gradients(
            inner, expand, expand_bias, contract, keep, grad, tokens, scale, rows, cols, pair,
            dim, size, width, SIZE, HAS_KEEP,
        )  # fmt: skip
        total_1 += tl.dot(g_1.to(w_1.dtype), tl.trans(w_1), input_precision="ieee")
        total_2 += tl.dot(g_2.to(w_2.dtype), tl.trans(w_2), input_precision="ieee")
    feature = tl.arange(0, SIZE)
    at = rows[:, None] * dim + 2 * pair * size + feature[None, :]
    real = (rows[:, None] < tokens) & (feature[None, :] < size)
    tl.store(out + at, total_1.to(out.dtype.element_ty), mask=real)
    tl.store(out + at + size, total_2.to(out.dtype.element_ty), mask=real)


@triton.jit
def _backward_weights(
    inner, expand, expand_bias, contract, keep, grad,
    grad_expand, grad_expand_bias, grad_contract, grad_contract_bias,
    tokens, tokens_of_part, part_stride, scale, dim, size, width,
    SIZE: tl.constexpr, TOKENS: tl.constexpr, WIDTH: tl.constexpr, HAS_KEEP: tl.constexpr,
):  # fmt: skip
    cols = tl.program_id(0) * WIDTH + tl.arange(0, WIDTH)
    pair = tl.program_id(1)
    part = tl.program_id(2)
    total_1 = tl.zeros((SIZE, WIDTH), dtype=tl.float32)
    total_2 = tl.zeros((SIZE, WIDTH), dtype=tl.float32)
    total_c = tl.zeros((WIDTH, SIZE), dtype=tl.float32)
    bias_1 = tl.zeros((WIDTH,), dtype=tl.float32)
    bias_2 = tl.zeros((WIDTH,), dtype=tl.float32)
    bias_c = tl.zeros((SIZE,), dtype=tl.float32)
    for start in range(0, tokens_of_part, TOKENS):
        rows = part.to(tl.int64) * tokens_of_part + start + tl.arange(0, TOKENS)
        i_1, i_2, c, _, _, g, g_1, g_2 = _gradients(
            inner, expand, expand_bias, contract, keep, grad, tokens, scale, rows, cols, pair,
            dim, size, width, SIZE, HAS_KEEP,
        )  # fmt: skip
        # rows past the end add nothing: I and the gradient of the result were loaded as zeros
        total_1 += tl.dot(tl.trans(i_1), g_1.to(i_1.dtype), input_precision="ieee")
        total_2 += tl.dot(tl.trans(i_2), g_2.to(i_2.dtype), input_precision="ieee")
        total_c += tl.dot(tl.trans(c.to(g.dtype)), g, input_precision="ieee")
        bias_1 += tl.sum(g_1, axis=0)
        bias_2 += tl.sum(g_2, axis=0)
        bias_c += tl.sum(g.to(tl.float32), axis=0)
    feature = tl.arange(0, SIZE)
    part_at = part.to(tl.int64) * part_stride
    at = part_at + 2 * pair * size * width + feature[:, None] * width + cols[None, :]
    real = (feature[:, None] < size) & (cols[None, :] < width)
    tl.store(grad_expand + at, total_1, mask=real)
    tl.store(grad_expand + at + size * width, total_2, mask=real)
    at = part_at + pair * width * size + cols[:, None] * size + feature[None, :]
    real = (cols[:, None] < width) & (feature[None, :] < size)
    tl.store(grad_contract + at, total_c * scale, mask=real)
    at = part_at + 2 * pair * width + cols
    tl.store(grad_expand_bias + at, bias_1, mask=cols < width)
    tl.store(grad_expand_bias + at + width, bias_2, mask=cols < width)
    if tl.program_id(0) == 0:  # every block of columns has this sum
        to = grad_contract_bias + part_at + pair * size + feature
        tl.store(to, bias_c, mask=feature < size)


class KernelProducts(torch.autograd.Function):
    """`feed_forward.chunked_products.ChunkedProducts` on a GPU: same arguments, but no float64."""

    @staticmethod
    def forward(
        ctx: Any,
        inner: Tensor,
        expand_weight: Tensor,
        expand_bias: Tensor,
        contract_weight: Tensor,
        contract_bias: Tensor,
        keep: Optional[Tensor],
        scale: float,
    ) -> Tensor:
        inner, expand_weight = inner.contiguous(), expand_weight.contiguous()
        contract_weight = contract_weight.contiguous()
        ctx.save_for_backward(inner, expand_weight, expand_bias, contract_weight, keep)
        ctx.scale = scale
        tokens, dim = inner.shape
        pairs, width, size = contract_weight.shape
        out = inner.new_empty(tokens, pairs * size)
        if tokens > 0:
            with torch.cuda.device_of(inner):  # Triton launches on the current GPU
                _forward[(triton.cdiv(tokens, TOKENS), pairs)](
                    inner, expand_weight, expand_bias.contiguous(),
                    contract_weight, contract_bias.contiguous(),
                    inner if keep is None else keep, out,
                    tokens, scale, dim, size, width,
                    **_blocks(size, keep),
                )  # fmt: skip
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tuple[Optional[Tensor], ...]:
        inner, expand_weight, expand_bias, contract_weight, keep = ctx.saved_tensors
        tokens, dim = inner.shape
        pairs, width, size = contract_weight.shape
        grad = grad.contiguous()
        grad_inner = torch.empty_like(inner)
        parts = min(PARTS, max(1, triton.cdiv(tokens, TOKENS)))
        tokens_of_part = triton.cdiv(triton.cdiv(tokens, parts), TOKENS) * TOKENS
        shapes = [expand_weight.shape, expand_bias.shape, contract_weight.shape, (pairs, 1, size)]
        sizes = [math.prod(shape) for shape in shapes]
        new = grad.new_empty if tokens > 0 else grad.new_zeros
        sums = new((parts, sum(sizes)), dtype=torch.float32)
        common = (
            inner, expand_weight, expand_bias.contiguous(), contract_weight,
            inner if keep is None else keep, grad,
        )  # fmt: skip
        if tokens > 0:
            _backward_inner[(triton.cdiv(tokens, TOKENS), pairs)](
                *common, grad_inner, tokens, ctx.scale, dim, size, width, **_blocks(size, keep)
            )
            _backward_weights[(triton.cdiv(width, WIDTH), pairs, parts)](
                *common, *sums.split(sizes, dim=1), tokens, tokens_of_part, sums.size(1),
                ctx.scale, dim, size, width, **_blocks(size, keep),
            )  # fmt: skip
        total = sums.sum(dim=0).type_as(expand_weight)
        parameters = (part.view(shape) for part, shape in zip(total.split(sizes), shapes))
        return (grad_inner, *parameters, None, None)


def _blocks(size: int, keep: Optional[Tensor]) -> Any:
    features = block(size)
    return {
        "SIZE": features,
        "TOKENS": TOKENS,
        "WIDTH": WIDTH,
        "HAS_KEEP": keep is not None,
        # wider subspaces: by the compiler's report sums stay in registers and two programs fit
        "num_warps": 4 if features <= 64 else 8,
        "num_stages": 3 if features <= 64 else 2,
    }
