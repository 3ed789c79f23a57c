"""Losses that parts of a model add to any criterion: Switch's balance and copying's coverage."""

from typing import Any, Callable, Dict, List, Tuple

from fairseq import criterions
from fairseq.logging import metrics
from torch import Tensor, nn

from fairseq_plugins.compat.patch import wrap
from fairseq_plugins.modules.copy_attention import CopyAttention
from fairseq_plugins.modules.feed_forward.switch import SwitchFeedForward

# Loss name, as in the logs, to module type. The module has the weight as an attribute of that name,
# and its method `take_<name>` returns the loss.
PARTS = {"balance": SwitchFeedForward, "coverage": CopyAttention}


def install() -> None:
    """Add the losses to all criterions that are built from now on. A second call does nothing.

    fairseq's criterions read only the output of a model. A forward hook on the criterion sees both
    the model and the loss, before loss scaling and backward. It is therefore correct for every
    criterion, sample size, loss scale and kind of parallel training.
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
    """Forward hook: add the losses of all `PARTS` of the model to the criterion's loss in training.

    ``loss + size * sum weight * value``, where size is the sample size, by which fairseq divides
    gradients. With --sentence-avg, size is the number of target tokens, so the weight is still
    relative to the loss per token. The logged "loss" remains the criterion's own. Logged without
    weights are "balance", the mean over layers of ``N sum_i f_i P_i``, which is 1 for equal shares
    of the experts, and "coverage", the mean over target tokens of ``sum_i min(a_i, c_i)``, of the
    first process.

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
    model = inputs[0]
    if not model.training:
        return output
    found: Dict[str, List[float]] = {}
    for module in model.modules():
        for name, part in PARTS.items():
            if not isinstance(module, part):
                continue
            value = getattr(module, f"take_{name}")()
            if value is not None:  # None if LayerDrop skipped the layer
                loss = loss + size * getattr(module, name) * value
                found.setdefault(name, []).append(float(value.detach()))
    for name, values in found.items():
        metrics.log_scalar(name, sum(values) / len(values), float(size), priority=400, round=3)
    return loss, sample_size, logging_output
