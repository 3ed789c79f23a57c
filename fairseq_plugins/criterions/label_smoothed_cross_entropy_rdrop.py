"""Label smoothing with R-Drop (Liang et al., NeurIPS 2021): agreement of two dropout passes."""

from dataclasses import dataclass
from typing import Any

from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterionConfig,
)

from fairseq_plugins.option_fields import option

from .objective import Objective
from .two_passes import TwoPassCriterion


@dataclass
class RDropConfig(LabelSmoothedCrossEntropyCriterionConfig):
    rdrop_alpha: float = option(
        5.0,
        "weight of the divergence between two dropout passes over each batch; the paper uses 5 for "
        "translation, and 0 is plain label smoothing in one pass",
        least=0,
        most=1000,
    )


@register_criterion("label_smoothed_cross_entropy_rdrop", dataclass=RDropConfig)
class LabelSmoothedCrossEntropyRDrop(TwoPassCriterion):
    """R-Drop: label-smoothed cross entropy of two passes, and their divergence::

        loss = (CE_1 + CE_2) / 2 + alpha / 2 * (KL(p_1 || p_2) + KL(p_2 || p_1)) / 2

    summed over real target tokens. This is half the loss of the paper, which adds the two cross
    entropies. The mean makes losses comparable with plain label smoothing, which is alpha = 0.
    """

    def __init__(self, *args: Any, rdrop_alpha: float = 5.0, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.alpha = rdrop_alpha

    def objective(self) -> Objective:
        return Objective(self.eps, (0.5, 0.5), (self.alpha / 4, self.alpha / 4))
