"""Attention and windows of packed sequences: N x C, the concatenated sentences of a batch.

Projections, feed-forward networks, LayerNorm and dropout act on the rows directly. Attention and
pooling over time need the ends of sentences, given by their `Layout`. No size here depends on data:
with fixed numbers of rows and sentences, a CUDA graph can capture everything
(`data/packed_batches.py`).
"""

from functools import cache, cached_property
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.modules import MultiheadAttention
from torch import Tensor

from .attention import attend, attend_plainly
from .compression import TimePooling
from .projections import project_together


class Layout:
    """The positions of sentences in N rows, and the padded batch that attention may need.

    Args:
        starts: S + 1, int64: where each sentence starts and the last one ends. Each row belongs to
            a sentence; sentences may be empty.
        rows: N.
        longest: an upper bound on the rows of a sentence.
    """

    def __init__(self, starts: Tensor, rows: int, longest: int):
        self.starts, self.rows = starts, rows
        self.batch, self.width = starts.numel() - 1, longest
        self.full = rows == self.batch * longest  # whether no sentence needs padding

    def repeat(self, times: int) -> "Layout":
        """The layout of the same sentences, repeated."""
        if times == 1:
            return self
        parts = [self.starts, *(self.starts[1:] + n * self.rows for n in range(1, times))]
        return Layout(torch.cat(parts), times * self.rows, self.width)

    @cached_property
    def bounds(self) -> Tensor:
        """`starts` in the form that flash attention takes."""
        return self.starts.int()

    @cached_property
    def positions(self) -> Tensor:
        """N, the numbers of the rows."""
        return torch.arange(self.rows, device=self.starts.device)

    @cached_property
    def sentence(self) -> Tensor:
        """N, the sentence of each row."""
        return torch.bucketize(self.positions, self.starts[1:], right=True)

    @cached_property
    def offset(self) -> Tensor:
        """N, the position of each row in its sentence, from 0."""
        return self.positions - self.starts.index_select(0, self.sentence)

    @cached_property
    def lengths(self) -> Tensor:
        """S."""
        return self.starts[1:] - self.starts[:-1]

    @cached_property
    def members(self) -> Tensor:
        """S x N, True if a row belongs to a sentence."""
        sentences = torch.arange(self.batch, device=self.sentence.device)
        return self.sentence.unsqueeze(0) == sentences.unsqueeze(1)

    @cached_property
    def padded_index(self) -> Tensor:
        """N, the position of each row in the flattened padded batch."""
        return self.offset + self.sentence * self.width

    @cached_property
    def padding_mask(self) -> Tensor:
        """S x width, True after the end of each sentence."""
        columns = torch.arange(self.width, device=self.lengths.device)
        return columns >= self.lengths.unsqueeze(1)

    def to_padded(self, rows: Tensor) -> Tensor:
        """N x C -> S x width x C, with zeros after the end of each sentence."""
        if not self.full:
            rows = Put.apply(rows, self.padded_index, self.batch * self.width)
        return rows.view(self.batch, self.width, -1)

    def from_padded(self, padded: Tensor) -> Tensor:
        """S x width x C -> N x C."""
        padded = padded.reshape(self.batch * self.width, -1)
        return padded if self.full else Take.apply(padded, self.padded_index)


def layout_of(real: Tensor) -> tuple[Layout, Tensor]:
    """The layout of the real positions of a padded batch, and where they are.

    Its sizes depend on data: the host waits for a GPU.

    Args:
        real: B x T, True at real positions, with padding on any side.

    Returns:
        the layout of N rows, and N, ascending: their indices in the flattened batch.
    """
    lengths, index = real.sum(dim=1), real.flatten().nonzero().squeeze(1)
    starts = F.pad(lengths.cumsum(dim=0), (1, 0))
    return Layout(starts, index.numel(), max(1, int(lengths.max()))), index


class Windows:
    """Maps the rows of one layout to those of another by pooling over time.

    A sentence of length L has at least ceil(L / window) pooled rows; those beyond are 0.

    Args:
        at: the layout of the N rows.
        pooled: the layout of the P pooled rows, of the same sentences; `at` for a window of 1.
        window: rows to a window.
    """

    def __init__(self, at: Layout, pooled: Layout, window: int):
        self.at, self.pooled, self.window = at, pooled, window

    @cached_property
    def index(self) -> Tensor:
        """N, the position of each row in a flat P x window."""
        starts = self.pooled.starts.index_select(0, self.at.sentence)
        return starts * self.window + self.at.offset

    @cached_property
    def left(self) -> Tensor:
        """P, how many rows follow the start of a window in its sentence; below 1 without any."""
        lengths = self.at.lengths.index_select(0, self.pooled.sentence)
        return lengths - self.pooled.offset * self.window

    def pool(self, x: Tensor, time: TimePooling) -> Tensor:
        """``time(x)``: N x C -> P x C."""
        if self.window == 1:
            return x
        padded = Put.apply(x, self.index, self.pooled.rows * self.window)
        windows = padded.view(self.pooled.rows, self.window, -1)
        if time.kind == "mean":  # absent rows are 0 already
            count = self.left.clamp(1, self.window).unsqueeze(1)
            return windows.sum(dim=1) / count.to(x.dtype)
        absent = torch.arange(self.window, device=x.device) >= self.left.unsqueeze(1)
        return time(windows.transpose(0, 1), absent).squeeze(0)  # of window x P x C

    def upsample(self, first: Tensor, x: Tensor) -> Tensor:
        """``first``, N x C, plus x, P x C', repeated over rows and features of its windows."""
        if self.window > 1:
            repeated = x.unsqueeze(1).expand(-1, self.window, -1).flatten(0, 1)
            x = Take.apply(repeated, self.index)
        return (first.unflatten(1, (x.size(1), -1)) + x.unsqueeze(2)).flatten(1)


