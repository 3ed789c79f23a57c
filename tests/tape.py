"""What stands for a CUDA graph on a CPU: the same operations, in the same order and memory.

A number that Python computed while capturing stays what it was. On a GPU an operation that waits
for the device, or whose result has a size that depends on data, cannot be captured: here it is
refused with its line, in forward and in backward. Not seen: code that runs only on a GPU, and
tensors copied between host and GPU, as here all are on the CPU.
"""

import contextlib
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

ROOT = Path(__file__).resolve().parent.parent
OURS = (f"{ROOT}/fairseq_plugins/", f"{ROOT}/tests/")
TAGS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
WAITS = {  # without these tags
    "lift_fresh",  # torch.tensor(...), which copies from the host
    "multinomial",
}
WITHOUT_KERNEL = {"_unsafe_view", "detach", "empty", "empty_like", "lift_fresh", "new_empty"}
WAIT_IN_BACKWARD = {"cumprod", "masked_scatter", "masked_scatter_", "prod"}
METHODS = ("cpu", "numpy", "to", "tolist")  # of tensors; on a CPU they need not call an operation


class HostWaits(AssertionError):
    """An operation cannot be captured; the message has the line that calls it."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} cannot be captured: {_where()}")


class _Capturer(TorchDispatchMode):
    def __init__(self, entries: list[tuple[Callable, tuple, dict, Any]]) -> None:
        super().__init__()
        self.entries = entries

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.split("::")[1]
        waits = name in WAITS or not TAGS.isdisjoint(func.tags)
        if name in ("index", "index_put", "index_put_"):
            waits = any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])
        if name == "repeat_interleave" and (kwargs or {}).get("output_size") is not None:
            waits = False
        if name in WAIT_IN_BACKWARD:  # torch computes another backward while a mode like this is on
            tracked = any(x.requires_grad for x in args if isinstance(x, Tensor))
            waits = tracked and torch.is_grad_enabled()
        if waits:
            raise HostWaits(name)
        out = func(*args, **(kwargs or {}))
        # aliases: the shape of a tensor may be changed in place later
        entry = tree_map_only(Tensor, torch.Tensor.detach, (args, kwargs or {}, out))
        self.entries.append((func, *entry))
        return out


def kernels_of(func: Any) -> list[str]:
    """The name of an operation, if it writes memory of the device."""
    name = func._schema.name.split("::")[1]
    return [] if func.is_view or name in WITHOUT_KERNEL else [name]


class Launches(TorchDispatchMode):
    """Names of the operations that a GPU would launch one by one, with "replay" for a graph."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names += kernels_of(func)
        return func(*args, **(kwargs or {}))


class Tape:
    """Captures operations, and repeats them on the same memory; random numbers are drawn anew."""

    def __init__(self) -> None:
        self.entries: list[tuple[Callable, tuple, dict, Any]] = []

    def warming_up(self) -> Any:
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def capturing(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for name in METHODS:
                stack.enter_context(mock.patch.object(Tensor, name, _refuse(name)))
            stack.enter_context(_Capturer(self.entries))
            yield

    @classmethod
    def recover(cls) -> None:
        """Nothing: a capture that failed leaves no trace."""

    def load(self, here: Tensor, there: Tensor) -> None:
        here.copy_(there)

    @property
    def kernels(self) -> list[str]:
        """Names of the captured operations that a GPU computes, as a rule by a kernel each."""
        return [name for func, *_ in self.entries for name in kernels_of(func)]

    def replay(self) -> None:
        for mode in torch.utils._python_dispatch._get_current_dispatch_mode_stack():
            if isinstance(mode, Launches):
                mode.names.append("replay")
        with torch.no_grad(), torch.utils._python_dispatch._disable_current_modes():
            for func, args, kwargs, out in self.entries:
                for old, new in zip(tree_leaves(out), tree_leaves(func(*args, **kwargs))):
                    # views and results in place are where they were
                    if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)


def _refuse(name: str) -> Callable:
    original, capturing = getattr(Tensor, name), threading.get_ident()

    def method(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        # a torch.device may be that of another tensor
        waits = name != "to" or any(isinstance(x, str) for x in (*args, *kwargs.values()))
        # other threads, such as that which collates batches, may do so at the same time
        if waits and threading.get_ident() == capturing:
            raise HostWaits(f".{name}()")
        return original(self, *args, **kwargs)

    return method


def _where() -> str:
    """The innermost line of this package, of its tests or of fairseq."""
    for frame in reversed(traceback.extract_stack()):
        path = frame.filename
        if (path.startswith(OURS) and path != __file__) or "/fairseq/" in path:
            return f"{path}:{frame.lineno}: {frame.line}"
    return "a line of torch"
