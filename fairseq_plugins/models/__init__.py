"""Models, their options and named architectures. Importing this package registers them."""

from . import architectures
from .efficient_transformer import EfficientTransformerModel
from .encoder_classifier import EncoderClassifierModel

__all__ = ["EfficientTransformerModel", "EncoderClassifierModel", "architectures"]
