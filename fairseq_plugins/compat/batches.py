"""Repairs of batches: no sentence is dropped, and each counts."""

import logging
import re
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import torch
from fairseq.data import data_utils
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.trainer import Trainer

from fairseq_plugins.compat.patch import repair
from fairseq_plugins.errors import ConfigurationError

logger = logging.getLogger(__name__)

NO_SENTENCES = (
    "there are no sentences for a batch: the data is empty, or every sentence is longer than "
    "--max-source-positions, --max-target-positions or --max-tokens"
)


@repair(data_utils, "batch_by_size")
def keep_the_last_batch(original: Callable, indices: Any, *args: Any, **kwargs: Any) -> list[Any]:
    """Keep the last batch; fairseq drops it unless its size is a multiple of 8.

    100 sentences give 96 translations and a score of those 96, without a warning. Fewer
    than 8 sentences give an error. The dropped sentences are the end of `indices` and form one
    batch within all limits, so they are appended.

    Raises:
        ConfigurationError: when making batches: there are no sentences, or one is longer than
            `--max-tokens`, which is an AssertionError in fairseq.
    """
    if not isinstance(indices, np.ndarray):
        indices = np.fromiter(indices, dtype=np.int64, count=-1)
    try:
        batches = original(indices, *args, **kwargs)
    except IndexError:
        if len(indices) > 0:
            raise
        raise ConfigurationError(NO_SENTENCES) from None
    except AssertionError as error:
        limit = re.search(r"max_tokens(?: limit of |=)(\d+)", str(error))
        if not limit:
            raise
        raise ConfigurationError(
            f"--max-tokens {limit[1]}: a sentence is longer: give a larger number"
        ) from None
    rest = indices[sum(len(batch) for batch in batches) :]
    return batches + [rest] if len(rest) > 0 else batches


@repair(LanguageModelingTask, "eval_lm_dataloader")
def tell_which_blocks_have_no_perplexity(
    original: Callable, self: Any, dataset: Any, *args: Any, **kwargs: Any
) -> Any:
    """Report how many blocks `fairseq-eval-lm` skips because the model cannot read them.

    If all are skipped, it reports a perplexity of 1.

    Raises:
        ConfigurationError: when making batches: every block is skipped.
    """
    longest, count = kwargs.get("max_positions"), len(dataset)
    indices = np.arange(count)
    left_out = [] if longest is None else dataset.filter_indices_by_size(indices, longest)[1]
    if len(left_out) > 0:
        told = (
            f"{len(left_out):,} of {count:,} blocks are longer than the {longest:,} tokens "
            f"that the model reads: give --tokens-per-sample {longest} with "
            "--sample-break-mode none"
        )
        if len(left_out) == count:
            raise ConfigurationError(told)
        logger.warning("the perplexity covers only part of the text: " + told)
    return original(self, dataset, *args, **kwargs)


@repair(Trainer, "train_step")
def count_every_batch(
    original: Callable, self: Trainer, samples: list[Any], *args: Any, **kwargs: Any
) -> Any:
    """Divide the last gradient of an epoch by the sizes of all its batches.

    If processes cannot share the batches of an epoch equally, fairseq gives some of them an empty
    batch at the end. With --update-freq above 1, a process whose last batch is empty reports size 0
    for its other batches too, although their gradients count: 7 batches of 2 processes and
    --update-freq 2 end with a gradient 1.5 times too large. Here, empty batches come first, where
    fairseq ignores them, and do not count. They are still computed, because processes may
    synchronise in each forward pass.
    """
    empty = [sample for sample in samples if not sample]
    real = [sample for sample in samples if sample]
    if not empty or not real:
        return original(self, samples, *args, **kwargs)
    with mock.patch.object(self.task, "train_step", _nothing_of(self.task.train_step)):
        return original(self, empty + real, *args, **kwargs)


def _nothing_of(train_step: Callable) -> Callable:
    """A task's training step; batches to ignore have no size and no logs."""

    def nothing(value: Any) -> Any:
        return value * 0 if isinstance(value, (int, float, torch.Tensor)) else value

    def counted(*args: Any, **kwargs: Any) -> Any:
        loss, sample_size, logs = train_step(*args, **kwargs)
        if kwargs.get("ignore_grad"):
            sample_size, logs = sample_size * 0, {name: nothing(logs[name]) for name in logs}
        return loss, sample_size, logs

    return counted
