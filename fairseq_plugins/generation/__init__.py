"""Generation with this package's models, faster and with the same results.

fairseq's generator keeps its loop and all its options; `accelerate` exchanges two of its parts,
the ensemble of models and the choice of the best continuations.
"""

import functools
from typing import Any, Callable

from fairseq.search import BeamSearch
from fairseq.sequence_generator import (
    EnsembleModel,
    EnsembleModelWithAlignment,
    SequenceGenerator,
    SequenceGeneratorWithAlignment,
)
from fairseq.tasks import FairseqTask

from fairseq_plugins.models import EfficientTransformerModel

from .beam_search import GroupedBeamSearch
from .decoding import can_decode_in_beams
from .ensemble import BeamEnsemble

__all__ = ["accelerate", "install"]


def install() -> None:
    """Let all tasks of fairseq build accelerated generators. A second call does nothing."""
    build_generator: Callable = FairseqTask.build_generator
    if hasattr(build_generator, "accelerates"):
        return

    @functools.wraps(build_generator)
    def build_accelerated(*args: Any, **kwargs: Any) -> Any:
        return accelerate(build_generator(*args, **kwargs))

    build_accelerated.accelerates = True  # type: ignore[attr-defined]
    FairseqTask.build_generator = build_accelerated


def accelerate(generator: Any) -> Any:
    """Make a generator of fairseq's fast, in place, if all its models are this package's.

    Hypotheses and scores stay what they were. Only their "attention" is left out, unless the
    generator was made for `--print-alignment`. Generators and models of another kind, and options
    that the fast decoder does not know (see `can_decode_in_beams`), are left as they are.
    """
    if not isinstance(generator, SequenceGenerator):
        return generator
    ensemble = generator.model
    if type(ensemble) not in (EnsembleModel, EnsembleModelWithAlignment) or not all(
        isinstance(model, EfficientTransformerModel) and can_decode_in_beams(model.decoder)
        for model in ensemble.models
    ):
        return generator
    need_attention = isinstance(generator, SequenceGeneratorWithAlignment)
    generator.model = BeamEnsemble(list(ensemble.models), need_attention)
    if type(generator.search) is BeamSearch:
        generator.search = GroupedBeamSearch(generator.tgt_dict)
    return generator
