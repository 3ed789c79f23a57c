"""Count the floating point operations that matrix products and attention execute."""

import os
from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

import torch
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from fairseq_plugins.layers import kernels

EXAMPLES = 8  # of the validation set, whose operations are counted


def count_operations(task: Any, model: Any, criterion: Any) -> int | None:
    """Operations of a model and its loss on the first examples of the validation set, forward.

    Returns:
        their number; None without a validation set.
    """
    try:
        task.load_dataset("valid")
    except FileNotFoundError:
        return None
    dataset = task.dataset("valid")
    sample = dataset.collater([dataset[number] for number in range(min(EXAMPLES, len(dataset)))])
    model.eval()
    with torch.no_grad():
        return count_flops(lambda each: criterion(model, each), [sample])


def count_flops(work: Callable[[Any], Any], inputs: Iterable[Any]) -> int:
    """Operations that matrix products and attention of `work` execute on all inputs.

    A multiply-add counts as two. Recomputation in backward is counted; element-wise operations are
    not. Triton kernels, which torch cannot look into, are off while it counts.
    """
    aten = torch.ops.aten
    missing_in_torch = {
        aten.addmm_: aten.addmm,
        aten.baddbmm_: aten.baddbmm,
        aten._addmm_activation: aten.addmm,
        aten._scaled_dot_product_flash_attention_for_cpu: aten._scaled_dot_product_flash_attention,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: (
            aten._scaled_dot_product_flash_attention_backward
        ),
    }
    more = {name: flop_registry[same] for name, same in missing_in_torch.items()}
    known = mock.patch.dict(flop_registry, more)
    plain = mock.patch.dict(os.environ, {kernels.VARIABLE: "0"})
    with plain, known, FlopCounterMode(display=False) as counter:
        for each in inputs:
            work(each)
    return counter.get_total_flops()
