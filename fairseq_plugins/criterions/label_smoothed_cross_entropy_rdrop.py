"""Label smoothing with R-Drop (Liang et al., NeurIPS 2021): two dropout passes that must agree."""

import math
from dataclasses import dataclass, field
from typing import Any, Dict, Tuple

import torch
from fairseq import metrics
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
    label_smoothed_nll_loss,
)
from torch import Tensor

from fairseq_plugins.errors import ConfigurationError


@dataclass
class RDropConfig(LabelSmoothedCrossEntropyCriterionConfig):
    rdrop_alpha: float = field(
        default=5.0,
        metadata={
            "help": "weight of the divergence between two dropout passes over each batch; 5 is the "
            "paper's for translation, 0 is plain label smoothing in one pass (default: 5)"
        },
    )


@register_criterion("label_smoothed_cross_entropy_rdrop", dataclass=RDropConfig)
class LabelSmoothedCrossEntropyRDrop(LabelSmoothedCrossEntropyCriterion):
    """Label-smoothed cross entropy of two passes, and their divergence::

        loss = (CE_1 + CE_2) / 2 + alpha / 2 * (KL(p_1 || p_2) + KL(p_2 || p_1)) / 2

    summed over real target tokens. That is half the paper's loss, which adds the two cross
    entropies, so that alpha = 0 is the plain criterion and losses compare. Each sentence stands in
    the batch twice, so that dropout differs between its copies; a batch takes twice the memory, and
    `--max-tokens` may want halving. In validation there is one pass and no divergence.

    Logged beside fairseq's "loss" and "nll_loss": "kl", bits a token of the last term without its
    weight, in training.

    Raises:
        ConfigurationError: alpha below 0.
    """

    def __init__(
        self,
        task: Any,
        sentence_avg: bool,
        label_smoothing: float,
        rdrop_alpha: float = 5.0,
        ignore_prefix_size: int = 0,
        report_accuracy: bool = False,
    ):
        super().__init__(task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy)
        if rdrop_alpha < 0:
            raise ConfigurationError(
                f"--rdrop-alpha {rdrop_alpha} is below 0: use 0 for plain label smoothing"
            )
        self.rdrop_alpha = rdrop_alpha

    def forward(
        self, model: Any, sample: Dict[str, Any], reduce: bool = True
    ) -> Tuple[Tensor, int, Dict[str, Any]]:
        """As fairseq's criterions: the loss, the sample size to divide by, and what to log."""
        if not model.training or self.rdrop_alpha == 0:
            return super().forward(model, sample, reduce)

        net_input = {name: _twice(value) for name, value in sample["net_input"].items()}
        twice = {**sample, "net_input": net_input, "target": _twice(sample["target"])}
        net_output = model(**net_input)
        lprobs, target = self.get_lprobs_and_target(model, net_output, twice)
        loss, nll_loss = label_smoothed_nll_loss(
            lprobs, target, self.eps, ignore_index=self.padding_idx, reduce=reduce
        )
        first, second = lprobs.chunk(2)
        real = target.chunk(2)[0].ne(self.padding_idx).unsqueeze(-1)
        # sum of both directions: (p_1 - p_2) (log p_1 - log p_2)
        divergence = ((first.exp() - second.exp()) * (first - second)).masked_fill(~real, 0.0) / 2
        if reduce:
            divergence = divergence.sum()
            loss, nll_loss = loss / 2, nll_loss / 2
            loss = loss + self.rdrop_alpha / 2 * divergence
        else:
            loss = (loss[: len(first)] + loss[len(first) :]) / 2
            nll_loss = (nll_loss[: len(first)] + nll_loss[len(first) :]) / 2
            divergence = divergence.sum(dim=-1, keepdim=True)
            loss = loss + self.rdrop_alpha / 2 * divergence

        nsentences = sample["target"].size(0)
        sample_size = nsentences if self.sentence_avg else sample["ntokens"]
        logging_output = {
            "loss": loss.data,
            "nll_loss": nll_loss.data,
            "kl": divergence.data,
            "ntokens": sample["ntokens"],
            "nsentences": nsentences,
            "sample_size": sample_size,
        }
        if self.report_accuracy:
            n_correct, total = self.compute_accuracy(model, net_output, twice)
            logging_output["n_correct"] = n_correct.item() / 2
            logging_output["total"] = total.item() / 2
        return loss, sample_size, logging_output

    @classmethod
    def reduce_metrics(cls, logging_outputs: Any) -> None:
        super().reduce_metrics(logging_outputs)
        if any("kl" in log for log in logging_outputs):
            tokens = sum(log["ntokens"] for log in logging_outputs)
            divergence = sum(log.get("kl", 0) for log in logging_outputs)
            metrics.log_scalar("kl", divergence / tokens / math.log(2), tokens, round=4)


def _twice(value: Any) -> Any:
    return torch.cat([value, value]) if isinstance(value, Tensor) else value
