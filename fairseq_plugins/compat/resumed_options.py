"""Options that a resumed training would ignore, or with which it would restart."""

import logging
import re
from collections.abc import Callable
from typing import Any

from fairseq.optim import FairseqOptimizer
from fairseq.trainer import Trainer

from fairseq_plugins.compat.patch import around
from fairseq_plugins.errors import ConfigurationError

logger = logging.getLogger(__name__)

LIKE_PARAMETERS = {"exp_avg", "exp_avg_sq", "momentum_buffer"}  # tensors of a parameter's size


def refuse_to_begin_anew() -> None:
    """Refuse to resume from a checkpoint without the optimizer's state.

    With `--no-save-optimizer-state`, fairseq loads the parameters and restarts at update 0,
    with another warm-up and as many updates as before.
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
        state = original(self, filename, reset_optimizer, *args, **kwargs)
        done = self._optim_history[-1].get("num_updates", 0) if self._optim_history else 0
        if state is not None and not reset_optimizer and self.get_num_updates() == 0 < done:
            raise ConfigurationError(
                f"{filename} has {done:,} updates but no optimizer state "
                "(--no-save-optimizer-state), so it cannot resume: start a new training from "
                "its parameters in another --save-dir, with --finetune-from-model"
            )
        return state


class OtherState(ConfigurationError):
    """The optimizer's state does not fit the parameters."""


def refuse_another_optimizer() -> None:
    """Refuse the state of another optimizer or criterion, or an altered one, in one line.

    fairseq ends in a traceback, or trains on with a state that fails or is missing later.
    """

    @around(Trainer, "load_checkpoint")
    def load_checkpoint(
        original: Callable, self: Trainer, filename: str, *args: Any, **kwargs: Any
    ) -> Any:
        try:
            return original(self, filename, *args, **kwargs)
        except OtherState as error:
            raise ConfigurationError(
                f"{filename} cannot resume: {error}; use another checkpoint of the training, "
                "or train on from its parameters with --reset-optimizer"
            ) from None
        except AssertionError as error:
            other = re.match(r"(Criterion|Optimizer) does not match.* (\S+) vs (\S+)", str(error))
            if not other:
                raise
            name = other[1].lower()
            raise ConfigurationError(
                f"{filename} was trained with another --{name} ({other[2]}, not {other[3]}): "
                "give the one of its training, or train on from its parameters with "
                "--reset-optimizer"
            ) from None

    @around(FairseqOptimizer, "load_state_dict")
    def load_state_dict(
        original: Callable,
        self: FairseqOptimizer,
        state_dict: dict[str, Any],
        *args: Any,
        **kwargs: Any,
    ) -> None:
        _check_state(self.param_groups, state_dict)
        original(self, state_dict, *args, **kwargs)


def _check_state(groups: list[dict[str, Any]], state: dict[str, Any]) -> None:
    """Compare a stored state in torch's format with its parameters.

    Raises:
        OtherState: numbers or sizes of parameters differ, or a part of the state is missing.
    """
    saved, states = state.get("param_groups"), state.get("state")
    if not isinstance(saved, list) or not isinstance(states, dict):
        raise OtherState("the optimizer's state is damaged")
    counts = [[len(group.get("params", ())) for group in each] for each in (saved, groups)]
    if counts[0] != counts[1]:
        raise OtherState(
            f"the optimizer's state has {sum(counts[0]):,} parameters, but the model has "
            f"{sum(counts[1]):,}"
        )
    numbers = [number for group in saved for number in group["params"]]
    parameters = [parameter for group in groups for parameter in group["params"]]
    parts = set().union(*(_parts(states[number]) for number in numbers if number in states))
    lacking = 0
    for number, parameter in zip(numbers, parameters):
        if number not in states:
            lacking += bool(parts)
            continue
        missing = sorted(parts - _parts(states[number]))
        if missing:
            raise OtherState(f"the optimizer's state of parameter {number} has no {missing[0]}")
        for name in LIKE_PARAMETERS & states[number].keys():
            value = states[number][name]
            if value is None:  # SGD's without momentum, as earlier releases of torch stored it
                continue
            size = tuple(value.shape)
            if size != tuple(parameter.shape):
                raise OtherState(
                    f"the optimizer's {name} of parameter {number} has size {size}, but the "
                    f"parameter has {tuple(parameter.shape)}"
                )
    if lacking:
        logger.warning(
            f"{lacking:,} of {len(numbers):,} parameters have no optimizer state in the "
            "checkpoint: they train as if at their first update"
        )


def _parts(state: dict[str, Any]) -> set[str]:
    """The names in a parameter's state; Adafactor has two halves for some of them."""
    return {re.sub("_(row|col)$", "", name) for name in state}


def tell_options_of_the_checkpoint() -> None:
    """Warn that the optimizer options of a checkpoint override the given ones.

    This happens in all versions, but the log and the next checkpoint show the given ones.
    """

    @around(FairseqOptimizer, "load_state_dict")
    def load_state_dict(
        original: Callable,
        self: FairseqOptimizer,
        state_dict: dict[str, Any],
        optimizer_overrides: Any = None,
    ) -> None:
        given = [_options(group) for group in self.param_groups]
        original(self, state_dict, optimizer_overrides)
        for ours, group in zip(given, self.param_groups):
            loaded = _options(group)
            for name in sorted(ours.keys() & loaded.keys()):
                if ours[name] != loaded[name] and name not in (optimizer_overrides or {}):
                    change = f"--optimizer-overrides \"{{'{name}': {ours[name]}}}\""
                    logger.warning(
                        f"the checkpoint's {name} {loaded[name]} is used, but {ours[name]} is "
                        f"ignored: to change it, add {change}"
                    )
                    return


def _options(group: dict[str, Any]) -> dict[str, Any]:
    """The options of a group of parameters that do not change while it trains."""
    found: dict[str, Any] = {}
    for name in ("betas", "eps", "weight_decay", "momentum"):
        if name in group:
            value = group[name]
            found[name] = list(value) if isinstance(value, (list, tuple)) else value
    return found
