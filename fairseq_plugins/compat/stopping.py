"""Let a training that is asked to end save its state.

On SIGTERM, every version of fairseq loses all updates since its last checkpoint. A training now
ends after the current update or batch of a validation: it writes checkpoint_last.pt and exits with
143. A validation that was interrupted, or is due after that update, is made when the training
resumes (`resuming.resume_validations`). Workers that load data do not end at the same signal
(`data_loaders`).

Processes that train together agree on the update: each adds its request to the sums that fairseq
makes over all processes in every update. Therefore one signal is enough for all processes, on all
machines, and they end when the checkpoint is written. A process ends at once if the signal says
that its parent is gone, or if it is asked again later than `TOGETHER`.
"""

import contextlib
import copy
import ctypes
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from fairseq import checkpoint_utils
from fairseq.distributed import utils as distributed_utils
from fairseq.trainer import Trainer

from fairseq_plugins.compat.patch import Overlay, overlay, repair
from fairseq_plugins.compat.resuming import DUE, REPEATING, what_follows
from fairseq_plugins.errors import STATE_SAVED, TERMINATED, ConfigurationError, killed_by

logger = logging.getLogger(__name__)

# seconds within which two signals are one request: a scheduler signals both a command and the
# training that it started, and the command also signals its training
TOGETHER = 5.0


def save_state(trainer: Trainer, iterator: Any) -> None:
    """Write checkpoint_last.pt, with the validation that is due; with --no-save, nothing."""
    if trainer.cfg.checkpoint.no_save:
        logger.info("asked to end: nothing is saved, as --no-save asks")
        return
    logger.info("asked to end: saving checkpoint_last.pt")
    setattr(trainer, DUE, what_follows(trainer, iterator))
    if not trainer.model.training:
        logger.info(
            f"the validation after update {trainer.get_num_updates():,} was broken off; it is "
            "made when the training resumes"
        )
    options = copy.deepcopy(trainer.cfg.checkpoint)
    options.no_last_checkpoints = False  # it would lose all updates since the last checkpoint
    checkpoint_utils.save_checkpoint(options, trainer, iterator, None)


def _signal_at_death_of_parent() -> int:
    """The signal that Linux sends this process when its parent is gone; 0 for no signal."""
    found = ctypes.c_int(0)
    with contextlib.suppress(AttributeError):  # only Linux has prctl
        ctypes.CDLL(None).prctl(2, ctypes.byref(found))  # PR_GET_PDEATHSIG
    return found.value


class _Request:
    """The request that this process should end, if it was made, and how the process ends."""

    def __init__(self) -> None:
        self.made = False
        self.since = 0.0
        self.made_to_any = False  # whether any of the processes was asked
        self.iterator: Any = None

    def listen(self) -> None:
        """Take SIGTERM as a request."""
        parent, training = os.getppid(), os.getpid()
        tells_of_parent = _signal_at_death_of_parent() == signal.SIGTERM

        def handle(number: int, frame: Any) -> None:
            now = time.monotonic()
            again = self.made and now - self.since > TOGETHER
            forked = os.getpid() != training  # a helper without state to save
            if again or forked or (tells_of_parent and os.getppid() != parent):
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGTERM)
            if not self.made:
                self.made, self.since = True, now

        signal.signal(signal.SIGTERM, handle)

    def end(self, trainer: Trainer) -> NoReturn:
        """Save the state and exit, after the other processes have also come here."""
        # a validation made up for is due in checkpoint_last.pt already
        if not getattr(trainer, REPEATING, False):
            save_state(trainer, self.iterator)
        first = trainer.data_parallel_rank == 0 or os.environ.get("LOCAL_RANK") == "0"
        # no process may exit before the checkpoint is written
        if trainer.data_parallel_world_size > 1:
            dist.barrier(distributed_utils.get_global_group())
            dist.destroy_process_group()
        if first and not trainer.cfg.checkpoint.no_save:
            folder = trainer.cfg.checkpoint.save_dir
            logger.warning(f"{STATE_SAVED} in {folder}: rerun to resume")  # only rank 0 logs INFO
        self.made = self.made_to_any = False
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        raise SystemExit(TERMINATED)


_request = _Request()


@repair(Trainer, "get_train_iterator")
def _listen(original: Callable, self: Trainer, *args: Any, **kwargs: Any) -> Any:
    _request.iterator = original(self, *args, **kwargs)
    # processes that hold parts of one model do not add up their logs
    size = self.cfg.distributed_training.distributed_world_size
    whole = size == self.data_parallel_world_size
    free = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if whole and free and threading.current_thread() is threading.main_thread():
        _request.listen()
    return _request.iterator


@repair(Trainer, "_aggregate_logging_outputs")
def _add_requests(
    original: Callable, self: Trainer, logging_outputs: list[Any], *numbers: Any, **kwargs: Any
) -> Any:
    numbers = (*numbers, float(_request.made))
    outputs, (*sums, how_many) = original(self, logging_outputs, *numbers, **kwargs)
    _request.made_to_any = bool(how_many > 0)
    return outputs, sums


@repair(Trainer, "train_step", "valid_step")
def _end_if_requested(original: Callable, self: Trainer, *args: Any, **kwargs: Any) -> Any:
    result = original(self, *args, **kwargs)
    several = self.data_parallel_world_size > 1
    if _request.made_to_any if several else _request.made:
        _request.end(self)
    return result


@repair()
def pass_signals_on() -> None:
    """Let fairseq start its processes with `spawn`."""
    spawning = Overlay(torch.multiprocessing, spawn=spawn)
    overlay(distributed_utils, "torch", multiprocessing=spawning)


def spawn(*args: Any, **kwargs: Any) -> None:
    """`torch.multiprocessing.spawn`, which passes SIGTERM on to the processes.

    torch would end at once, and the processes with it.

    Raises:
        SystemExit: with `TERMINATED`, if they saved their state and ended.
        ConfigurationError: a process was killed; torch may show another process's error instead.
    """

    def pass_on(number: int, frame: Any) -> None:
        for process in multiprocessing.active_children():
            process.terminate()

    main = threading.current_thread() is threading.main_thread()  # other threads get no signals
    before = signal.signal(signal.SIGTERM, pass_on) if main else None
    processes: list[Any] = []
    try:
        context = torch.multiprocessing.spawn(*args, **{**kwargs, "join": False})
        processes = context.processes
        while not context.join():
            pass
    except (
        torch.multiprocessing.ProcessExitedException,
        torch.multiprocessing.ProcessRaisedException,
    ) as error:
        if getattr(error, "exit_code", 0) == TERMINATED:
            raise SystemExit(TERMINATED) from None
        for rank, process in enumerate(processes):
            status = process.exitcode or 0
            if status < 0 and status != -signal.SIGTERM:  # torch ends the others with SIGTERM
                raise ConfigurationError(
                    f"process {rank} of {len(processes)} was {killed_by(-status)}: rerun to resume"
                ) from None
        raise
    finally:
        if main:
            signal.signal(signal.SIGTERM, before)
