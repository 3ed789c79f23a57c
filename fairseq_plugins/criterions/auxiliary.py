"""Losses that parts of a model add to any criterion: balance of Switch networks, coverage."""

from typing import Any, Callable, Dict, List, Tuple

from fairseq import criterions
from fairseq.logging import metrics
from torch import Tensor, nn

from fairseq_plugins.compat.patch import wrap
from fairseq_plugins.modules.copy_attention import CopyAttention
from fairseq_plugins.modules.feed_forward.switch import SwitchFeedForward

# the name is that of the loss in logs, of its weight and, after `take_`, of what gives it
PARTS = {"balance": SwitchFeedForward, "coverage": CopyAttention}


def install() -> None:
    """Add the losses to the criterions that tasks build from now on. A second call does nothing.

    fairseq's criterions ask a model for its output alone. A hook sees the model and the loss of
    each, so that every criterion, sample size, loss scale and kind of parallel training is right.
    """

    def make(original: Callable) -> Callable:
        def build_criterion(*args: Any, **kwargs: Any) -> nn.Module:
            criterion = original(*args, **kwargs)
            criterion.register_forward_hook(add_auxiliary_losses)
            return criterion

        return build_criterion

    wrap(criterions, "build_criterion", "auxiliary losses", make)


def add_auxiliary_losses(
    criterion: nn.Module, inputs: Tuple[Any, ...], output: Tuple[Tensor, Any, Any]
) -> Tuple[Tensor, Any, Any]:
    """A criterion's output with the losses of all `PARTS` of its model, in training.

    fairseq divides gradients by the sample size, so each is multiplied by it. The logged "loss"
    stays the criterion's own; "balance" is the mean of ``N sum_i f_i P_i`` over layers, 1 where
    experts have equal shares, and "coverage" the mean of ``sum_i min(a_i, c_i)`` over target
    tokens.
    """
    loss, sample_size, logging_output = output
    model = inputs[0]
    if not model.training:
        return output
    found: Dict[str, List[float]] = {}
    for module in model.modules():
        for name, part in PARTS.items():
            if not isinstance(module, part):
                continue
            value = getattr(module, f"take_{name}")()
            if value is not None:  # LayerDrop may have left the layer out
                loss = loss + sample_size * getattr(module, name) * value
                found.setdefault(name, []).append(float(value.detach()))
    for name, values in found.items():
        metrics.log_scalar(name, sum(values) / len(values), 1, priority=400, round=3)
    return loss, sample_size, logging_output
