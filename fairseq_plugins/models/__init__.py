"""The models, their options, their named architectures: importing this makes fairseq know them."""

from . import architectures
from .efficient_transformer import EfficientTransformerModel
from .encoder_classifier import EncoderClassifierModel

__all__ = ["EfficientTransformerModel", "EncoderClassifierModel", "architectures"]
