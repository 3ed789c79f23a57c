"""The loss that balances Switch networks, added to any criterion."""

from collections.abc import Callable
from typing import Any

from fairseq import criterions
from fairseq.logging import metrics
from torch import Tensor, nn

from fairseq_plugins.compat.patch import around
from fairseq_plugins.layers.feed_forwards.switch import SwitchFeedForward


def install() -> None:
    """Add the loss to all criterions that are built from now on. A second call does nothing.

    fairseq's criterions read only the output of a model. A forward hook on the criterion sees both
    the model and the loss, before loss scaling and backward. It is therefore correct for every
    criterion, sample size, loss scale and kind of parallel training.
    """

    @around(criterions, "build_criterion")
    def build_criterion(original: Callable, *args: Any, **kwargs: Any) -> nn.Module:
        criterion = original(*args, **kwargs)
        criterion.register_forward_hook(add_auxiliary_losses)
        return criterion


def add_auxiliary_losses(
    criterion: nn.Module, inputs: tuple[Any, ...], output: tuple[Tensor, Any, Any]
) -> tuple[Tensor, Any, Any]:
    """Forward hook: add the balance of all Switch networks to the criterion's loss in training.

    ``loss + size * sum weight * value``, where size is the sample size, by which fairseq divides
    gradients. With --sentence-avg, size is the number of target tokens, so the weight is still
    relative to the loss per token. The logged "loss" remains the criterion's own. "balance" is
    logged without weights, of the first process: the mean over layers of ``N sum_i f_i P_i``, which
    is 1 for equal shares of the experts.

    Args:
        criterion: the criterion; its `sentence_avg` determines the sample size.
        inputs: arguments of the criterion's forward; the first is the model.
        output: the criterion's loss, sample size and logging output.

    Returns:
        the output with the new loss.
    """
    loss, sample_size, logging_output = output
    by_sentence = getattr(criterion, "sentence_avg", False)
    size = logging_output["ntokens"] if by_sentence else sample_size
    values: list[float] = []
    for module in inputs[0].modules():
        value = module.take_balance() if isinstance(module, SwitchFeedForward) else None
        if value is not None:  # None in evaluation, and if LayerDrop skipped the layer
            loss = loss + size * module.balance * value
            values.append(float(value.detach()))
    if values:
        mean = sum(values) / len(values)
        metrics.log_scalar("balance", mean, float(size), priority=400, round=3)
    return loss, sample_size, logging_output
