"""Floating point operations of the matrix products and of attention, as they are carried out."""

from typing import Any, Callable, Dict, Optional

import torch


def count_flops(work: Callable[[], Any]) -> Optional[int]:
    """Operations of one run, a multiply-add being two; None before torch 2.1, which cannot count.

    What a backward pass computes again is counted again. Element-wise operations are not counted.
    """
    try:
        from torch.utils.flop_counter import FlopCounterMode
    except ImportError:
        return None
    with FlopCounterMode(display=False, custom_mapping=_attention_on_a_cpu()) as counter:
        work()
    return counter.get_total_flops()


def _attention_on_a_cpu() -> Dict[Any, Callable[..., int]]:
    """Torch counts fused attention on GPUs alone; the products are the same on a CPU."""
    from torch.utils import flop_counter

    mapping: Dict[Any, Callable[..., int]] = {}
    known = getattr(flop_counter, "flop_registry", {})
    forward = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu", None)
    if forward is not None and forward not in known:
        mapping[forward] = _forward
    backward = getattr(torch.ops.aten, "_scaled_dot_product_flash_attention_for_cpu_backward", None)
    if backward is not None and backward not in known:
        mapping[backward] = _backward
    return mapping


def _forward(query, key, value, *rest, out_shape=None, **named) -> int:  # shapes, B x h x T x s
    batch, heads, length, size = query
    return 2 * batch * heads * length * key[2] * (size + value[3])


def _backward(gradient, query, key, value, *rest, out_shape=None, **named) -> int:
    """Scores once more, and the gradients of weights, values, queries and keys."""
    batch, heads, length, size = query
    return 2 * batch * heads * length * key[2] * (3 * size + 2 * value[3])
