"""Text classification: fairseq's `sentence_prediction` with checks of classes and lengths.

    fairseq-train DATA --user-dir fairseq_plugins --task classification \\
        --criterion sentence_prediction --arch encoder_classifier --max-positions 512 \\
        --shorten-method truncate ...

DATA has `input0/` (texts) and `label/`, as fairseq's RoBERTa example and prepare-classification
write them. Differences from fairseq's task:

- `label/dict.txt` sets the number of classes, without fairseq-preprocess's padding entries.
- A batch has texts of similar length.
- A text longer than --max-positions or --max-tokens is an error, or is truncated and counted with
  `--shorten-method truncate`. fairseq's task excludes such texts from training.
- Pairs of texts (`input1/`) are refused.
"""

import itertools
import logging
from pathlib import Path
from typing import Any

import numpy as np
from fairseq.data import Dictionary
from fairseq.tasks import register_task
from fairseq.tasks.sentence_prediction import (
    SentencePredictionConfig,
    SentencePredictionTask,
)

from fairseq_plugins.compat.data_files import MissingData
from fairseq_plugins.data.lengths import describe_cut, sizes
from fairseq_plugins.errors import ConfigurationError, counted

logger = logging.getLogger(__name__)


@register_task("classification", dataclass=SentencePredictionConfig)
class ClassificationTask(SentencePredictionTask):
    """Assigns each text one of the classes in `label/dict.txt`; --num-classes is optional."""

    @classmethod
    def load_dictionary(cls, filename: str) -> Dictionary:
        """Load the dictionary without adding <mask>, which fairseq's task adds."""
        return Dictionary.load(filename)

    @classmethod
    def setup_task(cls, cfg: SentencePredictionConfig, **kwargs: Any) -> "ClassificationTask":
        if cfg.regression_target:
            raise ConfigurationError(
                "--regression-target does not fit --task classification, which has classes: "
                "use --task sentence_prediction"
            )
        labels = cls.load_dictionary(str(Path(cfg.data) / "label" / "dict.txt"))
        names = [n for n in labels.symbols[labels.nspecial :] if not n.startswith("madeupword")]
        classes = len(names)
        if cfg.num_classes not in (-1, classes):
            raise ConfigurationError(
                f"--num-classes {cfg.num_classes}, but {cfg.data} has {classes} "
                f"({', '.join(names[:5])}{', ...' * (classes > 5)}): "
                "remove the option, or give the data of the model's training"
            )
        cfg.num_classes = classes
        return super().setup_task(cfg, **kwargs)

    def load_dataset(self, split: str, combine: bool = False, **kwargs: Any) -> Any:
        """Load a split, with checks of its lengths and batches of similar length.

        Raises:
            ConfigurationError: a file is missing, the numbers of texts and labels differ, texts are
                longer than --max-positions without --shorten-method, or there are pairs of texts.
        """
        if (Path(self.cfg.data) / "input1" / f"{split}.idx").is_file():
            raise ConfigurationError(
                f"{self.cfg.data} has pairs of texts (input1/), which --task classification does "
                "not support: use fairseq's --task sentence_prediction, or remove input1/"
            )
        prefixes = [Path(self.cfg.data) / part / split for part in ("input0", "label")]
        lengths, labels = (_sizes(prefix, combine) for prefix in prefixes)
        if len(lengths) != len(labels):
            raise ConfigurationError(
                f"{prefixes[0]} has {counted(len(lengths), 'texts')}, but {prefixes[1]} "
                f"{counted(len(labels), 'labels')}: prepare the data again"
            )
        self._check_lengths(split, lengths + (self.cfg.init_token is not None))
        dataset = super().load_dataset(split, combine, **kwargs)
        if not self.cfg.no_shuffle:
            # np.lexsort: the last key, length, is the primary one; ties stay in random order
            dataset.sort_order.append(np.minimum(lengths, self.cfg.max_positions))
        return dataset

    def get_batch_iterator(
        self, dataset: Any, max_tokens: int | None = None, *args: Any, **kwargs: Any
    ) -> Any:
        """As in fairseq, but without skipping training texts over --max-tokens.

        Raises:
            ConfigurationError: a text is longer than --max-tokens; the message says what to do.
        """
        longest = int(np.max(dataset.sizes)) if len(dataset) else 0
        if max_tokens is not None and longest > max_tokens:
            raise ConfigurationError(
                f"a text of {longest:,} tokens is longer than --max-tokens (or --max-tokens-valid) "
                f"{max_tokens}: give {longest} or more, or truncate texts with --shorten-method "
                "truncate and --max-positions"
            )
        return super().get_batch_iterator(dataset, max_tokens, *args, **kwargs)

    def _check_lengths(self, split: str, lengths: np.ndarray) -> None:
        limit = self.cfg.max_positions
        cut_off = np.maximum(lengths - limit, 0)
        if not cut_off.any():
            return
        only = self.cfg.shorten_data_split_list
        shortened = str(self.cfg.shorten_method) != "none" and (
            not only or split in only.split(",")
        )
        if not shortened:
            raise ConfigurationError(
                f"{np.count_nonzero(cut_off):,} of {len(lengths):,} texts of '{split}' are longer "
                f"than --max-positions {limit}, the longest with {lengths.max():,}: truncate them "
                f"with --shorten-method truncate, or train with --max-positions {lengths.max()}"
            )
        logger.info(describe_cut(split, lengths, limit, "texts"))


def _sizes(prefix: Path, combine: bool) -> np.ndarray:
    """The lengths of a split's texts; with `combine`, also those of train1, train2, ..., if any."""

    def index(part: Path) -> Path:
        return part.with_name(part.name + ".idx")

    if not index(prefix).is_file():
        raise MissingData(f"{prefix}.idx is missing: choose another subset, or prepare it")
    numbers = itertools.count(1) if combine else ()
    further = (prefix.with_name(f"{prefix.name}{number}") for number in numbers)
    parts = [prefix, *itertools.takewhile(lambda part: index(part).is_file(), further)]
    return sizes(*parts)
