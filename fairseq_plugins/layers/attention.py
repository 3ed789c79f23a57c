"""Softmax attention for training, in memory that is linear in the length where possible."""

import math
from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from .dropout import draw_kept
from .tracing import is_traced

# Attention weights that `ChunkedAttention` holds at a time: 16 MiB in float32. Measured on a CPU at
# lengths 1,024 and 4,096: half as many took 1.1 times as long, and twice as many 1.7 times, as
# the C library then requests new memory from the system for every tensor.
WEIGHTS_AT_A_TIME = 2**22


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    causal: bool,
    dropout: nn.Module,
) -> Tensor:
    """``dropout(softmax(Q K^T / sqrt(s))) V``.

    Uses torch's fused attention where it is the fastest (see `fused_pays`), and `ChunkedAttention`
    for more than `WEIGHTS_AT_A_TIME` weights on a CPU.

    Args:
        query: B x h x T x s; key, value: B x h x T' x s, of the same dtype.
        mask: B x 1 x 1 x T', True at keys to ignore, or None.
        causal: position t reads keys up to t only (T = T').
        dropout: on the weights; a FairseqDropout.

    Returns:
        B x h x T x s in the dtype of the query.
    """
    p = float(dropout.p) if dropout.training else 0.0  # type: ignore[arg-type]
    if fused_pays(query, p):
        allowed = None if mask is None else ~mask
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=allowed, dropout_p=p, is_causal=causal
        )
    if query.device.type == "cpu" and p < 1 and not is_traced():
        count = query.size(0) * query.size(1) * query.size(2) * key.size(2)
        if count > WEIGHTS_AT_A_TIME:
            return ChunkedAttention.apply(query, key, value, mask, causal, p)
        scores = scores_of(query, key, mask, causal)
        weights = scores.softmax(dim=-1)  # computes in float32 internally, also for half precision
        return torch.matmul(dropout(weights), value)
    return attend_plainly(query, key, value, mask, causal, dropout)[0]


def attend_plainly(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    causal: bool,
    dropout: nn.Module,
) -> tuple[Tensor, Tensor]:
    """`attend`, with all weights in memory at once.

    Returns:
        the result, B x h x T x s, and the weights before dropout, B x h x T x T', in float32 at
        least: the gradient of a copied word is 1 / P, too large for float16.
    """
    scores = scores_of(query, key, mask, causal)
    weights = scores.softmax(dim=-1, dtype=torch.promote_types(scores.dtype, torch.float32))
    return torch.matmul(dropout(weights.type_as(scores)), value), weights


def scores_of(query: Tensor, key: Tensor, mask: Tensor | None, causal: bool) -> Tensor:
    """``Q K^T / sqrt(s)``, -inf at keys that a query must not read: B x h x T x T'."""
    query = query * (1.0 / math.sqrt(query.size(-1)))
    scores = torch.matmul(query, key.transpose(2, 3))
    if causal:
        scores = scores + scores.new_full(scores.shape[2:], -math.inf).triu_(1)
    return scores if mask is None else scores.masked_fill(mask, -math.inf)


