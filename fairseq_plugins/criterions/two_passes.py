"""What R-Drop and SimCut share: label smoothing and the divergence of two passes."""

import math
from typing import Any, Dict, Tuple

from fairseq import metrics
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from torch import Tensor

from fairseq_plugins.errors import ConfigurationError

from .label_smoothed_cross_entropy_fused import LabelSmoothedCrossEntropyFused
from .projection import Objective, find_projection


class TwoPassCriterion(LabelSmoothedCrossEntropyFused):
    """Two passes in training; in validation, and with alpha 0, plain label smoothing in one.

    Each sentence stands in the batch twice, so that one forward of the model is both passes and
    their dropout differs. A batch takes twice the memory, and `--max-tokens` may want halving. The
    loss is the chunked one where the model has it, and the plain one for all others.

    Logged beside fairseq's "loss" and "nll_loss": "kl", bits a token of the divergence without its
    weight, in training.
    """

    alpha: float

    def objective(self) -> Objective:
        """The loss in training."""
        raise NotImplementedError

    def forward(
        self, model: Any, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, int, Dict[str, Any]]:
        """As fairseq's criterions: the loss, the sample size to divide by, and what to log.

        Raises:
            NotImplementedError: in training without reduction, for which fairseq never asks.
        """
        two_passes = model.training and self.alpha > 0
        if two_passes and not reduce:
            raise NotImplementedError("the divergence of two passes is a sum over all tokens")
        try:
            projection = find_projection(model, 2 if two_passes else 1)
        except ConfigurationError:
            projection = None
        if two_passes:
            return self.compute(model, sample, self.objective(), projection)
        if projection is None:
            with self.perturb(model):
                return LabelSmoothedCrossEntropyCriterion.forward(self, model, sample, reduce)
        return super().forward(model, sample, reduce)

    @classmethod
    def reduce_metrics(cls, logging_outputs: Any) -> None:
        super().reduce_metrics(logging_outputs)
        if any("kl" in log for log in logging_outputs):
            tokens = sum(log["ntokens"] for log in logging_outputs)
            divergence = sum(log.get("kl", 0) for log in logging_outputs)
            metrics.log_scalar("kl", divergence / tokens / math.log(2), tokens, round=4)
