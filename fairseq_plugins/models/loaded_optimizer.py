"""Optimizer states of fairseq's `transformer`, which do not fit this plugin's encoder layers."""

from collections.abc import Callable
from typing import Any

from fairseq.trainer import Trainer

from fairseq_plugins.compat.patch import around
from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.modules.encoder_layer import EncoderLayer


def install() -> None:
    """Refuse to resume with the optimizer of fairseq's `transformer` in this package's model.

    Optimizer states follow the order of the parameters, and the two orders differ. In float32, the
    first update would fail on different sizes. In fp16 the states are one vector, whose parts
    would silently go to the wrong parameters.
    """

    @around(Trainer, "load_checkpoint")
    def load_checkpoint(
        original: Callable,
        self: Trainer,
        filename: str,
        reset_optimizer: bool = False,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        layers = [m for m in self.get_model().modules() if isinstance(m, EncoderLayer)]
        for layer in layers:
            layer.reordered = False
        error = extra_state = None
        try:
            extra_state = original(self, filename, reset_optimizer, *args, **kwargs)
        except ValueError as found:  # as the sizes in the optimizer's state differ
            error = found
        loads = not reset_optimizer and self._optimizer is not None
        if loads and any(layer.reordered for layer in layers):
            raise ConfigurationError(
                f"{filename} is a model with fairseq's encoder layers, whose optimizer state does "
                "not fit this model: give --reset-optimizer to train on from its parameters"
            )
        if error is not None:
            raise error
        return extra_state
