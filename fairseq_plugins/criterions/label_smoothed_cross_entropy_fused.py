"""fairseq's label-smoothed cross entropy in chunks, to save memory."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from torch import Tensor, nn

from fairseq_plugins.modules.copy_attention import copies_of
from fairseq_plugins.modules.rows import take_rows
from fairseq_plugins.option_fields import checked_options

from .chunked_projection import chunked_loss
from .objective import Objective, plain_loss
from .projection import find_projection
from .wrappers import packed_output, positions_of, sentences_of_rows


@register_criterion(
    "label_smoothed_cross_entropy_fused", dataclass=LabelSmoothedCrossEntropyCriterionConfig
)
class LabelSmoothedCrossEntropyFused(LabelSmoothedCrossEntropyCriterion):
    """fairseq's `label_smoothed_cross_entropy`, computed in chunks with the output projection.

    The model returns features. The criterion projects them to the vocabulary, for real target
    positions only (see `chunked_loss`). Loss, logs and options are fairseq's. For a model that
    copies, the loss is that of the mixture. With ``reduce=False``, which fairseq's trainer does not
    use, fairseq's own criterion runs.

    Raises:
        ConfigurationError: at the first batch, if `find_projection` refuses the model.
    """

    @classmethod
    def build_criterion(cls, cfg: Any, task: Any) -> "LabelSmoothedCrossEntropyFused":
        """Build the criterion with all options of its dataclass.

        Raises:
            ConfigurationError: an option is out of range.
        """
        return cls(task, **checked_options(getattr(cls, "__dataclass"), cfg))

    def forward(
        self, model: Any, sample: dict[str, Any], reduce: bool = True
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """As in fairseq: the summed loss, the sample size to divide by, and the logging output."""
        if not reduce:
            return super().forward(model, sample, reduce)
        return self.compute(model, sample, Objective(self.eps), find_projection(model))

    def perturb(self, model: Any) -> AbstractContextManager:
        """Context in which the two passes of a model get different inputs."""
        return nullcontext()

    def compute(
        self,
        model: Any,
        sample: dict[str, Any],
        objective: Objective,
        projection: nn.Linear | None,
    ) -> tuple[Tensor, int, dict[str, Any]]:
        """`forward` with any objective.

        With P passes, the model gets the batch P times in one forward; the second pass is the
        second half of this larger batch.

        Args:
            model: as fairseq passes it, wrapped or not.
            sample: a batch of B sentences.
            objective: the objective of P passes, 1 or 2.
            projection: the model's projection, for `chunked_loss`; None computes `plain_loss`,
                which works for every model.

        Returns:
            the summed loss, the sample size to divide by, and the logging output.
        """
        passes = len(objective.cross_entropy)
        net_input = {
            name: torch.cat([value] * passes) if isinstance(value, Tensor) else value
            for name, value in sample["net_input"].items()
        }
        with self.perturb(model) if passes == 2 else nullcontext():
            if projection is None:
                net_output = model(**net_input)
                values, extra = model.get_normalized_probs(net_output, log_probs=True), None
            else:
                with packed_output(model):
                    values, extra = model(**net_input, features_only=True)
        targets = model.get_targets(sample, None).repeat(passes, 1)
        counted = targets.ne(self.padding_idx)
        counted[:, : self.ignore_prefix_size].fill_(False)
        sentence = sentences_of_rows(extra)
        if sentence is not None:  # no size may depend on data
            target, mask, copies = targets[0], counted[0], copies_of(extra, None, sentence)
        else:
            index = positions_of(extra, counted)  # of all rows of values
            rows = counted.flatten()[index].nonzero().squeeze(1)
            index = index[rows]
            values = take_rows(values.flatten(0, -2), rows).unflatten(0, (passes, -1))
            target, mask = targets.flatten()[index].view(passes, -1)[0], None
            copies = copies_of(extra, rows, index.div(targets.size(1), rounding_mode="floor"))
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
                copies=copies,
                counted=mask,
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
            logging_output["total"] = target.numel()
        if passes == 2:
            logging_output["kl"] = sums.divergence / sum(objective.divergence)
        return sums.loss, sample_size, logging_output
