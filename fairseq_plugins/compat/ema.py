"""Repair of the moving average of parameters, `--store-ema`."""

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from fairseq import checkpoint_utils
from fairseq.models.ema.ema import EMA
from fairseq.trainer import Trainer

from fairseq_plugins.compat.patch import around

logger = logging.getLogger(__name__)


def average_shared_weights_once() -> None:
    """Update each parameter once, and copy buffers.

    fairseq updates once per name, so embeddings with two names, shared with the output, decay by
    the square of --ema-decay. A buffer of integers ends the training.
    """

    @around(EMA, "_step_internal")
    def step(original: Callable, self: EMA, new_model: Any, updates: Any = None) -> None:
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


def begin_average_with_loaded_parameters() -> None:
    """Begin the average with the parameters of a checkpoint without average, as fairseq documents.

    fairseq ends in a KeyError: the parameters have been removed from the state.
    """

    @around(Trainer, "load_checkpoint")
    def load_checkpoint(
        original: Callable, self: Trainer, filename: str, *args: Any, **kwargs: Any
    ) -> Any:
        if not self.cfg.ema.store_ema:
            return original(self, filename, *args, **kwargs)
        load = checkpoint_utils.load_checkpoint_to_cpu

        def load_with_average(*where: Any, **how: Any) -> dict[str, Any]:
            state = load(*where, **how)
            if state.get("extra_state") is not None and "ema" not in state["extra_state"]:
                logger.warning(f"{filename} has no average: starting it from the parameters")
                state["extra_state"]["ema"] = state["model"]
            return state

        with mock.patch.object(checkpoint_utils, "load_checkpoint_to_cpu", load_with_average):
            return original(self, filename, *args, **kwargs)
