"""What stands for a CUDA graph on a CPU: the same operations, in the same order and memory.

A number that Python computed while recording stays what it was, and an operation that waits for the
device, or whose result has a size that depends on data, is refused as it fails in a CUDA graph.
"""

import contextlib
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

ROOT = Path(__file__).resolve().parent.parent
WAITS = {
    "_local_scalar_dense",
    "_unique2",
    "equal",
    "is_nonzero",
    "lift_fresh",  # torch.tensor(...), which copies from the host
    "masked_select",
    "nonzero",
    "unique_consecutive",
    "unique_dim",
}


class HostWaits(AssertionError):
    """An operation cannot be recorded; the message has the line that calls it."""


class _Recorder(TorchDispatchMode):
    def __init__(self, entries: list[tuple[Callable, tuple, dict, Any]]) -> None:
        super().__init__()
        self.entries = entries

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func._schema.name.split("::")[1]
        masks = args[1] if name in ("index", "index_put", "index_put_") else []
        by_mask = any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in masks)
        sizes = name == "repeat_interleave" and len(args) == 1
        if name in WAITS or by_mask or sizes:
            raise HostWaits(f"{name} cannot be recorded: {_where()}")
        out = func(*args, **(kwargs or {}))
        # aliases: the shape of a tensor may be changed in place later
        entry = tree_map_only(Tensor, torch.Tensor.detach, (args, kwargs or {}, out))
        self.entries.append((func, *entry))
        return out


class Tape:
    """Records operations, and repeats them on the same memory; random numbers are drawn anew."""

    def __init__(self) -> None:
        self.entries: list[tuple[Callable, tuple, dict, Any]] = []

    def warming_up(self) -> Any:
        return contextlib.nullcontext()

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        with _Recorder(self.entries):
            yield

    @classmethod
    def recover(cls) -> None:
        """Nothing: a recording that failed leaves no trace."""

    def replay(self) -> None:
        with torch.no_grad():
            for func, args, kwargs, out in self.entries:
                for old, new in zip(tree_leaves(out), tree_leaves(func(*args, **kwargs))):
                    # views and results in place are where they were
                    if isinstance(old, Tensor) and old.data_ptr() != new.data_ptr():
                        old.copy_(new)


def _where() -> str:
    """The innermost line of this package or of fairseq."""
    for frame in reversed(traceback.extract_stack()):
        path = frame.filename
        ours = path.startswith(str(ROOT)) and not path.startswith(str(ROOT / "tests"))
        if ours or "/fairseq/" in path:
            return f"{path}:{frame.lineno}: {frame.line}"
    return "a line of torch"
