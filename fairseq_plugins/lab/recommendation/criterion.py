"""The loss of recommendation: each clicked news against the others of its sample."""

import math
from typing import Any

import torch
from fairseq.criterions import FairseqCriterion, register_criterion
from fairseq.logging import metrics
from torch import Tensor

from fairseq_plugins.lab.recommendation.scores import METRICS, of_impression


@register_criterion("news_recommendation")
class NewsRecommendationCriterion(FairseqCriterion):
    """``-log softmax(scores)`` of each click, over the candidates of its sample; the sum of clicks.

    In validation also `METRICS` of each impression, so that --best-checkpoint-metric may be auc.
    """

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        scores = model(**sample["net_input"])
        clicked = sample["target"]
        losses = -torch.log_softmax(scores.float(), dim=1)
        loss = losses.masked_fill(~clicked, 0.0).sum()
        size = int(clicked.sum())
        logged = {
            "loss": loss.data,
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": size,
        }
        if not model.training:
            measured = [
                of_impression(labels[shown], values[shown])
                for labels, values, shown in zip(
                    clicked.cpu().numpy(),
                    scores.detach().float().cpu().numpy(),
                    (sample["net_input"]["candidates"] >= 0).cpu().numpy(),
                )
            ]
            logged.update({key(name): sum(each) for name, each in zip(METRICS, zip(*measured))})
        return loss, size, logged

    @staticmethod
    def reduce_metrics(logging_outputs: list[dict[str, Any]]) -> None:
        """Log the mean loss, in bits, and the means of `METRICS` over impressions, in percent."""
        size = sum(log["sample_size"] for log in logging_outputs)
        loss = sum(log["loss"] for log in logging_outputs)
        metrics.log_scalar("loss", loss / size / math.log(2), size, round=3)
        count = sum(log["nsentences"] for log in logging_outputs)
        for name in map(key, METRICS):
            if name in logging_outputs[0]:
                total = sum(log[name] for log in logging_outputs)
                metrics.log_scalar(name, 100 * total / count, count, round=2)

    @staticmethod
    def logging_outputs_can_be_summed() -> bool:
        return True


def key(metric: str) -> str:
    """The name of a metric in the log, such as ndcg5."""
    return metric.lower().replace("@", "")
