"""Label smoothing with SimCut (Gao et al., NAACL 2022): predictions that survive lost words."""

from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ContextManager, Iterator, Set, Tuple

import torch
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterionConfig
from torch import Tensor, nn

from fairseq_plugins.errors import ConfigurationError

from .projection import Objective
from .two_passes import TwoPassCriterion


@dataclass
class SimCutConfig(LabelSmoothedCrossEntropyCriterionConfig):
    simcut_alpha: float = field(
        default=3.0,
        metadata={
            "help": "weight of the divergence between each batch and its copy with lost words; "
            "3 is the paper's, 0 is plain label smoothing in one pass (default: 3)"
        },
    )
    simcut_p: float = field(
        default=0.05,
        metadata={
            "help": "how likely each source and target word of the copy is to lose its embedding "
            "(default: 0.05, the paper's)"
        },
    )


@register_criterion("label_smoothed_cross_entropy_simcut", dataclass=SimCutConfig)
class LabelSmoothedCrossEntropySimCut(TwoPassCriterion):
    """Label-smoothed cross entropy, and the divergence from a pass that misses some words::

        loss = CE(f(x, y)) + alpha KL(f(x, y) || f(x_cut, y_cut))

    summed over real target tokens (arXiv 2206.02368). In ``x_cut`` and ``y_cut`` the
    token embedding of each source and each previous target token is zero with probability p; its
    position's is kept, and so is the symbol of a sentence's end, with which the target begins.
    Gradients flow through both sides of the divergence, which the paper finds to matter. Both
    passes have dropout of their own.

    Works with every model whose encoder and decoder have `embed_tokens`.

    Raises:
        ConfigurationError: alpha below 0, p outside 0 to 1, or a model without such embeddings, the
            last at the first batch.
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
    ):
        super().__init__(task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy)
        if simcut_alpha < 0:
            raise ConfigurationError(
                f"--simcut-alpha {simcut_alpha} is below 0: use 0 for plain label smoothing"
            )
        if not 0 <= simcut_p < 1:
            raise ConfigurationError(
                f"--simcut-p {simcut_p} is no probability below 1: the paper uses 0.05"
            )
        self.alpha, self.probability = simcut_alpha, simcut_p
        self.end_of_sentence = task.target_dictionary.eos()

    def objective(self) -> Objective:
        return Objective(self.eps, (1.0, 0.0), (self.alpha, 0.0))

    def perturb(self, model: Any) -> ContextManager:
        return cut_second_half(model, self.probability, self.end_of_sentence)


@contextmanager
def cut_second_half(model: Any, probability: float, kept: int) -> Iterator[None]:
    """Within this, tokens in the second half of each batch may lose their embeddings.

    A hook of the embeddings does it, so that every encoder and decoder will do, whether it embeds
    B x T tokens or the real ones alone. One module that both sides share is called twice, and draws
    twice. The draw is torch's on the model's device, which fairseq seeds for each update.

    Args:
        model: as the criterion gets it, wrapped or not.
        probability: of a zero in place of a token's embedding.
        kept: the symbol that keeps its embedding.
    """
    inner = model
    while isinstance(getattr(inner, "module", None), nn.Module):
        inner = inner.module
    sides = [getattr(inner, side, None) for side in ("encoder", "decoder")]
    embeddings: Set[Any] = {getattr(side, "embed_tokens", None) for side in sides}
    if None in embeddings:
        raise ConfigurationError(
            f"--criterion label_smoothed_cross_entropy_simcut cannot train {type(inner).__name__}: "
            "its encoder or decoder has no embed_tokens to cut; use --criterion "
            "label_smoothed_cross_entropy_rdrop"
        )

    def cut(module: nn.Module, args: Tuple[Tensor], embedded: Tensor) -> Tensor:
        tokens = args[0].reshape(-1)
        drawn = torch.rand(tokens.shape, device=tokens.device) < probability
        drawn[: len(tokens) // 2] = False
        drawn &= tokens != kept
        return embedded.masked_fill(drawn.view(args[0].shape).unsqueeze(-1), 0.0)

    handles = [module.register_forward_hook(cut) for module in embeddings]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
