"""Repair of the moving average of parameters, `--store-ema`."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

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
    once = {name for name, _ in new_model.named_parameters()}
    named = {name for name, _ in new_model.named_parameters(remove_duplicate=False)}
    state = new_model.state_dict()
    self.skip_keys = {*self.skip_keys, *(state.keys() - named)}  # which are copied
    state = {name: state[name] for name in state if name in once or name not in named}
    original(self, SimpleNamespace(state_dict=lambda: state), updates)
