"""Count the floating point operations that matrix products and attention execute."""

import os
from collections.abc import Callable, Iterable
from typing import Any
from unittest import mock

import torch
from torch.utils.flop_counter import FlopCounterMode

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
    missing_in_torch: dict[Any, Callable[..., int]] = {
        aten.addmm_: _added_product,
        aten.baddbmm_: _added_products,
        aten._addmm_activation: _added_product,
        aten._scaled_dot_product_flash_attention_for_cpu: _attention,
        aten._scaled_dot_product_flash_attention_for_cpu_backward: _attention_backward,
    }
    plain = mock.patch.dict(os.environ, {kernels.VARIABLE: "0"})
    with plain, FlopCounterMode(display=False, custom_mapping=missing_in_torch) as counter:
        for each in inputs:
            work(each)
    return counter.get_total_flops()


def _added_product(total: Any, left: Any, right: Any, *rest: Any, **named: Any) -> int:
    return 2 * left[0] * left[1] * right[1]


def _added_products(total: Any, left: Any, right: Any, *rest: Any, **named: Any) -> int:
    return 2 * left[0] * left[1] * left[2] * right[2]


# shapes of queries, keys and values: B x h x T x s
def _attention(query: Any, key: Any, value: Any, *rest: Any, **named: Any) -> int:
    batch, heads, length, size = query
    return 2 * batch * heads * length * key[2] * (size + value[3])


def _attention_backward(
    gradient: Any, query: Any, key: Any, value: Any, *rest: Any, **named: Any
) -> int:
    """Recomputed scores, and the gradients of weights, values, queries and keys."""
    batch, heads, length, size = query
    return 2 * batch * heads * length * key[2] * (3 * size + 2 * value[3])
