"""Encoder layer: token mixer, feed-forward network, and pooling at the start of a block."""

from collections.abc import Callable
from typing import Any

import torch
from fairseq.modules import LayerNorm
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor, nn

from .activation import activate
from .compression import FeaturePooling, TimePooling
from .feed_forwards.standard import StandardFeedForward
from .masking import Mask
from .residual import add_and_normalise


class EncoderLayer(nn.Module):
    """Mixer and feed-forward network, each with dropout, residual and LayerNorm.

    Without pooling this is the Transformer's layer (TransformerFTC, equations 1 and 2). The first
    layer of a later block pools its input x over time and features, P(x), and passes the un-pooled
    input to the mixer as memory (section 3.2.1)::

        post-norm:  y = LN(P(x) + mixer(P(x), memory=x))
        pre-norm:   y = P(x) + mixer(P(LN(x)), memory=LN(x)),  this LN at the un-pooled size

    Args:
        mixer: a token mixer (see `token_mixers`).
        ffn: a feed-forward network of the pooled dimension (see `feed_forward`).
        embed_dim: d, size of the result.
        time_pooling, feature_pooling: both given in the first layer of a later block, else None.
        memory_dim: size of the input (default d); larger than d if features are pooled.
        dropout: after mixer and feed-forward network.
        normalize_before: pre-norm instead of post-norm.
        export: passed to fairseq's LayerNorm.

    Shape:
        x: T x B x memory_dim; padding_mask: B x T or None; pooled_padding_mask: B x T' or None, the
        mask of the result (the same as `padding_mask` in an ordinary layer); result: T' x B x d.
    """

    def __init__(
        self,
        mixer: nn.Module,
        ffn: nn.Module,
        embed_dim: int,
        time_pooling: TimePooling | None = None,
        feature_pooling: FeaturePooling | None = None,
        memory_dim: int | None = None,
        dropout: float = 0.0,
        normalize_before: bool = False,
        export: bool = False,
    ):
        super().__init__()
        self.starts_later_block = time_pooling is not None
        self.time_pooling = time_pooling
        self.feature_pooling = feature_pooling
        # in fairseq's order, which optimizer states follow
        self.mixer = mixer
        mixer_norm_dim = memory_dim if normalize_before and memory_dim is not None else embed_dim
        self.self_attn_layer_norm = LayerNorm(mixer_norm_dim, export=export)
        self.ffn = ffn
        self.final_layer_norm = LayerNorm(embed_dim, export=export)
        # fairseq's name, which --retain-dropout-modules takes
        self.dropout_module = FairseqDropout(dropout, "TransformerEncoderLayerBase")
        self.normalize_before = normalize_before

    def forward(self, x: Tensor, padding_mask: Mask, pooled_padding_mask: Mask) -> Tensor:
        memory = self.self_attn_layer_norm(x) if self.normalize_before else x
        residual = self._pool(x, padding_mask)
        query = self._pool(memory, padding_mask) if self.normalize_before else residual
        x = self.mixer(query, memory, pooled_padding_mask, padding_mask)
        x = residual + self.dropout_module(x)
        if not self.normalize_before:
            x = self.self_attn_layer_norm(x)

        residual = x
        if self.normalize_before:
            x = self.final_layer_norm(x)
        x = residual + self.dropout_module(self._feed_forward(x, pooled_padding_mask))
        if not self.normalize_before:
            x = self.final_layer_norm(x)
        return x

    def _feed_forward(self, x: Tensor, padding_mask: Mask) -> Tensor:
        if not torch.jit.is_scripting():
            if self.ffn.routes_positions:
                return self.ffn(x, padding_mask)
        return self.ffn(x)

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """Rename the entries of fairseq's encoder layer, so that its checkpoints load."""
        prefix = name + "."
        for key in [key for key in state_dict if key.startswith(prefix)]:
            entry = key[len(prefix) :]
            for theirs, ours in _FAIRSEQ_NAMES:
                if entry.startswith(theirs):
                    state_dict[prefix + ours + entry[len(theirs) :]] = state_dict.pop(key)

    def _pool(self, x: Tensor, padding_mask: Mask) -> Tensor:
        if self.time_pooling is not None and self.feature_pooling is not None:
            x = self.feature_pooling(self.time_pooling(x, padding_mask))
        return x


def run_encoder_layer(
    layer: Any,
    x: Tensor,
    attend: Callable[[Tensor, Tensor], tuple[Tensor, nn.Module | None]],
    pool: Callable[[Tensor], Tensor] = lambda x: x,
) -> Tensor:
    """The forward of a layer in another layout of positions, as `run_decoder_layer` has it.

    Args:
        layer: an `EncoderLayer` or fairseq's, whose feed-forward network does not route positions.
        x: ... x memory_dim.
        attend: replaces the token mixer; takes pooled positions and the memory, and returns the
            result with the projection that is still to follow, or None.
        pool: replaces the pooling at the start of a block.

    Returns:
        ... x d.
    """
    dropout, first, last = layer.dropout_module, layer.self_attn_layer_norm, layer.final_layer_norm

    def feed_forward(x: Tensor) -> tuple[Tensor, Any]:
        if not isinstance(layer, EncoderLayer):
            inner = layer.fc1, layer.activation_fn, layer.activation_dropout_module
            return activate(x, *inner), layer.fc2
        ffn: Any = layer.ffn
        if type(ffn) is StandardFeedForward:
            return activate(x, ffn.fc1, ffn.activation_fn, ffn.dropout_module), ffn.fc2
        return ffn(x), None

    if layer.normalize_before:
        memory = first(x)
        mixed, project = attend(pool(memory), memory)
        x, normalised = add_and_normalise(mixed, pool(x), dropout, last, project)
        inner, project = feed_forward(normalised)
        return x + dropout(inner if project is None else project(inner))
    query = pool(x)
    mixed, project = attend(query, x)
    x = add_and_normalise(mixed, query, dropout, first, project)[1]
    inner, project = feed_forward(x)
    return add_and_normalise(inner, x, dropout, last, project)[1]


# prefixes in fairseq's TransformerEncoderLayer, and of the same weights here
_FAIRSEQ_NAMES = (
    ("self_attn.", "mixer.attention."),
    ("fc1.", "ffn.fc1."),
    ("fc2.", "ffn.fc2."),
    ("layer_norms.0.", "self_attn_layer_norm."),  # old names, which fairseq also maps
    ("layer_norms.1.", "final_layer_norm."),
)
