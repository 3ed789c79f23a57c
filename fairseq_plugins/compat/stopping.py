"""A training that is asked to end saves what it has learnt."""

import logging
import os
import signal
import threading
import time
from types import SimpleNamespace
from typing import Any, Callable

from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

from fairseq_plugins.compat.patch import wrap
from fairseq_plugins.compat.resuming import DUE, REPEATING, what_follows

logger = logging.getLogger(__name__)

STATUS = 128 + signal.SIGTERM
# seconds within which two signals are one request: a scheduler sends them to a command and to the
# training that it started, and the command asks its training, too
TOGETHER = 5.0


def save_state(trainer: Trainer, iterator: Any) -> None:
    """Write checkpoint_last.pt, with the validation that is due."""
    logger.info("asked to end: saving checkpoint_last.pt")
    setattr(trainer, DUE, what_follows(trainer, iterator))
    if not trainer.model.training:
        logger.info(
            f"the validation after update {trainer.get_num_updates():,} was broken off; it is "
            "made when the training resumes"
        )
    checkpoint_utils.save_checkpoint(trainer.cfg.checkpoint, trainer, iterator, None)


def save_when_terminated() -> None:
    """Every version loses all updates since its last checkpoint when it gets SIGTERM.

    A training in one process now ends after the update, or the batch of a validation, at hand: it
    writes checkpoint_last.pt and exits with 143. A validation that was broken off, or due after
    that update, is made when the training resumes (`resuming.remember_validations`). The same
    signal may end the workers that load data: the update does not wait for them.
    Processes that train together end at once, as before: the signal finds them at different
    updates, and saving needs all of them. So does a process whose parent is gone, and one that is
    asked again later than `TOGETHER`.
    """
    asked = SimpleNamespace(to_end=False, since=0.0, iterator=None)

    def listen(parent: int) -> None:
        def handle(number: int, frame: Any) -> None:
            now = time.monotonic()
            again = asked.to_end and now - asked.since > TOGETHER
            if again or os.getppid() != parent:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGTERM)
            if not asked.to_end:
                asked.to_end, asked.since = True, now
                signal.signal(signal.SIGCHLD, lambda *at: None)  # torch's handler raises

        signal.signal(signal.SIGTERM, handle)

    def make_iterator(original: Callable) -> Callable:
        def get_train_iterator(self: Trainer, *args: Any, **kwargs: Any) -> Any:
            asked.iterator = original(self, *args, **kwargs)
            alone = self.cfg.distributed_training.distributed_world_size == 1
            free = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
            if alone and free and threading.current_thread() is threading.main_thread():
                listen(os.getppid())
            return asked.iterator

        return get_train_iterator

    def make_step(original: Callable) -> Callable:
        def step(self: Trainer, *args: Any, **kwargs: Any) -> Any:
            result = original(self, *args, **kwargs)
            if asked.to_end:
                # a validation made up for is due in checkpoint_last.pt already
                if not getattr(self, REPEATING, False):
                    save_state(self, asked.iterator)
                asked.to_end = False
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                raise SystemExit(STATUS)
            return result

        return step

    wrap(Trainer, "get_train_iterator", "save_when_terminated", make_iterator)
    wrap(Trainer, "train_step", "save_when_terminated", make_step)
    wrap(Trainer, "valid_step", "save_when_terminated", make_step)
