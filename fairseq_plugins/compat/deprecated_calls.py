"""Replace calls of fairseq that newer torch warns about by the recommended ones."""

import functools
import math
from typing import Any

import torch
from fairseq.modules import multihead_attention
from fairseq.optim import amp_optimizer
from fairseq.tasks import fairseq_task
from torch.nn import functional

from fairseq_plugins.compat.patch import Overlay, overlay, repair

PADDING, ATTENTION = 14, 16  # positions of the masks in the arguments of torch's function


@repair()
def name_the_device_of_mixed_precision() -> None:
    """Use `torch.amp` instead of `torch.cuda.amp`, which warns in every training."""
    autocast = functools.partial(torch.amp.autocast, "cuda")
    scaler = functools.partial(torch.amp.GradScaler, "cuda")
    amp = Overlay(torch.cuda.amp, autocast=autocast, GradScaler=scaler)
    for module in (fairseq_task, amp_optimizer):
        overlay(module, "torch", cuda=Overlay(torch.cuda, amp=amp))


@repair()
def give_both_masks_one_type() -> None:
    """Convert the padding mask to numbers if a decoder's causal mask has numbers.

    torch would do so, with a warning.
    """

    def multi_head_attention_forward(*args: Any, **kwargs: Any) -> Any:
        padding, mask = args[PADDING], args[ATTENTION]
        if padding is not None and mask is not None and mask.is_floating_point():
            numbers = torch.zeros_like(padding, dtype=mask.dtype).masked_fill_(padding, -math.inf)
            args = (*args[:PADDING], numbers, *args[PADDING + 1 :])
        return functional.multi_head_attention_forward(*args, **kwargs)

    overlay(multihead_attention, "F", multi_head_attention_forward=multi_head_attention_forward)
