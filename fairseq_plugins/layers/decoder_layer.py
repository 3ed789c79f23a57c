"""fairseq's decoder layer with another feed-forward network, or with another attention function.

fairseq's forward takes padded batches, with one hypothesis per row. Training on packed sequences
(`models/decoder.py`) and beam search (`search/`) use other layouts. They pass their
own attention functions to `run_decoder_layer`, which computes the rest of the layer.
"""

from collections.abc import Callable
from typing import Any

from fairseq.models.transformer import TransformerDecoderBase
from fairseq.modules import TransformerDecoderLayer
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from torch import Tensor, nn
from torch.nn import functional as F

from .activation import activate
from .packed import Layout
from .residual import add_and_normalise

# options of fairseq's decoder layers that `run_decoder_layer` does not support
EXTENSIONS = (
    "base_layers",
    "cross_self_attention",
    "decoder_xformers_att_config",
    "scale_attn",
    "scale_fc",
    "scale_heads",
    "scale_resids",
)


class DecoderLayer(TransformerDecoderLayerBase):
    """The Transformer's decoder layer with another feed-forward network, `ffn`.

    fairseq computes ``fc2(dropout(activation_fn(fc1(x))))`` between cross-attention and the last
    residual. Here `activation_fn` is the network, and fc1, fc2 and the dropout are identities.
    Attention, caching and normalisation remain fairseq's.

    Args:
        cfg: fairseq's TransformerConfig.
        build_ffn: builds the network, ... x d -> ... x d, with its activation and inner dropout.
        no_encoder_attn: omit cross-attention.
    """

    def __init__(
        self, cfg: Any, build_ffn: Callable[[], nn.Module], no_encoder_attn: bool = False
    ) -> None:
        super().__init__(cfg, no_encoder_attn)
        # fairseq's name, which --retain-dropout-modules takes
        self.dropout_module.module_name = "TransformerDecoderLayerBase"
        del self.activation_fn  # fairseq's attribute would hide the method below
        self.activation_dropout_module = nn.Identity()
        self.ffn = build_ffn()
        # after `ffn` as in fairseq's layers, because optimizer states follow the parameter order
        self._modules["final_layer_norm"] = self._modules.pop("final_layer_norm")

    def build_fc1(self, *sizes: Any) -> nn.Module:
        return nn.Identity()

    def build_fc2(self, *sizes: Any) -> nn.Module:
        return nn.Identity()

    def activation_fn(self, x: Tensor) -> Tensor:
        return self.ffn(x)


def find_extensions(cfg: Any) -> list[str]:
    """The options set in fairseq's configuration that `run_decoder_layer` does not support."""
    return [name for name in EXTENSIONS if getattr(cfg, name, None)]


def has_standard_layers(decoder: TransformerDecoderBase) -> bool:
    """Whether `run_decoder_layer` computes the same as the layers of this decoder.

    Types are compared exactly: a subclass may compute something else, and a layer wrapped for
    sharding keeps its parameters elsewhere.
    """
    types = (TransformerDecoderLayerBase, TransformerDecoderLayer, DecoderLayer)
    return not find_extensions(decoder.cfg) and all(
        type(layer) in types for layer in decoder.layers
    )


def run_decoder_layer(
    layer: Any,
    x: Tensor,
    attend_target: Callable[[Tensor], tuple[Tensor, Tensor | None]],
    attend_source: Callable[[Tensor], tuple[Tensor, Tensor | None]] | None,
) -> tuple[Tensor, Tensor | None]:
    """The forward of a decoder layer with other attention functions.

    Args:
        layer: of a decoder that `has_standard_layers`.
        x: ... x d, positions in any layout that both attention functions accept.
        attend_target, attend_source: replace self- and cross-attention. Each takes ... x d and
            returns the same shape before the output projection, and its weights or None.
            `attend_source` is None in a model without cross-attention.

    Returns:
        ... x d, and the weights that `attend_source` returned, or None.
    """
    weights: Tensor | None = None

    def feed_forward(x: Tensor) -> tuple[Tensor, None]:
        inner = layer.fc1, layer.activation_fn, layer.activation_dropout_module
        return activate(x, *inner), None

    project = layer.self_attn.out_proj
    x, _ = _sublayer(layer, layer.self_attn_layer_norm, x, attend_target, project)
    if attend_source is not None:
        project = layer.encoder_attn.out_proj
        x, weights = _sublayer(layer, layer.encoder_attn_layer_norm, x, attend_source, project)
    x, _ = _sublayer(layer, layer.final_layer_norm, x, feed_forward, layer.fc2)
    return x, weights


def _sublayer(
    layer: Any,
    norm: nn.Module,
    x: Tensor,
    compute: Callable[[Tensor], tuple[Tensor, Tensor | None]],
    project: nn.Module,
) -> tuple[Tensor, Tensor | None]:
    out, weights = compute(norm(x) if layer.normalize_before else x)
    if layer.normalize_before:
        return x + layer.dropout_module(project(out)), weights
    return add_and_normalise(out, x, layer.dropout_module, norm, project)[1], weights


def embed(side: Any, words: Tensor, positions: Tensor | None) -> Tensor:
    """The input of the first layer of fairseq's encoder or decoder, for tokens in any layout.

    Args:
        side: the encoder or decoder.
        words: the embedded tokens, ... x d.
        positions: the embedded positions, ... x d, or None if it has none.
    """
    x = side.embed_scale * words
    if side.quant_noise is not None:
        x = side.quant_noise(x)
    if positions is not None:
        x = x + positions
    if side.layernorm_embedding is not None:
        x = side.layernorm_embedding(x)
    return side.dropout_module(x)


def embed_packed(side: Any, tokens: Tensor, found: Tensor, at: Layout) -> Tensor:
    """`embed` of packed tokens, N x d, with zeros at padding; `found` are their embeddings."""
    padding, table, positions = tokens.eq(side.padding_idx), side.embed_positions, None
    if table is not None:
        numbers = (at.offset + 1).masked_fill(padding, 0) + side.padding_idx
        if hasattr(table, "weights"):  # sinusoidal
            positions = table.weights.index_select(0, numbers)
        else:
            positions = F.embedding(numbers, table.weight, side.padding_idx)
    return embed(side, found, positions).masked_fill(padding.unsqueeze(1), 0.0)
