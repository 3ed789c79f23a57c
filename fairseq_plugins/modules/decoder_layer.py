"""fairseq's decoder layer with another feed-forward network."""

from typing import Any, Callable

from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from torch import Tensor, nn


class DecoderLayer(TransformerDecoderLayerBase):
    """The Transformer's decoder layer around a feed-forward network of one's own.

    fairseq computes ``fc2(dropout(activation_fn(fc1(x))))`` in the middle of the layer's forward,
    between cross-attention and the last residual. The whole network stands in for fc1, and what
    follows it becomes the identity, so that attention, caching and normalisation stay fairseq's.

    Args:
        cfg: fairseq's TransformerConfig.
        no_encoder_attn: leave out cross-attention.
        build_ffn: makes the network; d -> d, with its activation and inner dropout.
    """

    def __init__(
        self, cfg: Any, build_ffn: Callable[[], nn.Module], no_encoder_attn: bool = False
    ) -> None:
        self._build_ffn = build_ffn
        super().__init__(cfg, no_encoder_attn)
        del self._build_ffn
        self.activation_fn = identity
        self.activation_dropout_module = nn.Identity()

    def build_fc1(self, *sizes: Any) -> nn.Module:
        return self._build_ffn()

    def build_fc2(self, *sizes: Any) -> nn.Module:
        return nn.Identity()


def identity(x: Tensor) -> Tensor:
    return x
