"""Pooling between encoder blocks, and its inverse (TransformerFTC, section 3.2.1).

Sequences are T x B x C as everywhere in fairseq; padding masks are B x T, True at padding, or
None. Windows over time start at the first *real* token of each sentence: batches padded on the left
are aligned first (`align_to_start`) and moved back at the end (`restore_alignment`). Otherwise the
other sentences of a batch would affect which tokens are pooled together.

The author's fork also pools keys and values, and masks every window that touches padding. Weights
trained with the fork therefore give different results here. The paper's time figures probably come
from the fork.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .masking import Mask

TIME_POOLINGS = ("mean", "max", "min")
FEATURE_POOLINGS = ("mean", "linear", "max", "min")


def align_to_start(x: Tensor, padding_mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Move the real tokens of each sentence to the start of the time axis, order kept.

    Args:
        x: T x B x C.
        padding_mask: B x T, True at padding (on any side).

    Returns:
        the aligned sequence (T x B x C, padding zeroed), its padding mask (B x T), and, for
        `restore_alignment`, the rank of each original position among the real tokens of its
        sentence (B x T).
    """
    real = ~padding_mask
    # distinct sort keys keep the order of tokens without a stable sort, which exporters lack
    positions = torch.arange(x.size(0), device=x.device).unsqueeze(0)
    order = torch.sort(padding_mask.to(torch.int64) * x.size(0) + positions, dim=1)[1]  # B x T
    lengths = real.sum(dim=1, keepdim=True)  # B x 1
    aligned_mask = positions >= lengths  # B x T
    aligned = _take_rows(x, order).masked_fill(aligned_mask.t().unsqueeze(-1), 0.0)
    rank = (real.to(torch.int64).cumsum(dim=1) - 1).clamp(min=0)
    return aligned, aligned_mask, rank


def restore_alignment(x: Tensor, rank: Tensor) -> Tensor:
    """Undo `align_to_start`: position t of the result is row ``rank[b, t]`` of sentence b.

    Positions at padding get a copy of any real row; callers must mask them.
    """
    return _take_rows(x, rank)


def _take_rows(x: Tensor, index: Tensor) -> Tensor:
    """Row ``index[b, t]`` of each sentence b: T x B x C indexed by B x T'."""
    bsz, channels = x.size(1), x.size(2)
    rows = index * bsz + torch.arange(bsz, device=x.device).unsqueeze(1)  # B x T'
    flat = x.reshape(-1, channels).index_select(0, rows.t().reshape(-1))
    return flat.view(-1, bsz, channels)


def pool_padding_mask(padding_mask: Tensor, window: int) -> Tensor:
    """B x T -> B x ceil(T / window): a pooled position is padding when its whole window is."""
    extra = -padding_mask.size(1) % window
    padded = F.pad(padding_mask, (0, extra), value=1.0)
    return padded.view(padded.size(0), -1, window).all(dim=2)


class TimePooling(nn.Module):
    """Pool each window of neighbouring positions into one, over real tokens only.

    ``y_j = pool(x_{jw}, ..., x_{jw+w-1})``, where pool is the mean, maximum or minimum over the
    positions that exist and are not padding. A partly filled last window counts; a window of
    padding only gives 0. Equal maxima (minima) share the gradient.

    Args:
        window: positions to a window, at least 1 (1 changes nothing).
        kind: "mean", "max" or "min".

    Shape:
        x: T x B x C with the real tokens of each sentence at the start (see `align_to_start`);
        padding_mask: B x T or None; result: ceil(T / window) x B x C, in x's dtype.
    """

    def __init__(self, window: int, kind: str = "mean"):
        super().__init__()
        self.window = window
        self.kind = kind
        self.fill = {"mean": 0.0, "max": -math.inf, "min": math.inf}[kind]  # of padding

    def forward(self, x: Tensor, padding_mask: Mask = None) -> Tensor:
        if self.window == 1:
            return x
        length, bsz, channels = x.size(0), x.size(1), x.size(2)
        extra = -length % self.window
        if padding_mask is None and extra == 0:
            return _reduce(x.view(-1, self.window, bsz, channels), self.kind, 1)

        if padding_mask is None:
            padding_mask = torch.zeros(1, length, dtype=torch.bool, device=x.device)
        absent = F.pad(padding_mask, (0, extra), value=1.0).t().unsqueeze(-1)  # T' x B x 1
        # fill, not multiply: padding may hold NaN
        x = F.pad(x, (0, 0, 0, 0, 0, extra)).masked_fill(absent, self.fill)
        windows = x.view(-1, self.window, bsz, channels)
        absent_windows = absent.view(-1, self.window, absent.size(1), 1)
        if self.kind == "mean":
            count = (~absent_windows).sum(dim=1).clamp(min=1)
            return windows.sum(dim=1) / count.to(x.dtype)
        return _reduce(windows, self.kind, 1).masked_fill(absent_windows.all(dim=1), 0.0)


class FeaturePooling(nn.Module):
    """Pool each window of neighbouring features into one; "linear" learns the map instead.

    ``y_c = pool(x_{cw}, ..., x_{cw+w-1})`` with mean, maximum or minimum, or ``y = A x + b`` with a
    learned A of C/w x C (TransformerFTC, section 3.2.1 and table 2). Equal maxima (minima) share
    the gradient.

    Args:
        embed_dim: C, a multiple of the window.
        window: features to a window, at least 1 (1 changes nothing).
        kind: "mean", "linear", "max" or "min".

    Shape: T x B x C -> T x B x C / window, in x's dtype.
    """

    def __init__(self, embed_dim: int, window: int, kind: str = "mean"):
        super().__init__()
        self.window = window
        self.kind = kind
        self.linear: nn.Linear | None = None
        if kind == "linear" and window > 1:
            self.linear = nn.Linear(embed_dim, embed_dim // window)
            nn.init.xavier_uniform_(self.linear.weight)
            nn.init.zeros_(self.linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        if self.window == 1:
            return x
        if self.linear is not None:
            return self.linear(x)
        return _reduce(x.reshape(x.size(0), x.size(1), -1, self.window), self.kind, 3)


def _reduce(windows: Tensor, kind: str, dim: int) -> Tensor:
    """The mean, maximum or minimum over a dimension."""
    if kind == "mean":
        return windows.mean(dim=dim)
    return windows.amax(dim=dim) if kind == "max" else windows.amin(dim=dim)


def upsample(x: Tensor, time_window: int, feature_window: int, length: int) -> Tensor:
    """Repeat every feature `feature_window` times and every position `time_window` times.

    The windows are the products over all poolings.
    Shape: T' x B x C' -> length x B x (C' * feature_window), cut at `length` <= T' * time_window.
    """
    steps, bsz, channels = x.size(0), x.size(1), x.size(2)
    if feature_window > 1:
        x = x.unsqueeze(3).expand(steps, bsz, channels, feature_window).reshape(steps, bsz, -1)
    if time_window > 1:
        x = x.unsqueeze(1).expand(steps, time_window, bsz, x.size(2))
        x = x.reshape(steps * time_window, bsz, -1)[:length]
    return x
