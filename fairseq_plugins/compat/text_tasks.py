"""Repairs of fairseq's text tasks that end in a traceback."""

import collections
from collections.abc import Callable
from typing import Any

import numpy as np
from fairseq.data.iterators import EpochBatchIterator
from fairseq.data.legacy.masked_lm_dictionary import BertDictionary, MaskedLMDictionary
from fairseq.data.resampling_dataset import ResamplingDataset
from fairseq.models import transformer_from_pretrained_xlm as from_pretrained_xlm
from fairseq.tasks import semisupervised_translation as semisupervised
from fairseq.tasks.multilingual_language_modeling import MultilingualLanguageModelingTask
from fairseq.tasks.semisupervised_translation import SemisupervisedTranslationTask
from fairseq.tasks.translation_from_pretrained_bart import TranslationFromPretrainedBARTTask

from fairseq_plugins.compat.patch import around


def keep_the_options_of_pretrained_bart() -> None:
    """Let `translation_from_pretrained_bart` find its options, which the parent class renamed."""

    @around(TranslationFromPretrainedBARTTask, "__init__")
    def __init__(original: Callable, self: Any, args: Any, *rest: Any, **kwargs: Any) -> None:
        self.args = args
        original(self, args, *rest, **kwargs)


def sum_the_logs_of_semisupervised_translation() -> None:
    """Let `semisupervised_translation` train, which adds to sums that do not exist yet."""
    around(SemisupervisedTranslationTask, "train_step")(_train_step)


def _train_step(
    original: Callable,
    self: SemisupervisedTranslationTask,
    sample: dict[str, Any],
    model: Any,
    criterion: Any,
    optimizer: Any,
    update_num: int,
    ignore_grad: bool = False,
) -> tuple[float, Any, dict[str, Any]]:
    """The weighted losses of parallel, back-translated and denoised text; gradients are added up.

    Logs have the sums, and those of each part under its name, as in `multilingual_translation`.
    """
    model.train()
    if update_num > 0:
        self.update_step(update_num)
    total, size = 0.0, 0.0
    logs: dict[str, Any] = collections.defaultdict(float)
    parts = [(pair, pair, self.lambda_parallel) for pair in self.lang_pairs]
    for pair in self.lang_pairs:
        target = pair.split("-")[1]
        back_translated = semisupervised._get_bt_dataset_key(pair)
        noisy = semisupervised._get_denoising_dataset_key(pair)
        parts.append((pair, back_translated, self.lambda_otf_bt))
        parts.append((f"{target}-{target}", noisy, self.lambda_denoising))
    for name, key, weight in parts:
        if weight <= 0 or not sample.get(key):
            continue
        loss, count, log = criterion(model.models[name], sample[key])
        loss = loss * (0 if ignore_grad else weight)
        optimizer.backward(loss)
        total += float(loss.detach())
        size += count
        for each, value in log.items():
            logs[each] += value
            logs[f"{key}:{each}"] += value
    return total, size, logs


def load_dictionaries_of_masks() -> None:
    """Let `cross_lingual_lm` and `legacy_masked_lm` load their dictionaries.

    `Dictionary.load` passes an argument that these dictionaries do not accept.
    """

    @around((MaskedLMDictionary, BertDictionary), "__init__")
    def __init__(
        original: Callable, self: Any, *args: Any, add_special_symbols: bool = True, **kw: Any
    ) -> None:
        original(self, *args, **kw)


def sample_languages_of_one_size() -> None:
    """Let `multilingual_language_modeling` read languages of one size (an assertion fails)."""

    @around(ResamplingDataset, "__init__")
    def __init__(original: Callable, self: Any, dataset: Any, *args: Any, **kwargs: Any) -> None:
        if kwargs.get("size_ratio") == 1.0 and not kwargs.get("replace", True):
            kwargs["size_ratio"] = float(np.nextafter(1.0, 0.0))  # rounded up to all of it
        original(self, dataset, *args, **kwargs)


def read_several_languages_in_eval_lm() -> None:
    """Give fairseq-eval-lm the batches of `multilingual_language_modeling`, not its iterator."""

    @around(MultilingualLanguageModelingTask, "eval_lm_dataloader")
    def eval_lm_dataloader(original: Callable, self: Any, *args: Any, **kwargs: Any) -> Any:
        batches = original(self, *args, **kwargs)
        if isinstance(batches, EpochBatchIterator):
            return batches.next_epoch_itr(shuffle=False)
        return batches


def load_translators_without_what_began_them() -> None:
    """Load a `transformer_from_pretrained_xlm` without the XLM that its training began with.

    Its weights are in the checkpoint, and names of files in a checkpoint are ignored.
    """

    @around(from_pretrained_xlm, "upgrade_state_dict_with_xlm_weights")
    def upgrade(original: Callable, state_dict: Any, pretrained_xlm_checkpoint: str) -> Any:
        if not pretrained_xlm_checkpoint:
            return state_dict
        return original(state_dict, pretrained_xlm_checkpoint)
