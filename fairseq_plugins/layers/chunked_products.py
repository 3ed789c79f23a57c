"""Equations 7 to 9 of MSCFFN on a CPU, in chunks of tokens, saving no wide tensor for backward."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

# Elements of one L_i of a chunk: 1,024 tokens at d = 768, n = 12, m = 6. On a CPU with 1 MiB of
# second-level cache, half or twice as many take the same time.
CHUNK_NUMBERS = 393216


class ChunkedProducts(torch.autograd.Function):
    """Equations 7 to 9 of MSCFFN: tokens x d -> tokens x d/2, with exact gradients.

    The plain form writes L (m d wide), its relu and C (m d/2 wide each) to memory and saves them
    for backward: more than the standard network saves. Here they exist for one pair of subspaces
    and one chunk of tokens at a time, in reused buffers, and backward recomputes L from I. That
    adds m d^2 / n multiply-adds per token to the 4.5 d^2 (1 + m/n) of forward and backward.

    Args:
        inner: I, tokens x d.
        expand_weight, expand_bias: n x d/n x m d/n and n x 1 x m d/n.
        contract_weight, contract_bias: n/2 x m d/n x d/n and n/2 x 1 x d/n.
        keep: bool, n/2 x tokens x m d/n, True where dropout keeps C_j; None keeps all.
        scale: factor of the kept products.

    All floating-point tensors have one dtype; sums over tokens are in float32 at least.
    Differentiable once; a second time raises the RuntimeError of `once_differentiable`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        inner: Tensor,
        expand_weight: Tensor,
        expand_bias: Tensor,
        contract_weight: Tensor,
        contract_bias: Tensor,
        keep: Tensor | None,
        scale: float,
    ) -> Tensor:
        ctx.save_for_backward(inner, expand_weight, expand_bias, contract_weight, keep)
        ctx.scale = scale
        pairs, width, size = contract_weight.shape
        narrow = inner.new_empty(inner.size(0), pairs * size)
        buffers = inner.new_empty(2, chunk_rows(inner, width), width)
        for rows in chunks(inner, width):
            first, second = buffers[:, : rows.stop - rows.start]
            for pair in range(pairs):
                _expand(inner, expand_weight, expand_bias, keep, rows, pair, first, second)
                first.mul_(second)
                torch.addmm(
                    contract_bias[pair],
                    first,
                    contract_weight[pair],
                    alpha=scale,
                    out=narrow[rows, pair * size : (pair + 1) * size],
                )
        return narrow

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        inner, expand_weight, expand_bias, contract_weight, keep = ctx.saved_tensors
        pairs, width, size = contract_weight.shape
        total = torch.promote_types(inner.dtype, torch.float32)
        grad_inner = torch.empty_like(inner)
        grad_expand = torch.zeros_like(expand_weight, dtype=total)
        grad_expand_bias = torch.zeros_like(expand_bias, dtype=total)
        grad_contract = torch.zeros_like(contract_weight, dtype=total)
        grad_contract_bias = grad.sum(dim=0, dtype=total).view(pairs, 1, size)

        buffers = inner.new_empty(4, chunk_rows(inner, width), width)
        for rows in chunks(inner, width):
            first, second, grad_first, grad_second = buffers[:, : rows.stop - rows.start]
            for pair in range(pairs):
                grad_pair = grad[rows, pair * size : (pair + 1) * size]
                _expand(inner, expand_weight, expand_bias, keep, rows, pair, first, second)
                torch.addmm(
                    grad_first,
                    grad_pair,
                    contract_weight[pair].t(),
                    beta=0,
                    alpha=ctx.scale,
                    out=grad_first,
                )  # the gradient of C_j
                torch.mul(grad_first, first, out=grad_second)
                grad_first.mul_(second)
                second.mul_(first)  # C_j
                add_product(grad_contract[pair], second.t(), grad_pair, ctx.scale)
                # `first` is zero where relu or dropout gave zero: one test serves both
                torch.ops.aten.threshold_backward.grad_input(
                    grad_first, first, 0, grad_input=grad_first
                )
                for i, grad_wide in ((2 * pair, grad_first), (2 * pair + 1, grad_second)):
                    part = slice(i * size, (i + 1) * size)
                    torch.mm(grad_wide, expand_weight[i].t(), out=grad_inner[rows, part])
                    add_product(grad_expand[i], inner[rows, part].t(), grad_wide)
                    grad_expand_bias[i, 0] += grad_wide.sum(dim=0, dtype=total)
        return (
            grad_inner,
            grad_expand.type_as(expand_weight),
            grad_expand_bias.type_as(expand_bias),
            grad_contract.type_as(contract_weight),
            grad_contract_bias.type_as(expand_bias),
            None,
            None,
        )


def chunk_rows(inner: Tensor, width: int) -> int:
    """Tokens of a chunk, for an L_i of this width."""
    return min(inner.size(0), max(1, CHUNK_NUMBERS // width))


def chunks(inner: Tensor, width: int) -> Iterator[slice]:
    """The rows of each chunk."""
    step = chunk_rows(inner, width)
    for start in range(0, inner.size(0), max(1, step)):
        yield slice(start, min(start + step, inner.size(0)))


def _expand(
    inner: Tensor,
    weight: Tensor,
    bias: Tensor,
    keep: Tensor | None,
    rows: slice,
    pair: int,
    first: Tensor,
    second: Tensor,
) -> None:
    """Fill `first` with relu(L_{2j-1}), zero where C_j is dropped, and `second` with L_{2j}."""
    size = weight.size(1)
    for i, out in ((2 * pair, first), (2 * pair + 1, second)):
        torch.addmm(bias[i], inner[rows, i * size : (i + 1) * size], weight[i], out=out)
    first.relu_()
    if keep is not None:
        first.mul_(keep[pair, rows])


def add_product(total: Tensor, left: Tensor, right: Tensor, scale: float = 1.0) -> None:
    """Add the product of two matrices, times `scale`, to `total`, in its dtype."""
    if total.dtype == left.dtype:
        total.addmm_(left, right, alpha=scale)
    else:  # half precision: sum the chunks in float32
        total.add_(torch.mm(left, right), alpha=scale)
