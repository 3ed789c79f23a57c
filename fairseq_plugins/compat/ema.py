"""Repair of the moving average of parameters, `--store-ema`."""

from types import SimpleNamespace
from typing import Any, Callable, Dict, Set

import torch
from fairseq.models.ema.ema import EMA

from fairseq_plugins.compat.patch import wrap

# Performer's random features: the mean of several draws is no draw
NOT_AVERAGED = ".directions"


def average_shared_weights_once() -> None:
    """Update each weight once, and copy what has no average (0.12.2 and ff).

    fairseq updates once for each name, so that embeddings with two names, shared with the output,
    decay by the square of --ema-decay. A buffer of integers ends the training, and
    Performer's random features would shrink whenever they are drawn again.
    """

    def make(original: Callable) -> Callable:
        def step(self: EMA, new_model: Any, updates: Any = None) -> None:
            state: Dict[str, Any] = {}
            seen: Set[int] = set()
            for name, value in new_model.state_dict().items():
                if torch.is_tensor(value):
                    if value.numel() and value.data_ptr() in seen:
                        continue
                    seen.add(value.data_ptr())
                    if not value.is_floating_point() or name.endswith(NOT_AVERAGED):
                        self.skip_keys = {*self.skip_keys, name}
                state[name] = value
            original(self, SimpleNamespace(state_dict=lambda: state), updates)

        return step

    wrap(EMA, "_step_internal", "average_shared_weights_once", make)
