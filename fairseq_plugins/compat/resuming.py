"""Repairs of resuming: a resumed training ends with the same parameters as an uninterrupted one."""

import logging
import math
import os
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.data.iterators import EpochBatchIterator, FrozenBatchSampler, GroupedIterator
from fairseq.optim.fp16_optimizer import _FP16OptimizerMixin as HalfOptimizer
from fairseq.optim.lr_scheduler.reduce_lr_on_plateau import ReduceLROnPlateauLRSchedule as Plateau
from fairseq.trainer import Trainer

from fairseq_plugins.compat.patch import repair
from fairseq_plugins.errors import ConfigurationError, counted

logger = logging.getLogger(__name__)

EARLY_STOPPING = "early_stopping"
DUE = "validation_due"  # in checkpoints, and of a trainer: from `what_follows`
REPEATING = "repeats_validation"  # of a trainer: whether it makes up for a validation
FLOAT32 = "float32_parameters"
SHARDS = "num_shards"  # of an iterator
SENTENCES = "sentences"  # of its data


@repair(Trainer, "load_checkpoint")
def refuse_to_begin_anew(
    original: Callable,
    self: Trainer,
    filename: str,
    reset_optimizer: bool = False,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Refuse to resume from a checkpoint without the optimizer's state.

    With `--no-save-optimizer-state`, fairseq loads the parameters and restarts at update 0,
    with another warm-up and as many updates as before.
    """
    state = original(self, filename, reset_optimizer, *args, **kwargs)
    done = self._optim_history[-1].get("num_updates", 0) if self._optim_history else 0
    if state is not None and not reset_optimizer and self.get_num_updates() == 0 < done:
        raise ConfigurationError(
            f"{filename} has {counted(done, 'updates')} but no optimizer state "
            "(--no-save-optimizer-state), so it cannot resume: start a new training from "
            "its parameters in another --save-dir, with --finetune-from-model"
        )
    return state


@repair(Trainer, "get_train_iterator")
def keep_the_batches_of_the_first_epoch(
    original: Callable,
    self: Trainer,
    epoch: int,
    combine: bool = True,
    load_dataset: bool = True,
    **kwargs: Any,
) -> Any:
    """Use the batches of epoch 1 in every run; fairseq keeps those of a run's first epoch.

    An uninterrupted run has the batches of epoch 1 in every epoch, in a new order each time. A run
    resumed in epoch 3 uses the batches of epoch 3: it reads some sentences of that epoch twice and
    others never. Tasks whose data change between epochs set `varies_by_epoch` and are left as they
    are.
    """
    rebuilt = getattr(self.task.cfg, "rebuild_batches", False)
    kept = load_dataset and not rebuilt and not getattr(self.task, "varies_by_epoch", False)
    if epoch == 1 or not kept or kwargs.get("disable_iterator_cache"):
        return original(self, epoch, combine, load_dataset, **kwargs)
    # once, and for this epoch: some tasks load a part of their data for each
    iterator = original(self, epoch, combine, load_dataset, **kwargs)
    dataset = self.task.dataset(self.cfg.dataset.train_subset)
    if self.task.dataset_to_epoch_iter.get(dataset) is not iterator:  # it is not kept
        return iterator
    del self.task.dataset_to_epoch_iter[dataset]
    iterator = original(self, 1, combine, False, **kwargs)
    iterator.epoch = epoch
    dataset.set_epoch(epoch)
    return iterator


@repair(EpochBatchIterator, "next_epoch_itr")
def shuffle_after_the_curriculum(
    original: Callable,
    self: EpochBatchIterator,
    shuffle: bool = True,
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Shuffle after --curriculum ends; fairseq never does.

    It keeps one data loader across epochs, together with its first choice whether to shuffle. A
    resumed run has a new loader, so it did shuffle.
    """
    sampler = getattr(self, "epoch_batch_sampler", None)  # from the first epoch on
    if isinstance(sampler, FrozenBatchSampler):
        sampler.shuffle = shuffle and not self.disable_shuffling
    return original(self, shuffle, *args, **kwargs)


@repair(EpochBatchIterator, "state_dict")
def store_the_number_of_processes(original: Callable, self: EpochBatchIterator) -> dict[str, Any]:
    """Store what `resume_with_another_number_of_processes` needs."""
    return {**original(self), SHARDS: self.num_shards, SENTENCES: len(self.dataset)}


@repair(EpochBatchIterator, "load_state_dict")
def resume_with_another_number_of_processes(
    original: Callable, self: EpochBatchIterator, state: dict[str, Any]
) -> None:
    """Continue in the epoch after what all processes have read.

    fairseq stores how many batches each process has read. With other processes it takes this for
    their number. Other data within an epoch are refused: fairseq would read some sentences twice or
    never.
    """
    state = dict(state)
    read = state.get("iterations_in_epoch", 0) * state.get(SHARDS, self.num_shards)
    state["iterations_in_epoch"] = read // self.num_shards
    here = len(self.dataset)
    before = state.get(SENTENCES, here)  # fairseq itself stores none
    how = "restore them, or begin the epoch again with --reset-dataloader"
    if read and before != here:
        raise ConfigurationError(
            f"the checkpoint was written within epoch {state['epoch']} of {before:,} "
            f"sentences, but the training data have {here:,}: {how}"
        )
    try:
        original(self, state)
    except RuntimeError as error:
        if "dataloader mismatch" not in str(error):
            raise
        raise ConfigurationError(
            f"the training data or batch sizes have changed within epoch "
            f"{state['epoch']}, which now has fewer batches than were read: {how}"
        ) from None


@repair(GroupedIterator, "__init__")
def resume_with_another_update_freq(
    original: Callable,
    self: GroupedIterator,
    iterable: Any,
    chunk_size: int,
    *args: Any,
    **how: Any,
) -> None:
    """Let the rest of an epoch have all its updates.

    With another --update-freq, fairseq may end an update early and repeat the epoch.
    """
    original(self, iterable, chunk_size, *args, **how)
    if not (how.get("skip_remainder_batch") or any(args)):
        left = len(iterable) - getattr(iterable, "n", 0)
        self.total = self.n + math.ceil(left / chunk_size)


@repair(checkpoint_utils, "load_checkpoint")
def train_no_further_than_asked(
    original: Callable, cfg: Any, trainer: Trainer, **kwargs: Any
) -> Any:
    """Stop at --max-update and --stop-time-hours; fairseq makes one more update beyond them.

    Therefore each rerun of a finished training changed its parameters. With --finetune-from-model
    or --reset-optimizer, fairseq adds the time of the training that wrote the checkpoint, although
    updates start at 0: the time starts at 0 too.
    """
    own = _in_save_dir(cfg, trainer.checkpoint_suffix)
    loaded = original(cfg, trainer, **kwargs)
    options, done = trainer.cfg.optimization, trainer.get_num_updates()
    if done == 0:
        trainer._previous_training_time = 0
    # only from the checkpoint, so equal in all processes
    hours = getattr(trainer, "_previous_training_time", 0) / 3600
    reached = ""
    if 0 < options.max_update <= done:
        reached = f"{done} updates are done, --max-update is {options.max_update}"
    elif own and done and 0 < options.stop_time_hours < hours:
        reached = f"it took {hours:.6g} hours, --stop-time-hours is "
        reached += f"{options.stop_time_hours}"
    if reached:
        logger.warning(f"nothing left to train: {reached}")
        options.max_epoch = -1  # fairseq then starts no epoch
    return loaded


@repair(Trainer, "save_checkpoint")
def store_validations(
    original: Callable, self: Trainer, filename: str, extra_state: dict[str, Any]
) -> Any:
    """Store the counter of --patience in checkpoints, and the validation that is due.

    It counts validations without improvement, and fairseq does not store it. A rerun of a training
    that --patience had ended trained further; now it trains nothing.
    """
    more: dict[str, Any] = {EARLY_STOPPING: dict(patience())}
    if getattr(self, DUE, None):
        more[DUE] = getattr(self, DUE)
    return original(self, filename, {**extra_state, **more})


@repair(checkpoint_utils, "load_checkpoint")
def resume_validations(original: Callable, cfg: Any, trainer: Trainer, **kwargs: Any) -> Any:
    """Restore the counter of --patience, and make what should have followed the checkpoint.

    fairseq writes the checkpoint of an epoch's end before the scheduler sees the loss of that
    epoch, so this repeats the scheduler's step after loading. A validation that SIGTERM interrupted
    comes first. A training that starts from a checkpoint of another folder restarts the counter,
    without a best score.
    """
    own = _in_save_dir(cfg, trainer.checkpoint_suffix)
    state, iterator = original(cfg, trainer, **kwargs)
    if state is None or trainer.get_num_updates() == 0:  # a new training
        return state, iterator
    if not cfg.reset_meters:
        if own:
            patience().update(state.get(EARLY_STOPPING, {}))
        else:  # otherwise another training's score would block checkpoint_best.pt
            vars(checkpoint_utils.save_checkpoint).pop("best", None)
        due = state.get(DUE)
        if due and _program() and not trainer.cfg.dataset.disable_validation:
            state["val_loss"] = _validate(trainer, state["train_iterator"], due)
        in_a_row = patience().get("num_runs", 0)
        if 0 < cfg.patience <= in_a_row:
            logger.info(
                f"nothing left to train: {in_a_row} validations in a row were no better, "
                f"--patience is {cfg.patience}"
            )
            trainer.cfg.optimization.max_epoch = -1  # fairseq then starts no epoch
    at = state["train_iterator"]
    if at.get("iterations_in_epoch") == 0 and not cfg.reset_lr_scheduler:
        trainer.lr_step(at["epoch"] - 1, state.get("val_loss"))
    return state, iterator


@repair(Plateau, "state_dict")
def store_plateaus(original: Callable, self: Plateau) -> dict[str, Any]:
    """Store the counter of reduce_lr_on_plateau, of consecutive validations without improvement.

    fairseq does not store it.
    """
    return {**original(self), "num_bad_epochs": self.lr_scheduler.num_bad_epochs}


@repair(Plateau, "load_state_dict")
def resume_plateaus(original: Callable, self: Plateau, state: dict[str, Any]) -> None:
    """Load what `store_plateaus` stored."""
    original(self, state)
    self.lr_scheduler.num_bad_epochs = state.get("num_bad_epochs", 0)


def _in_save_dir(cfg: Any, suffix: str) -> bool:
    """Whether the checkpoint that fairseq will load is one of the training's own."""
    if cfg.restore_file == "checkpoint_last.pt":  # fairseq looks for it there
        return os.path.exists(os.path.join(cfg.save_dir, f"checkpoint_last{suffix}.pt"))
    folder = os.path.dirname(os.path.abspath(cfg.restore_file))
    return os.path.realpath(folder) == os.path.realpath(cfg.save_dir)


def what_follows(trainer: Trainer, iterator: Any) -> str:
    """What fairseq does after the current update: "validate", "validate and save", or "".

    These are the conditions of fairseq_cli.train.validate_and_save.
    """
    cfg, updates, end_of_epoch = trainer.cfg, trainer.get_num_updates(), iterator.end_of_epoch()
    limit, hours = cfg.optimization.max_update, cfg.optimization.stop_time_hours
    stop = 0 < limit <= updates or 0 < hours < trainer.cumulative_training_time() / 3600
    late = updates >= cfg.dataset.validate_after_updates

    def at(interval: int) -> bool:
        return interval > 0 and updates > 0 and updates % interval == 0

    save = (
        (end_of_epoch and iterator.epoch % cfg.checkpoint.save_interval == 0)
        or stop
        or at(cfg.checkpoint.save_interval_updates)
    )
    validate = (
        (not end_of_epoch and save)
        or (end_of_epoch and iterator.epoch % cfg.dataset.validate_interval == 0)
        or stop
        or at(cfg.dataset.validate_interval_updates)
    )
    if not validate or not late or cfg.dataset.disable_validation:
        return ""
    return "validate and save" if save else "validate"


def _validate(trainer: Trainer, at: dict[str, Any], due: str) -> Any:
    """Make the validation that is due at a stored position, and save if fairseq would."""
    program, cfg = _program(), trainer.cfg
    after_epoch = at.get("iterations_in_epoch") == 0
    iterator = SimpleNamespace(
        epoch=at["epoch"] - after_epoch,
        end_of_epoch=lambda: after_epoch,
        state_dict=lambda: at,
    )
    subsets = cfg.dataset.valid_subset.split(",")
    logger.info("making the validation that is due")
    setattr(trainer, REPEATING, True)
    loss = program.validate(cfg, trainer, trainer.task, iterator, subsets)[0]
    setattr(trainer, REPEATING, False)
    if program.should_stop_early(cfg, loss) or "save" in due:
        checkpoint_utils.save_checkpoint(cfg.checkpoint, trainer, iterator, loss)
    return loss


def _program() -> Any:
    """The module of fairseq-train that is running; None in another program."""
    for name in ("__main__", "fairseq_cli.train"):
        module = sys.modules.get(name)
        if hasattr(module, "should_stop_early"):
            return module
    return None


def patience() -> dict[str, Any]:
    """The best score and the validations since, which fairseq keeps as attributes of a function."""
    program = _program()
    return {} if program is None else vars(program.should_stop_early)


@repair(HalfOptimizer, "state_dict")
def store_parameters_in_float32(original: Callable, self: HalfOptimizer) -> dict[str, Any]:
    """Store the float32 copies of the parameters that --bf16 and --fp16 train.

    fairseq does not, so a resumed run starts from copies rounded to 8 or 11 bits. Storing them
    in the optimizer's state adds 4 bytes per parameter to about 12.
    """
    return {**original(self), FLOAT32: [copy.detach() for copy in _float32(self)]}


@repair(HalfOptimizer, "load_state_dict")
def resume_parameters_in_float32(
    original: Callable, self: HalfOptimizer, state: dict[str, Any], *args: Any
) -> None:
    """Load what `store_parameters_in_float32` stored.

    A number whose rounded value is not that of the model (after averaging, for example) is ignored.
    """
    state = dict(state)
    stored = state.pop(FLOAT32, [])
    original(self, state, *args)
    copies, half = _float32(self), self.fp16_params[0].dtype
    if [tuple(one.shape) for one in stored] == [tuple(one.shape) for one in copies]:
        for copy, one in zip(copies, stored):
            one = one.to(copy.device)
            same = one.to(half) == copy.to(half)
            copy.data.copy_(torch.where(same, one, copy))


def _float32(optimizer: HalfOptimizer) -> list[torch.Tensor]:
    """The float32 copies: one per parameter, or one flat copy per device."""
    copies = optimizer.fp32_params
    return list(copies.values()) if isinstance(copies, dict) else list(copies)
