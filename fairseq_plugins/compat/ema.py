"""Repair of the moving average of parameters, `--store-ema`."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.models.ema.ema import EMA

from fairseq_plugins.compat.patch import repair


@repair(EMA, "_step_internal")
def average_shared_weights_once(
    original: Callable, self: EMA, new_model: Any, updates: Any = None
) -> None:
    """Update each parameter once, and copy buffers.

    fairseq updates once per name, so embeddings with two names, shared with the output, decay by
    the square of --ema-decay. A buffer of integers ends the training.
    """
    state: dict[str, Any] = {}
    seen: set[int] = set()
    averaged = {name for name, _ in new_model.named_parameters(remove_duplicate=False)}
    for name, value in new_model.state_dict().items():
        if torch.is_tensor(value):
            if value.data_ptr() in seen:
                continue
            seen.add(value.data_ptr())
            if name not in averaged:
                self.skip_keys = {*self.skip_keys, name}
        state[name] = value
    original(self, SimpleNamespace(state_dict=lambda: state), updates)
