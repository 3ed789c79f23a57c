"""The model, its options and its named architectures. Importing this registers them with fairseq."""

from . import architectures
from .efficient_transformer import EfficientTransformerModel

__all__ = ["EfficientTransformerModel", "architectures"]
