"""Label smoothing with SimCut (Gao et al., NAACL 2022): same predictions without some words."""

import math
from dataclasses import dataclass, field
from typing import Any, ContextManager

import torch
from fairseq.criterions import register_criterion
from torch import Tensor

from fairseq_plugins.errors import ConfigurationError

from .embeddings import scale_embeddings
from .label_smoothed_cross_entropy_fused import FusedConfig
from .objective import Objective
from .two_passes import TwoPassCriterion


@dataclass
class SimCutConfig(FusedConfig):
    simcut_alpha: float = field(
        default=3.0,
        metadata={
            "help": "weight of the divergence between a batch and its copy with dropped words; "
            "the paper uses 3, and 0 is plain label smoothing in one pass (default: 3)"
        },
    )
    simcut_p: float = field(
        default=0.05,
        metadata={
            "help": "probability that a source or target word of the copy loses its embedding "
            "(default: 0.05, as in the paper)"
        },
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
        ConfigurationError: alpha is below 0, p is not in [0, 1), or an argument that the fused
            criterion refuses. At the first batch: the model has no such embeddings.
    """

    def __init__(
        self,
        task: Any,
        sentence_avg: bool,
        label_smoothing: float,
        simcut_alpha: float = 3.0,
        simcut_p: float = 0.05,
        ignore_prefix_size: int = 0,
        report_accuracy: bool = False,
        word_dropout: float = 0.0,
    ):
        super().__init__(
            task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy, word_dropout
        )
        if not 0 <= simcut_alpha < math.inf:
            raise ConfigurationError(
                f"--simcut-alpha {simcut_alpha}: give a number, 0 for plain label smoothing"
            )
        if not 0 <= simcut_p < 1:
            raise ConfigurationError(
                f"--simcut-p {simcut_p} must be at least 0 and below 1: the paper uses 0.05"
            )
        self.alpha, self.probability = simcut_alpha, simcut_p

    def objective(self) -> Objective:
        return Objective(self.eps, (1.0, 0.0), (self.alpha, 0.0))

    def perturb(self, model: Any, passes: int = 1) -> ContextManager:
        if passes == 1:
            return super().perturb(model)
        return scale_embeddings(model, self.cut_words, self.end_of_sentence)

    def cut_words(self, tokens: Tensor) -> Tensor:
        """Draw the factors of N tokens. Words are cut in the second half only, the second pass."""
        cut = torch.rand(tokens.shape, device=tokens.device) < self.probability
        cut[: len(tokens) // 2].fill_(
            False
        )  # not from a tensor, which would be copied from the host
        return self.draw_words(tokens).masked_fill(cut, 0.0)
