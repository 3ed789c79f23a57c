"""Label smoothing with R-Drop (Liang et al., NeurIPS 2021): agreement of two dropout passes."""

import math
from dataclasses import dataclass, field
from typing import Any

from fairseq.criterions import register_criterion

from fairseq_plugins.errors import ConfigurationError

from .label_smoothed_cross_entropy_fused import FusedConfig
from .objective import Objective
from .two_passes import TwoPassCriterion


@dataclass
class RDropConfig(FusedConfig):
    rdrop_alpha: float = field(
        default=5.0,
        metadata={
            "help": "weight of the divergence between two dropout passes over each batch; the "
            "paper uses 5 for translation, and 0 is plain label smoothing in one pass (default: 5)"
        },
    )


@register_criterion("label_smoothed_cross_entropy_rdrop", dataclass=RDropConfig)
class LabelSmoothedCrossEntropyRDrop(TwoPassCriterion):
    """R-Drop: label-smoothed cross entropy of two passes, and their divergence::

        loss = (CE_1 + CE_2) / 2 + alpha / 2 * (KL(p_1 || p_2) + KL(p_2 || p_1)) / 2

    summed over real target tokens. This is half the loss of the paper, which adds the two cross
    entropies. The mean makes losses comparable with plain label smoothing, which is alpha = 0.

    Raises:
        ConfigurationError: alpha is below 0, or an argument that the fused criterion refuses.
    """

    def __init__(
        self,
        task: Any,
        sentence_avg: bool,
        label_smoothing: float,
        rdrop_alpha: float = 5.0,
        ignore_prefix_size: int = 0,
        report_accuracy: bool = False,
        word_dropout: float = 0.0,
    ):
        super().__init__(
            task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy, word_dropout
        )
        if not 0 <= rdrop_alpha < math.inf:
            raise ConfigurationError(
                f"--rdrop-alpha {rdrop_alpha}: give a number, 0 for plain label smoothing"
            )
        self.alpha = rdrop_alpha

    def objective(self) -> Objective:
        return Objective(self.eps, (0.5, 0.5), (self.alpha / 4, self.alpha / 4))
