"""Agreement of two passes: R-Drop (Liang et al. 2021) and SimCut (Gao et al. 2022)."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.logging import metrics
from torch import Tensor, nn

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.options.fields import option

from .chunked import Objective
from .label_smoothed import LabelSmoothedCrossEntropyFused, find_projection, unwrap


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
                raise  # there are no probabilities of the whole vocabulary to compare
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


@dataclass
class SimCutConfig(LabelSmoothedCrossEntropyCriterionConfig):
    simcut_alpha: float = option(
        3.0,
        "weight of the divergence between a batch and its copy with dropped words; the paper uses "
        "3, and 0 is plain label smoothing in one pass",
        least=0,
        most=1000,
    )
    simcut_p: float = option(
        0.05,
        "probability that a source or target word of the copy loses its embedding; the default is "
        "the paper's, 0.05",
        least=0,
        most=0.99,
    )


@register_criterion("label_smoothed_cross_entropy_simcut", dataclass=SimCutConfig)
class LabelSmoothedCrossEntropySimCut(TwoPassCriterion):
    """SimCut: label-smoothed cross entropy, and the divergence from a pass with words cut::

        loss = CE(f(x, y)) + alpha KL(f(x, y) || f(x_cut, y_cut))

    summed over real target tokens (arXiv 2206.02368). In ``x_cut`` and ``y_cut``, the token
    embedding of each source and each previous target token is zero with probability p. Position
    embeddings are kept, and so is the end symbol, with which the previous target tokens begin.
    Gradients flow through both sides of the divergence, which the paper finds important. Each pass
    has its own dropout.

    Works with every model whose encoder and decoder have `embed_tokens`.

    Raises:
        ConfigurationError: at the first batch: the model has no such embeddings.
    """

    def __init__(
        self, *args: Any, simcut_alpha: float = 3.0, simcut_p: float = 0.05, **kwargs: Any
    ):
        super().__init__(*args, **kwargs)
        self.alpha, self.probability = simcut_alpha, simcut_p

    def objective(self) -> Objective:
        return Objective(self.eps, (1.0, 0.0), (self.alpha, 0.0))

    @contextmanager
    def perturb(self, model: Any) -> Iterator[None]:
        """Context in which the second pass loses embeddings of tokens.

        Forward hooks on the embedding modules do this, for every encoder and decoder, whether it
        embeds B x T tokens or only the N real ones. A module that both sides share is called twice
        and draws twice. Activation checkpointing recomputes layers from the same embeddings.
        """
        inner = unwrap(model)[-1]
        sides = [getattr(inner, side, None) for side in ("encoder", "decoder")]
        embeddings: set[Any] = {getattr(side, "embed_tokens", None) for side in sides}
        if None in embeddings:
            raise ConfigurationError(
                f"{type(inner).__name__} does not support SimCut: its encoder or decoder has no "
                "embed_tokens; use --criterion label_smoothed_cross_entropy_rdrop"
            )
        end = self.task.target_dictionary.eos()

        def cut(module: nn.Module, args: tuple[Tensor], embedded: Tensor) -> Tensor:
            tokens = args[0].reshape(-1)
            kept = torch.rand(tokens.shape, device=tokens.device) >= self.probability
            # not from a tensor, which would be copied from the host
            kept[: len(tokens) // 2].fill_(True)  # the first pass
            return embedded * (kept | (tokens == end)).view(*args[0].shape, 1).to(embedded.dtype)

        handles = [module.register_forward_hook(cut) for module in embeddings]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
