"""The loss that balances Switch networks, beside any criterion."""

from typing import Any, Callable, Tuple

from fairseq import criterions
from fairseq.logging import metrics
from torch import Tensor, nn

from fairseq_plugins.compat.patch import wrap
from fairseq_plugins.modules.feed_forward.switch import SwitchFeedForward


def install() -> None:
    """Add the loss to the criterions that any task builds from now on. A second call does nothing.

    fairseq's criterions ask a model for its output alone. A hook sees the model and the loss of
    each, so that every criterion, sample size, loss scale and kind of parallel training is right.
    """

    def make(original: Callable) -> Callable:
        def build_criterion(*args: Any, **kwargs: Any) -> nn.Module:
            criterion = original(*args, **kwargs)
            criterion.register_forward_hook(add_balance_loss)
            return criterion

        return build_criterion

    wrap(criterions, "build_criterion", "balance loss", make)


def add_balance_loss(
    criterion: nn.Module, inputs: Tuple[Any, ...], output: Tuple[Tensor, Any, Any]
) -> Tuple[Tensor, Any, Any]:
    """A criterion's output with the loss of all Switch networks of its model, in training.

    fairseq divides gradients by the sample size, so the loss is multiplied by it. The logged "loss"
    stays the criterion's own; "balance" is the mean of ``N sum_i f_i P_i`` over layers, 1 where
    experts have equal shares.
    """
    loss, sample_size, logging_output = output
    model = inputs[0]
    if not model.training:
        return output
    balances = []
    for module in model.modules():
        if isinstance(module, SwitchFeedForward):
            balance = module.take_balance()
            if balance is not None:  # LayerDrop may have left the layer out
                balances.append(balance.detach())
                loss = loss + sample_size * module.balance * balance
    if balances:
        value = sum(float(balance) for balance in balances) / len(balances)
        metrics.log_scalar("balance", value, 1, priority=400, round=3)
    return loss, sample_size, logging_output
