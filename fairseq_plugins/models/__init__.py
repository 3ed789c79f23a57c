"""The model, its options, its named architectures: importing this makes fairseq know them."""

from . import architectures
from .efficient_transformer import EfficientTransformerModel

__all__ = ["EfficientTransformerModel", "architectures"]
