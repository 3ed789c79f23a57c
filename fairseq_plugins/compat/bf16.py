"""Products of bf16 numbers on a CPU that has no instructions for them."""

from contextlib import nullcontext
from typing import Any, Callable, ContextManager, Dict, Optional

import torch
from fairseq.trainer import Trainer
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from fairseq_plugins.compat.patch import wrap

_ATTENTION = "_scaled_dot_product_flash_attention_for_cpu"
_NAMES = (
    "mm", "addmm", "addmm_", "bmm", "baddbmm", "baddbmm_", "mv", "addmv", "addmv_",
    _ATTENTION, _ATTENTION + "_backward",
)  # fmt: skip
_PRODUCTS = {getattr(torch.ops.aten, name) for name in _NAMES if hasattr(torch.ops.aten, name)}


def are_slow() -> bool:
    """Whether torch's bf16 products on this CPU are plain loops, some 60 times slower than float32.

    That is so on x86 without AVX-512. False where the means to do better are missing (before torch
    2.0).
    """
    if int(torch.__version__.split(".")[0]) < 2:
        return False
    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return supported is not None and not supported()


class InFloat32(TorchDispatchMode):
    """Where this is entered, products of bf16 tensors on the CPU are taken in float32.

    Operands are made float32, which is exact, and results are rounded to bf16 once: what hardware
    with bf16 instructions computes, but for the order of additions. Holds for forward and backward
    of matrix products and fused attention; all other operations stay as they are.
    """

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Optional[Dict[str, Any]] = None
    ) -> Any:
        kwargs = dict(kwargs or {})
        packet = func.overloadpacket
        if packet not in _PRODUCTS or not _is_half(args[0]):
            return func(*args, **kwargs)
        place = kwargs.pop("out", None)
        name = func._schema.name.split("::")[1]
        if name.endswith("_"):
            place, packet = args[0], getattr(torch.ops.aten, name[:-1])
        result = packet(*tree_map(_widened, args), **tree_map(_widened, kwargs))
        if place is not None:
            return place.copy_(result)
        if isinstance(result, Tensor):
            return result.to(torch.bfloat16)
        if name == _ATTENTION:
            return result[0].to(torch.bfloat16), result[1]  # logsumexp is float32 anyway
        return tuple(tensor.to(torch.bfloat16) for tensor in result)


def at_full_speed(dtype: torch.dtype, device: torch.device) -> ContextManager:
    """`InFloat32` for work in bf16 on a CPU where that is slow, else nothing."""
    slow = dtype == torch.bfloat16 and device.type == "cpu" and are_slow()
    return InFloat32() if slow else nullcontext()


def _is_half(value: Any) -> bool:
    return (
        isinstance(value, Tensor) and value.dtype == torch.bfloat16 and value.device.type == "cpu"
    )


def _widened(value: Any) -> Any:
    return value.float() if _is_half(value) else value


def multiply_bf16_in_float32_where_it_is_slow() -> None:
    """`--bf16` on a CPU without bf16 instructions: a step took 11 times as long (torch 2.13)."""

    def make(original: Callable) -> Callable:
        def step(self: Trainer, *args: Any, **kwargs: Any) -> Any:
            dtype = torch.bfloat16 if self.cfg.common.bf16 else torch.float32
            with at_full_speed(dtype, self.device):
                return original(self, *args, **kwargs)

        return step

    for name in ("train_step", "valid_step"):
        wrap(Trainer, name, "multiply_bf16_in_float32", make)
