"""Which models can be exported in any format, and their length limits.

Needs neither onnx nor ctranslate2.
"""

from typing import Any, Tuple

from fairseq import utils
from fairseq.models.nat import FairseqNATDecoder
from fairseq.models.transformer import TransformerDecoderBase, TransformerEncoderBase

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.generation.decoding import can_decode_in_beams
from fairseq_plugins.models.encoder_classifier import EncoderClassifierModel


def classifies(model: Any) -> bool:
    """Whether a model has classes and no decoder."""
    return hasattr(model, "classification_heads")


def check(model: Any) -> None:
    """Raise a ConfigurationError for a model that no format can express."""
    if classifies(model):
        if type(model).forward is EncoderClassifierModel.forward:
            return
        raise ConfigurationError(
            f"the model cannot be exported: {type(model).__name__} is not an encoder_classifier"
        )
    encoder, decoder = getattr(model, "encoder", None), model.decoder
    known = TransformerEncoderBase, TransformerDecoderBase
    own_forward = isinstance(decoder, FairseqNATDecoder)  # not from left to right
    if not isinstance(encoder, known[0]) or not isinstance(decoder, known[1]) or own_forward:
        reason = f"{type(model).__name__} is not a Transformer with encoder and decoder"
    elif not len(decoder.layers):
        reason = "it has no decoder layers (--decoder-layers 0)"
    elif not can_decode_in_beams(decoder):
        reason = (
            "its decoder has extensions of fairseq's Transformer that exports do not support, such "
            "as --cross-self-attention or --no-cross-attention"
        )
    elif decoder.adaptive_softmax is not None:
        reason = "it has --adaptive-softmax-cutoff"
    else:
        return
    raise ConfigurationError("the model cannot be exported: " + reason)


def limits(model: Any, task: Any) -> Tuple[int, int]:
    """The most tokens of a source and of a hypothesis, without the end symbol."""
    longest = utils.resolve_max_positions(task.max_positions(), model.max_positions())
    return int(longest[0]) - 1, int(longest[1]) - 1
