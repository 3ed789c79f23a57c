"""Log captured updates every --log-interval updates, so that the host need not wait for each."""

import math
import weakref
from collections.abc import Callable
from typing import Any

from fairseq.logging import metrics
from fairseq.trainer import Trainer
from torch import Tensor

from fairseq_plugins.compat.patch import around
from fairseq_plugins.graphs.flat_optimizer import FlatOptimizer

Statistics = tuple[list[dict[str, Any]], float, Tensor]  # logging outputs, sample size, norm


class DeferredLog:
    """Updates of a trainer, until they are logged as fairseq logs them.

    On the device, an update whose norm is not finite changes nothing, nor do the updates after it.
    When the host reads such a norm, it repeats all of these updates and reads each norm at once, so
    fairseq ends the training as it does without captured graphs.

    Args:
        flat: the optimizer of the trainer, of one process and without a scale of the loss.
    """

    def __init__(self, flat: FlatOptimizer):
        self.flat = flat
        self.samples: list[Any] = []  # of the current update
        self.waiting: list[tuple[list[Any], Statistics]] = []  # samples and statistics of updates

    def flush(self, trainer: Trainer, log: Callable) -> dict[str, Any]:
        """Log all updates.

        Args:
            trainer: the trainer.
            log: fairseq's method, which logs one update.

        Returns:
            what was logged last.

        Raises:
            FloatingPointError: a norm is not finite.
        """
        self.flat.read()
        waiting, self.waiting = self.waiting, []
        logged: dict[str, Any] = {}
        for index, (_, statistics) in enumerate(waiting):
            if not math.isfinite(statistics[-1]):
                without_effect = waiting[index:]
                self.flat.undo(len(without_effect))
                trainer.set_num_updates(trainer.get_num_updates() - len(without_effect))
                for samples, _ in without_effect:
                    self.flat.deferred = False
                    logged = trainer.train_step(samples)
                break
            with metrics.aggregate("train_inner"):
                logged = log(trainer, *statistics)
        self.flat.deferred = True
        return logged


def install() -> None:
    """Let trainers whose optimizer has a `deferred_log` use it. A second call does nothing."""
    waiting: weakref.WeakKeyDictionary[Trainer, Callable] = weakref.WeakKeyDictionary()

    def flush(trainer: Trainer) -> Any:
        log = waiting.pop(trainer, None)
        return trainer.optimizer.deferred_log.flush(trainer, log) if log is not None else None

    @around(Trainer, "train_step")
    def train_step(
        original: Callable, self: Trainer, samples: list[Any], *args: Any, **kwargs: Any
    ) -> Any:
        deferred: DeferredLog | None = getattr(self._optimizer, "deferred_log", None)
        if deferred is not None:
            deferred.samples = samples
        return original(self, samples, *args, **kwargs)

    @around(Trainer, "_reduce_and_log_stats")
    def log_update(
        original: Callable, self: Trainer, logs: Any, size: float, norm: Tensor | None = None
    ) -> Any:
        deferred: DeferredLog | None = getattr(self._optimizer, "deferred_log", None)
        if deferred is None or norm is None:  # of a validation
            return original(self, logs, size, norm)
        deferred.waiting.append((deferred.samples, (logs, size, norm)))
        waiting[self] = original
        if deferred.flat.deferred and self.get_num_updates() % self.cfg.common.log_interval != 0:
            return {}
        return flush(self)  # also the first update, when meters of speed start

    @around(Trainer, "begin_valid_epoch")
    def begin_valid_epoch(original: Callable, self: Trainer, *args: Any) -> None:
        flush(self)  # before fairseq turns to the meters of the validation
        original(self, *args)

    @around(metrics, "get_smoothed_values", "state_dict")
    def read_meters(original: Callable, *args: Any) -> Any:
        for trainer in list(waiting):
            flush(trainer)
        return original(*args)
