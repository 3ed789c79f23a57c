"""Dropout whose random numbers are cheap on a CPU."""

import torch
import torch.nn.functional as F
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn

from .compilation import is_captured


class FastDropout(FairseqDropout):
    """``x * keep / (1 - p)`` with independent keep ~ Bernoulli(1 - p).

    The distribution is torch's; the random stream differs. torch draws 31 bits for each element,
    which costs more than a LayerNorm; here an element has one byte (see `draw_kept`). On a GPU, and
    in compiled layers, it is torch's own dropout.
    """

    def forward(self, x: Tensor, inplace: bool = False) -> Tensor:
        if self.p <= 0 or not (self.training or self.apply_during_inference):
            return x
        if not torch.jit.is_scripting():
            if x.device.type == "cpu" and self.p < 1 and not is_captured():
                return x * draw_kept(x, 1.0 - self.p).mul_(1.0 / (1.0 - self.p))
        return F.dropout(x, p=self.p, training=True, inplace=inplace)


def draw_kept(like: Tensor, keep: float) -> Tensor:
    """Independent draws of Bernoulli(keep), 1 or 0, in the shape and type of a CPU tensor.

    A random byte is below b with probability b / 256, which is at most keep for ``b = floor(256
    keep)`` and more than it for b + 1. What is missing, or too much, is made good by a second,
    sparse process of independent events: it keeps what the first b did not, with the probability r
    that solves ``b / 256 + (1 - b / 256) r = keep``, or drops what b + 1 kept, with that of
    ``(b + 1) / 256 (1 - r) = keep``. The rarer of the two is taken, which has r < 1 / 128; its
    events are found by the gaps between them, which are geometric.
    """
    count = like.numel()
    words = torch.empty((count + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
    bound = int(256 * keep)
    missing = (256 * keep - bound) / (256 - bound)
    surplus = (bound + 1 - 256 * keep) / (bound + 1)
    is_kept = missing <= surplus  # by an event
    largest = bound - 1 if is_kept else bound  # 255 is the last number of a byte, -1 is none
    kept = like.new_empty(count)
    if largest < 0:
        kept.zero_()
    else:
        torch.le(words.view(torch.uint8)[:count], largest, out=kept)
    _change_some(kept, missing if is_kept else surplus, 1.0 if is_kept else 0.0)
    return kept.view(like.shape)


def _change_some(values: Tensor, rate: float, to: float) -> None:
    """Each value with that probability, independently."""
    count = values.numel()
    # gaps in float64: 53 bits
    expected = count * rate
    draws = int(expected + 6 * expected**0.5) + 16
    last = -1
    while rate > 0 and last < count - 1:
        gaps = torch.empty(draws, dtype=torch.float64).geometric_(rate)
        events = gaps.cumsum(0).long() + last
        values[events[events < count]] = to
        last = int(events[-1])


def use_fast_dropout(model: nn.Module) -> None:
    """Put a FastDropout in the place of each of fairseq's dropouts."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is FairseqDropout:
                setattr(parent, name, FastDropout(child.p, child.module_name))
