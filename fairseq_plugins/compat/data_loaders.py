"""How fairseq's data loaders start their processes."""

import multiprocessing
import sys
from typing import Any

import torch
from fairseq.data import iterators

from fairseq_plugins.compat.patch import Overlay, overlay


def start_data_loaders() -> None:
    """Fork the workers of data loaders, and pin memory only if there is a GPU.

    Since Python 3.14, each worker starts a new interpreter. It would import fairseq in every epoch,
    which takes seconds, and run without these repairs. Another method than Python's default is the
    user's choice, and stays. Without a GPU, torch warns about pinning.
    """
    utilities = Overlay(torch.utils)
    overlay(iterators, "torch", utils=utilities)
    vars(utilities)["data"] = Overlay(torch.utils.data)
    vars(utilities.data).update(DataLoader=_data_loader)


def _data_loader(*args: Any, **kwargs: Any) -> Any:
    method = multiprocessing.get_start_method(allow_none=True)  # set by a lock of fairseq's
    unset = method in (None, multiprocessing.get_all_start_methods()[0])
    if kwargs.get("num_workers", 0) > 0 and unset and sys.platform == "linux":
        kwargs.setdefault("multiprocessing_context", "fork")
    if not torch.accelerator.is_available():
        kwargs["pin_memory"] = False
    return torch.utils.data.DataLoader(*args, **kwargs)
