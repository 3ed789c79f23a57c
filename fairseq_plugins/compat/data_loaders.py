"""How the processes of fairseq's data loaders are started."""

import multiprocessing
import sys
from typing import Any

import torch
from fairseq.data import iterators

from fairseq_plugins.compat.patch import Overlay, overlay


def fork_data_loaders() -> None:
    """Fork the workers of data loaders, as Python before 3.14 does on Linux.

    Since 3.14 each worker starts anew. It then imports fairseq in every epoch, which takes seconds,
    and runs without these repairs.
    """
    utilities = Overlay(torch.utils)
    overlay(iterators, "torch", utils=utilities)
    vars(utilities)["data"] = Overlay(torch.utils.data)
    vars(utilities.data).update(DataLoader=_data_loader)


def _data_loader(*args: Any, **kwargs: Any) -> Any:
    unset = multiprocessing.get_start_method(allow_none=True) is None
    if kwargs.get("num_workers", 0) > 0 and unset and sys.platform == "linux":
        kwargs.setdefault("multiprocessing_context", "fork")
    return torch.utils.data.DataLoader(*args, **kwargs)
