"""Faster generation with the same results, for this package's models and fairseq's `transformer`.

fairseq's generator keeps all its options. `accelerate` replaces two of its parts: the model
ensemble and, for beam search, the loop over steps.
"""

import logging
from collections.abc import Callable
from typing import Any

import torch
from fairseq.models.transformer import TransformerModel
from fairseq.search import BeamSearch
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator
from fairseq.tasks import FairseqTask

from fairseq_plugins.compat.patch import around
from fairseq_plugins.models import EfficientTransformerModel

from . import batch_sizes
from .decoding import can_decode_in_beams
from .ensemble import BeamEnsemble
from .generator import BeamGenerator

logger = logging.getLogger(__name__)

__all__ = ["accelerate", "install"]


def install() -> None:
    """Make every fairseq task build accelerated generators. A second call does nothing."""
    batch_sizes.install()

    @around(FairseqTask, "build_generator")
    def build_generator(original: Callable, *args: Any, **kwargs: Any) -> Any:
        return accelerate(original(*args, **kwargs))


def accelerate(generator: Any) -> Any:
    """Accelerate a fairseq generator in place, if all its models are supported.

    Hypotheses and scores do not change, but "attention" is empty: fairseq reads it only for
    `--print-alignment`, whose generator is returned unchanged.

    Supported are `EfficientTransformerModel` and fairseq's `TransformerModel`, without the options
    that `can_decode_in_beams` excludes. Types are compared exactly, because a subclass may compute
    something else. Any other generator is returned unchanged.

    Args:
        generator: the result of a task's `build_generator`, of any type.

    Returns:
        the same object.
    """
    if type(generator) is not SequenceGenerator:
        return _not_captured(generator, type(generator).__name__)
    ensemble = generator.model
    if type(ensemble) is not EnsembleModel:
        return _not_captured(generator, type(ensemble).__name__)
    for model in ensemble.models:
        supported = type(model) in (EfficientTransformerModel, TransformerModel)
        if not supported or not can_decode_in_beams(model.decoder):
            return _not_captured(generator, f"this {type(model).__name__} is decoded by fairseq")
    generator.model = BeamEnsemble(list(ensemble.models))
    if generator.lm_model is not None or generator.match_source_len:
        return _not_captured(generator, "a language model, or --match-source-len")
    if type(generator.search) is not BeamSearch:
        return _not_captured(generator, type(generator.search).__name__)
    generator.__class__ = BeamGenerator
    return generator


def _not_captured(generator: Any, reason: str) -> Any:
    """The generator, after a line with the reason why a GPU launches its kernels one by one."""
    if torch.cuda.is_available():
        logger.info(f"search steps are not captured: {reason}")
    return generator
