"""Options with which a training that resumes would begin anew, or which it ignores."""

import logging
from typing import Any, Callable, Dict

from fairseq.optim import FairseqOptimizer
from fairseq.trainer import Trainer

from fairseq_plugins.compat.patch import wrap
from fairseq_plugins.errors import ConfigurationError

logger = logging.getLogger(__name__)


def refuse_to_begin_anew() -> None:
    """Refuse a checkpoint without the optimizer's state where a training would resume.

    With `--no-save-optimizer-state`, 0.12.2 and ff load the parameters and begin again at update 0,
    with another warm-up and as many updates as before.
    """

    def make(original: Callable) -> Callable:
        def load_checkpoint(
            self: Trainer, filename: str, reset_optimizer: bool = False, *args: Any, **kwargs: Any
        ) -> Any:
            state = original(self, filename, reset_optimizer, *args, **kwargs)
            done = self._optim_history[-1].get("num_updates", 0) if self._optim_history else 0
            if state is not None and not reset_optimizer and self.get_num_updates() == 0 < done:
                raise ConfigurationError(
                    f"{filename} has {done:,} updates and no state of the optimizer "
                    "(--no-save-optimizer-state), so it cannot resume: begin a new training from "
                    "its parameters in another --save-dir, with --finetune-from-model"
                )
            return state

        return load_checkpoint

    wrap(Trainer, "load_checkpoint", "refuse_to_begin_anew", make)


def tell_options_of_the_checkpoint() -> None:
    """Tell that the optimizer's options of a checkpoint count where others are given.

    In all versions they do, though the log and the next checkpoint show those that were given.
    """

    def make(original: Callable) -> Callable:
        def load_state_dict(
            self: FairseqOptimizer, state_dict: Dict[str, Any], optimizer_overrides: Any = None
        ) -> None:
            given = [_options(group) for group in self.param_groups]
            original(self, state_dict, optimizer_overrides)
            for ours, group in zip(given, self.param_groups):
                loaded = _options(group)
                for name in sorted(ours.keys() & loaded.keys()):
                    if ours[name] != loaded[name] and name not in (optimizer_overrides or {}):
                        change = f"--optimizer-overrides \"{{'{name}': {ours[name]}}}\""
                        logger.warning(
                            f"the checkpoint's {name} {loaded[name]} is used, and {ours[name]} is "
                            f"ignored: to change it, add {change}"
                        )
                        return

        return load_state_dict

    wrap(FairseqOptimizer, "load_state_dict", "tell_options_of_the_checkpoint", make)


def _options(group: Dict[str, Any]) -> Dict[str, Any]:
    """The options of a group of parameters that do not change while it trains."""
    found: Dict[str, Any] = {}
    for name in ("betas", "eps", "weight_decay", "momentum"):
        if name in group:
            value = group[name]
            found[name] = list(value) if isinstance(value, (list, tuple)) else value
    return found
