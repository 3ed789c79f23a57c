"""The base class of R-Drop and SimCut: label smoothing and the divergence of two passes."""

import math
from typing import Any

from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.logging import metrics
from torch import Tensor

from fairseq_plugins.errors import ConfigurationError

from .label_smoothed_cross_entropy_fused import LabelSmoothedCrossEntropyFused
from .objective import Objective
from .projection import ADAPTIVE, find_projection
from .wrappers import unwrap


class TwoPassCriterion(LabelSmoothedCrossEntropyFused):
    """Two passes in training. Plain label smoothing in one pass in validation, or with alpha = 0.

    The batch contains each sentence twice, so that one forward of the model computes both passes
    with different dropout. This takes twice the memory: halve `--max-tokens` if necessary. The loss
    is `chunked_loss` for models that `find_projection` accepts, and `plain_loss` for others.

    In training, "kl" is logged in addition to fairseq's "loss" and "nll_loss": the divergence
    without its weight, in bits per target token.
    """

    alpha: float

    def objective(self) -> Objective:
        """The loss in training, of two passes."""
        raise NotImplementedError

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """As in fairseq: the summed loss, the sample size to divide by, and the logging output.

        Two passes are always reduced: their divergence is a sum over all tokens.
        """
        two_passes = model.training and self.alpha > 0
        try:
            projection = find_projection(model, 2 if two_passes else 1)
        except ConfigurationError:
            decoder = getattr(unwrap(model)[-1], "decoder", None)
            if getattr(decoder, "adaptive_softmax", None) is not None:
                raise ConfigurationError(
                    "--adaptive-softmax-cutoff leaves no probabilities of the whole vocabulary for "
                    f"this criterion to compare: use --criterion {ADAPTIVE}"
                ) from None
            projection = None
        if two_passes:
            return self.compute(model, sample, self.objective(), projection)
        if projection is None:
            return LabelSmoothedCrossEntropyCriterion.forward(self, model, sample, reduce)
        return super().forward(model, sample, reduce)

    @classmethod
    def reduce_metrics(cls, logging_outputs: Any) -> None:
        super().reduce_metrics(logging_outputs)
        if any("kl" in log for log in logging_outputs):
            tokens = sum(log["ntokens"] for log in logging_outputs)
            divergence = sum(log.get("kl", 0) for log in logging_outputs)
            metrics.log_scalar("kl", divergence / tokens / math.log(2), tokens, round=4)
