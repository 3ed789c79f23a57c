"""Dropout with cheap random numbers on a CPU, and seeds of dropout in a GPU's kernels."""

import contextlib
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn

from .tracing import is_traced

SEEDS = 64  # that one operation draws

_pools: list[list[Tensor]] = []  # in `seeds_at_once`: those that are left


class FastDropout(FairseqDropout):
    """``x * keep / (1 - p)`` with independent keep ~ Bernoulli(1 - p).

    The distribution is that of torch; the random stream differs. torch draws 31 bits per element,
    which takes longer than a LayerNorm; this class draws one byte (see `draw_kept`). On a GPU
    and in compiled layers, this is torch's own dropout.
    """

    def forward(self, x: Tensor, inplace: bool = False) -> Tensor:
        if self.p <= 0 or not (self.training or self.apply_during_inference):
            return x
        if not torch.jit.is_scripting():
            if x.device.type == "cpu" and self.p < 1 and not is_traced():
                return x * draw_kept(x, 1.0 - self.p).mul_(1.0 / (1.0 - self.p))
        return F.dropout(x, p=self.p, training=True, inplace=inplace)


def probability(dropout: FairseqDropout) -> float:
    """The current drop probability of a dropout module; 0 outside training."""
    return float(dropout.p) if dropout.training or dropout.apply_during_inference else 0.0


def draw_kept(like: Tensor, keep: float) -> Tensor:
    """Independent draws of Bernoulli(keep), 1 or 0, in the shape and dtype of a CPU tensor.

    A random byte is below b with probability b / 256. With ``b = floor(256 keep)`` this is at most
    keep, and with b + 1 it is more than keep. A second, sparse process of independent events
    corrects the difference, in one of two ways:

    - draw with b; each event, of probability r, keeps its element: ``b/256 + (1 - b/256) r = keep``
    - draw with b + 1; each event drops its element: ``(b + 1)/256 (1 - r) = keep``

    The way with the smaller r is used; its r is below 1 / 128. The gaps between its events are
    geometric, so random numbers are drawn only for events.
    """
    count = like.numel()
    words = torch.empty((count + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
    bound = int(256 * keep)
    missing = (256 * keep - bound) / (256 - bound)
    surplus = (bound + 1 - 256 * keep) / (bound + 1)
    is_kept = missing <= surplus  # whether events keep their elements
    largest = bound - 1 if is_kept else bound  # bytes up to this are kept; -1 keeps none
    kept = like.new_empty(count)
    if largest < 0:
        kept.zero_()
    else:
        torch.le(words.view(torch.uint8)[:count], largest, out=kept)
    _change_some(kept, missing if is_kept else surplus, 1.0 if is_kept else 0.0)
    return kept.view(like.shape)


def _change_some(values: Tensor, rate: float, to: float) -> None:
    """Set each value to `to` with probability `rate`, independently."""
    count = values.numel()
    expected = count * rate
    draws = int(expected + 6 * expected**0.5) + 16
    last = -1
    while rate > 0 and last < count - 1:
        gaps = torch.empty(draws, dtype=torch.float64).geometric_(rate)  # float64: 53 random bits
        events = gaps.cumsum(0).long() + last
        values[events[events < count]] = to
        last = int(events[-1])


def use_fast_dropout(model: nn.Module) -> None:
    """Replace every FairseqDropout of a model by a FastDropout."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is FairseqDropout:
                setattr(parent, name, FastDropout(child.p, child.module_name))


def new_seed(like: Tensor, p: float) -> Tensor | None:
    """The seed of a kernel's dropout, one int64 on the device of `like`; None without dropout.

    It comes from torch's generator of that device (see `kernels/draws.py`).
    """
    if p == 0:
        return None
    if not _pools:
        return torch.empty(1, dtype=torch.int64, device=like.device).random_()
    if not _pools[-1]:  # 16 bytes apart, as kernels expect of any address
        numbers = torch.empty(SEEDS, 2, dtype=torch.int64, device=like.device).random_()
        _pools[-1].extend(numbers[:, :1].unbind())
    return _pools[-1].pop()


@contextlib.contextmanager
def seeds_at_once() -> Iterator[None]:
    """Context of a forward on one device: an operation draws the seeds of `SEEDS` kernels."""
    _pools.append([])
    try:
        yield
    finally:
        _pools.pop()
