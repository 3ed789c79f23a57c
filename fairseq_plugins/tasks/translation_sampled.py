"""Translation with subword regularisation by BPE-dropout.

    fairseq-train DATA --user-dir fairseq_plugins --task translation_sampled --bpe-dropout 0.1 ...

DATA is a prepared folder, which contains the merges. Each epoch samples new segmentations of
the training data. Validation and test data keep their segmentation, so that `--task translation`
can generate with the trained models.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from fairseq import utils
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import II

from fairseq_plugins.data.sampled_pairs import SampledPairs
from fairseq_plugins.data.subword_sampling import BPEDropout
from fairseq_plugins.errors import ConfigurationError, flag
from fairseq_plugins.options.fields import option


@dataclass
class SampledTranslationConfig(TranslationConfig):
    """The options of `translation`, and options of sampling."""

    bpe_dropout: float = option(
        0.0,
        "probability of skipping each merge of BPE in training, drawn again in each epoch; the "
        "paper uses 0.1, 0 is off",
    )
    seed: int = II("common.seed")
    max_tokens: Optional[int] = II("dataset.max_tokens")  # noqa: UP045, fairseq reads no `|`


@register_task("translation_sampled", dataclass=SampledTranslationConfig)
class SampledTranslationTask(TranslationTask):
    """fairseq's `translation`, with sampled segmentations of the training data.

    Raises:
        ConfigurationError: an option is invalid, or options conflict.
    """

    cfg: SampledTranslationConfig

    def __init__(self, cfg: SampledTranslationConfig, src_dict: Any, tgt_dict: Any):
        super().__init__(cfg, src_dict, tgt_dict)
        if not 0 <= cfg.bpe_dropout < 1:
            raise ConfigurationError(
                f"--bpe-dropout {cfg.bpe_dropout} must be at least 0 and below 1: 0.1 is usual, 0 "
                "is off"
            )
        # a resumed training then needs no batches of the first epoch
        self.varies_by_epoch = bool(cfg.bpe_dropout)
        for name in ("truncate_source", "load_alignments", "num_batch_buckets"):
            if cfg.bpe_dropout and getattr(cfg, name):
                raise ConfigurationError(
                    f"{flag(name)} needs texts that do not change: remove it or --bpe-dropout"
                )

    def load_dataset(
        self, split: str, epoch: int = 1, combine: bool = False, **kwargs: Any
    ) -> None:
        """As in fairseq, but in training the train split becomes `SampledPairs`.

        Raises:
            ConfigurationError: the data folder has no merges.
        """
        super().load_dataset(split, epoch, combine, **kwargs)
        if not self.cfg.bpe_dropout or split != self.cfg.train_subset or "task_cfg" in kwargs:
            return
        model = Path(utils.split_paths(self.cfg.data)[0]) / BPEDropout.file_name
        if not model.is_file():
            raise ConfigurationError(
                f"--bpe-dropout needs {model}, which is missing: give a folder prepared with "
                "--subword bpe, or copy the file into this one"
            )
        source, target = (
            BPEDropout(model, dictionary, self.cfg.bpe_dropout)
            for dictionary in (self.src_dict, self.tgt_dict)
        )
        most = self.cfg.max_tokens or math.inf
        limits = [min(most, positions) for positions in self.max_positions()]
        pairs = self.datasets[split]
        self.datasets[split] = SampledPairs(pairs, source, target, self.cfg.seed, limits)
