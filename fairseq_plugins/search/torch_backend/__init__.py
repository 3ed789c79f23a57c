"""Faster generation with the same results, for this package's models and fairseq's `transformer`.

fairseq's generator keeps all its options. `accelerate` replaces two of its parts: the model
ensemble and, for beam search, the loop over steps.
"""

from collections.abc import Callable
from typing import Any

from fairseq.models.transformer import TransformerModel
from fairseq.search import BeamSearch
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator
from fairseq.tasks import FairseqTask

from fairseq_plugins.compat.patch import around
from fairseq_plugins.models import EfficientTransformerModel

from .decoding import can_decode_in_beams
from .ensemble import BeamEnsemble
from .generator import BeamGenerator

__all__ = ["accelerate", "install"]


def install() -> None:
    """Make every fairseq task build accelerated generators. A second call does nothing."""

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
        return generator
    ensemble = generator.model
    if type(ensemble) is not EnsembleModel or not all(
        type(model) in (EfficientTransformerModel, TransformerModel)
        and can_decode_in_beams(model.decoder)
        for model in ensemble.models
    ):
        return generator
    generator.model = BeamEnsemble(list(ensemble.models))
    usual = generator.lm_model is None and not generator.match_source_len
    if type(generator.search) is BeamSearch and usual:
        generator.__class__ = BeamGenerator
    return generator
