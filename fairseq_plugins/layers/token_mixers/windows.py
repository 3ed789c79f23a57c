"""Attention from chunks of neighbouring queries to windows of neighbouring keys.

Sequences are B x h x T x s and begin at position 0; padding comes last (see `multi_head.py`).
"""

import math

import torch
import torch.nn.functional as F
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn

from .multi_head import masked_softmax

CHUNK = 32  # the fewest queries that share a window, unless the sentence is shorter


class WindowAttention(nn.Module):
    """Softmax attention of each query to nearby keys and to the first keys of the sentence.

    Query i covers positions ``[i ratio, i ratio + ratio - 1]``, and key j is at position ``j
    stride``. A query sees keys at a distance of at most `side`, and keys 0 to ``first - 1``. A
    query that sees no key gives zeros. With `fixed`, sizes are those of a long sentence.

    Queries are processed in chunks that share one window. Time and memory are
    O(T (ratio + side / stride + first) s) for each head.

    Args:
        side: positions seen on each side.
        ratio: positions that a query covers (pooled queries); 1 unless stride is 1.
        stride: distance between neighbouring keys (pooled keys).
        first: number of keys that every query sees.
        dropout: on the weights.

    Shape:
        q: B x h x T x s, already divided by sqrt(s); k, v: B x h x S x s; lengths: B, the number of
        real keys of each sentence; result: B x h x T x s.
    """

    def __init__(
        self, side: int, ratio: int = 1, stride: int = 1, first: int = 0, dropout: float = 0.0
    ):
        super().__init__()
        self.side = side
        self.ratio = ratio
        self.stride = stride
        self.first = first
        self.chunk = CHUNK
        self.fixed = False
        self.dropout_module = FairseqDropout(dropout, module_name=self.__class__.__name__)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor) -> Tensor:
        ratio, stride = self.ratio, self.stride
        length = q.size(2)
        side = self.side
        if not self.fixed:
            side = min(side, max(length * ratio, k.size(2) * stride))  # at most the sentence
        chunk = max(side // ratio, self.chunk)
        if not self.fixed:
            chunk = min(chunk, length)
        chunk += -chunk % stride  # each chunk begins at the position of a key
        step = chunk * ratio // stride  # keys from one window to the next
        before = side // stride
        size = step + before + (side - 1) // stride + 1
        queries = chunks(q, chunk)  # B x h x n x chunk x s
        count = queries.size(2)

        positions = window_positions(count, step, before, size, q.device)  # n x size
        real = (positions >= self.first) & (positions < lengths.view(-1, 1, 1))  # B x n x size
        query_at = torch.arange(chunk, device=q.device).unsqueeze(1) * ratio
        key_at = (torch.arange(size, device=q.device) - before) * stride
        near = (key_at >= query_at - side) & (key_at < query_at + ratio + side)  # chunk x size
        hidden = ~(real.unsqueeze(2) & near).unsqueeze(1)  # B x 1 x n x chunk x size
        scores = torch.matmul(queries, windows(k, count, step, before, size))

        first_k, first_v = k[:, :, : self.first], v[:, :, : self.first]
        flat = queries.flatten(2, 3)
        first_scores = torch.matmul(flat, first_k.transpose(2, 3)).view(
            scores.size(0), scores.size(1), count, chunk, -1
        )
        first_hidden = torch.arange(first_k.size(2), device=q.device) >= lengths.view(
            -1, 1, 1, 1, 1
        )
        hidden = torch.cat([hidden, first_hidden.expand(-1, -1, count, chunk, -1)], dim=-1)
        weights = masked_softmax(torch.cat([scores, first_scores], dim=-1), hidden)
        weights = self.dropout_module(weights)

        out = torch.matmul(
            weights[..., :size], windows(v, count, step, before, size).transpose(3, 4)
        ).flatten(2, 3)
        out = out + torch.matmul(weights[..., size:].flatten(2, 3), first_v)
        return out[:, :, :length]

    def length_multiple(self) -> int:
        """See `TokenMixer`."""
        chunk = max(self.side // self.ratio, self.chunk)
        chunk += -chunk % self.stride
        return chunk * max(1, math.ceil(self.first / chunk))  # of one chunk, with all first keys


def windows(x: Tensor, count: int, step: int, before: int, size: int) -> Tensor:
    """`count` windows of `size` positions; window i starts at position ``i step - before``.

    Shape: B x h x S x s -> B x h x count x s x size, with zeros beyond both ends.
    """
    after = (count - 1) * step + size - before - x.size(2)  # below 0 it cuts
    return F.pad(x, (0, 0, before, after)).unfold(2, size, step)


def window_positions(count: int, step: int, before: int, size: int, device: torch.device) -> Tensor:
    """count x size: the positions in each of `windows`; negative before the start."""
    starts = torch.arange(count, device=device).unsqueeze(1) * step - before
    return starts + torch.arange(size, device=device)


def chunks(x: Tensor, size: int) -> Tensor:
    """B x h x T x s -> B x h x ceil(T / size) x size x s; zeros fill the last chunk."""
    x = F.pad(x, (0, 0, 0, -x.size(2) % size))
    return x.reshape(x.size(0), x.size(1), -1, size, x.size(3))