def packed_attention(
    attention: MultiheadAttention,
    x: Tensor,
    at: Layout,
    memory: Tensor | tuple[Tensor, Tensor],
    memory_at: Layout,
    causal: bool = False,
    need_weights: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """fairseq's attention within each sentence.

    Args:
        attention: the module.
        x, memory: N x d and M x d', with their layouts of the same sentences. Instead of memory,
            its keys and values of `keys_and_values`.
        causal: rows do not read later ones.
        need_weights: whether to return the weights.

    Returns:
        N x d before the output projection, and the mean over heads of the weights, N x width in the
        padded memory, or None.
    """
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    if memory is x:
        projected = project_together(x, projections)
    elif isinstance(memory, tuple):
        projected = (attention.q_proj(x), *memory)
    else:
        projected = (attention.q_proj(x), *project_together(memory, projections[1:]))
    query, key, value = (  # N x h x s
        rows.view(rows.size(0), attention.num_heads, attention.head_dim) for rows in projected
    )
    dropout, weights = attention.dropout_module, None
    if not need_weights and has_flash(query):
        p = float(dropout.p) if dropout.training else 0.0
        # torch.nn.attention.varlen has no dropout
        mixed = torch.ops.aten._flash_attention_forward(
            *(query, key, value, at.bounds, memory_at.bounds, at.width, memory_at.width),
            *(p, causal, False),
        )[0].flatten(1)
    else:

        def heads(rows: Tensor, at: Layout) -> Tensor:  # S x h x width x s
            padded = at.to_padded(rows.flatten(1))
            return padded.view(at.batch, at.width, attention.num_heads, -1).transpose(1, 2)

        mask: Tensor | None = None
        if not causal and not memory_at.full:
            # causal attention needs no mask: padding comes last
            mask = memory_at.padding_mask[:, None, None, :]
        compute: Any = attend_plainly if need_weights else attend
        mixed = compute(
            *(heads(query, at), heads(key, memory_at), heads(value, memory_at)),
            *(mask, causal, dropout),
        )
        if need_weights:
            mixed, weights = mixed
            weights = at.from_padded(weights.mean(dim=1))
        mixed = at.from_padded(mixed.transpose(1, 2).reshape(at.batch, at.width, -1))
    return mixed, weights


def keys_and_values(
    attentions: list[MultiheadAttention], memory: Tensor
) -> list[tuple[Tensor, Tensor]]:
    """The memory's keys and values for each of several modules, by one product on a GPU."""
    projections = [layer for module in attentions for layer in (module.k_proj, module.v_proj)]
    projected = project_together(memory, projections)
    return list(zip(projected[::2], projected[1::2]))


def has_flash(query: Tensor) -> bool:
    """Whether torch's flash attention supports these heads: half precision on a newer GPU."""
    size = query.size(-1)
    half = query.is_cuda and query.dtype in (torch.bfloat16, torch.float16)
    fits = half and 0 < query.numel() and size % 8 == 0 and size <= largest_flash_head(query.device)
    return fits and torch.backends.cuda.flash_sdp_enabled()


@cache
def largest_flash_head(device: torch.device) -> int:
    """Features of a head, a multiple of 8, up to which a GPU has flash attention; 0 if none has."""
    capability = torch.cuda.get_device_capability(device)
    if capability < (8, 0) or not torch.backends.cuda.is_flash_attention_available():
        return 0
    # with less shared memory the gradients of larger heads are missing
    return 256 if capability in ((8, 0), (9, 0)) else 192


def take_rows(x: Tensor, index: Tensor) -> Tensor:
    """The rows `index` of x, in ascending order without repeats; x itself if these are all rows."""
    return x if index.numel() == x.size(0) else Take.apply(x, index)


def put_rows(rows: Tensor, index: Tensor, size: int) -> Tensor:
    """The inverse of `take_rows`: `size` rows, with zeros beside `index`."""
    return rows if index.numel() == size else Put.apply(rows, index, size)


class Take(torch.autograd.Function):
    """Take distinct rows. index_select's own backward would add them one by one."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, index: Tensor) -> Tensor:
        ctx.save_for_backward(index)
        ctx.size = x.size(0)
        return x.index_select(0, index)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (index,) = ctx.saved_tensors
        return Put.apply(grad, index, ctx.size), None


class Put(torch.autograd.Function):
    """The inverse of `Take`: put rows into a zero tensor of `size` rows."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, index: Tensor, size: int) -> Tensor:
        ctx.save_for_backward(index)
        return rows.new_zeros(size, *rows.shape[1:]).index_copy_(0, index, rows)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (index,) = ctx.saved_tensors
        return Take.apply(grad, index), None, None
