"""Label smoothing with SimCut (Gao et al., NAACL 2022): same predictions without some words."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterionConfig,
)
from torch import Tensor

from fairseq_plugins.option_fields import option

from .embeddings import scale_embeddings
from .objective import Objective
from .two_passes import TwoPassCriterion


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

    def perturb(self, model: Any) -> AbstractContextManager:
        end = self.task.target_dictionary.eos()
        return scale_embeddings(model, self.cut_words, end)

    def cut_words(self, tokens: Tensor) -> Tensor:
        """Draw the factors of N tokens. Words are cut in the second half only, the second pass."""
        kept = torch.rand(tokens.shape, device=tokens.device) >= self.probability
        # not from a tensor, which would be copied from the host
        kept[: len(tokens) // 2].fill_(True)
        return kept.float()
