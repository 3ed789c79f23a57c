"""fairseq's label-smoothed cross entropy without the log-probabilities of a whole batch."""

from typing import Any, Dict, Optional, Tuple

import torch
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from torch import Tensor, nn

from .projection import Objective, chunked_loss, find_projection, plain_loss


@register_criterion(
    "label_smoothed_cross_entropy_fused", dataclass=LabelSmoothedCrossEntropyCriterionConfig
)
class LabelSmoothedCrossEntropyFused(LabelSmoothedCrossEntropyCriterion):
    """fairseq's `label_smoothed_cross_entropy`, projection included, some tokens at a time.

    The model gives its features, and the projection to the vocabulary happens here, for real target
    positions only (see `chunked_loss`). Options, numbers and logs are fairseq's. Without reduction,
    which fairseq's trainer never asks for, fairseq's own computation runs.

    Raises:
        ConfigurationError: at the first batch, for a model that `find_projection` refuses.
    """

    def forward(
        self, model: Any, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, int, Dict[str, Any]]:
        """As fairseq's criterions: the loss, the sample size to divide by, and what to log."""
        if not reduce:
            return super().forward(model, sample, reduce)
        return self.compute(model, sample, Objective(self.eps), find_projection(model))

    def compute(
        self,
        model: Any,
        sample: Dict[str, Any],
        objective: Objective,
        projection: Optional[nn.Linear],
    ) -> Tuple[Tensor, int, Dict[str, Any]]:
        """`forward` with any objective; each sentence is in the batch once for each pass.

        The copies of the second pass are the second half of the batch. Without a projection the
        loss is the plain one, which every model can compute.
        """
        passes = len(objective.cross_entropy)
        net_input = {
            name: torch.cat([value] * passes) if isinstance(value, Tensor) else value
            for name, value in sample["net_input"].items()
        }
        if projection is None:
            net_output = model(**net_input)
            values = model.get_normalized_probs(net_output, log_probs=True)
        else:
            values = model(**net_input, features_only=True)[0]
        target = model.get_targets(sample, None)[:, self.ignore_prefix_size :].reshape(-1)
        values = values[:, self.ignore_prefix_size :].reshape(passes, target.numel(), -1)
        real = target.ne(self.padding_idx).nonzero().squeeze(1)
        values, target = values.index_select(1, real), target.index_select(0, real)
        if projection is None:
            sums = plain_loss(values, target, objective)
        else:
            sums = chunked_loss(
                values,
                target,
                projection.weight,
                projection.bias,
                objective,
                count_correct=self.report_accuracy,
            )
        nsentences = sample["target"].size(0)
        sample_size = nsentences if self.sentence_avg else sample["ntokens"]
        logging_output = {
            "loss": sums.loss.data,
            "nll_loss": sums.nll_loss,
            "ntokens": sample["ntokens"],
            "nsentences": nsentences,
            "sample_size": sample_size,
        }
        if self.report_accuracy:
            logging_output["n_correct"] = sums.correct.item()
            logging_output["total"] = real.numel()
        if passes == 2:
            logging_output["kl"] = sums.divergence / sum(objective.divergence)
        return sums.loss, sample_size, logging_output