class ChunkedAttention(torch.autograd.Function):
    """Attention with dropout on a CPU, in memory linear in the length.

    Queries are processed in chunks. Backward recomputes the weights of a chunk, with the same
    dropout mask as forward. For one chunk, with W the softmax, M the dropout mask over 1 - p and G
    the gradient of the result::

        dV += (W M)^T G
        dW  = (G V^T) M
        dS  = W (dW - rowsum(dW W))
        dQ  = dS K / sqrt(s),    dK += dS^T Q / sqrt(s)

    rowsum(dW W) equals the row sum of G times the result (FlashAttention's form). That form is not
    used: in half precision its rounding differs from dW's, and dW - rowsum(dW W) is small.

    Shapes and arguments are those of `attend`, with the dropout probability p < 1 as a number. Sums
    over chunks are in float32 at least. Differentiable once; a second time raises the RuntimeError
    of `once_differentiable`.
    """

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None,
        causal: bool,
        p: float,
    ) -> Tensor:
        ctx.random = torch.get_rng_state()
        ctx.causal, ctx.p = causal, p
        heads = query.size(1)
        query, key, value = (x.flatten(0, 1) for x in (query, key, value))
        out = query.new_empty(*query.shape[:2], value.size(-1))
        for rows, seen, weights, kept in _chunks(query, key, mask, causal, p, heads):
            if kept is not None:
                weights.mul_(kept)
            torch.bmm(weights, value[:, :seen], out=out[:, rows])
        out = out.unflatten(0, (-1, heads))
        ctx.save_for_backward(query, key, value, mask)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, mask = ctx.saved_tensors
        heads = grad.size(1)
        scale = 1.0 / math.sqrt(query.size(-1))
        grad = grad.flatten(0, 1)
        exact = torch.promote_types(grad.dtype, torch.float32)
        grad_query = torch.empty_like(query)
        grad_key = torch.zeros_like(key, dtype=exact)
        grad_value = torch.zeros_like(value, dtype=exact)
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(ctx.random)
            for rows, seen, weights, kept in _chunks(query, key, mask, ctx.causal, ctx.p, heads):
                g = grad[:, rows]
                dropped = weights if kept is None else weights * kept
                grad_value[:, :seen] += torch.bmm(dropped.transpose(1, 2), g)
                of_weights = torch.bmm(g, value[:, :seen].transpose(1, 2))
                if kept is not None:
                    of_weights.mul_(kept)
                # softmax's own backward: one pass that computes in float32 internally
                of_scores = torch._softmax_backward_data(of_weights, weights, -1, weights.dtype)
                grad_query[:, rows] = torch.bmm(of_scores, key[:, :seen]).mul_(scale)
                product = torch.bmm(of_scores.transpose(1, 2), query[:, rows])
                grad_key[:, :seen].add_(product, alpha=scale)
        return (
            grad_query.unflatten(0, (-1, heads)),
            grad_key.type_as(key).unflatten(0, (-1, heads)),
            grad_value.type_as(value).unflatten(0, (-1, heads)),
            None,
            None,
            None,
        )


def _chunks(
    query: Tensor, key: Tensor, mask: Tensor | None, causal: bool, p: float, heads: int
) -> Iterator[tuple[slice, int, Tensor, Tensor | None]]:
    """Yield per chunk: its query rows, the keys they read, the weights and the dropout mask.

    `query` and `key` are (B h) x T x s. The keys are the first `seen` ones. The weights, (B h) x
    rows x seen, may be overwritten. The mask is divided by 1 - p, or None without dropout.
    """
    batch_heads, length, size = query.shape
    step = max(1, WEIGHTS_AT_A_TIME // (batch_heads * key.size(1)))
    for start in range(0, length, step):
        rows = slice(start, min(start + step, length))
        seen = rows.stop if causal else key.size(1)
        # scale before the product, as fairseq does, for the same rounding in half precision
        scores = torch.bmm(query[:, rows] * (1.0 / math.sqrt(size)), key[:, :seen].transpose(1, 2))
        if causal:
            ones = torch.ones(rows.stop - start, rows.stop - start, dtype=torch.bool)
            scores[:, :, start:].masked_fill_(ones.triu_(1), -math.inf)
        if mask is not None:
            by_head = scores.view(-1, heads, *scores.shape[1:])
            by_head.masked_fill_(mask[..., :seen], -math.inf)
        weights = torch.softmax(scores, dim=-1)  # computes in float32 internally
        kept = draw_kept(weights, 1.0 - p).mul_(1.0 / (1.0 - p)) if p > 0 else None
        yield rows, seen, weights, kept


def fused_pays(query: Tensor, dropout: float) -> bool:
    """Whether torch's fused attention is the fastest way here.

    On a CPU it is slow in half precision, and with dropout it builds all weights at once.
    """
    half = query.dtype in (torch.bfloat16, torch.float16)
    return query.device.type != "cpu" or not (half or dropout > 0)
