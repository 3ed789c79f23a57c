"""What exports of every format need to know about a model, and which they refuse.

Needs neither onnx nor ctranslate2.
"""

from typing import Any

from fairseq.models.nat import FairseqNATDecoder
from fairseq.models.transformer import TransformerDecoderBase, TransformerEncoderBase
from torch import Tensor

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.models.encoder_classifier import EncoderClassifierModel
from fairseq_plugins.search.torch_backend.decoding import can_decode_in_beams


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
    known = isinstance(encoder, TransformerEncoderBase) and isinstance(
        decoder, TransformerDecoderBase
    )
    if not known or isinstance(decoder, FairseqNATDecoder):  # not from left to right
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


def bias_of(linear: Any) -> Tensor:
    """The bias of a linear map; zeros if it has none."""
    if linear.bias is None:
        return linear.weight.detach().new_zeros(linear.weight.size(0))
    return linear.bias.detach()
