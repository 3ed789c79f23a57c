"""An encoder as an ONNX graph, with the source keys and values of all decoder layers or a head."""

import math
from collections.abc import Iterator
from typing import Any

import onnx
import torch
from torch import Tensor, nn

from fairseq_plugins.layers.compression import pool_padding_mask, upsample
from fairseq_plugins.layers.encoder_layer import run_encoder_layer
from fairseq_plugins.layers.token_mixers import (
    Fastformer,
    Linformer,
    MultiHeadMixer,
    SoftmaxAttention,
)
from fairseq_plugins.search.onnx_backend.folder import PROBABILITIES

from . import architecture
from .tracing import attend, embedded_positions, stacked, trace, traceable


def build(model: Any) -> onnx.ModelProto:
    """Trace the encoder.

    Inputs: tokens, B x S, padded on the right to a multiple of `length_multiple`.
    Outputs: source_keys_i and source_values_i of decoder layer i, B x h x S x s; of a classifier,
    the probabilities of the classes, B x classes.

    Raises:
        ConfigurationError: torch's exporter fails.
    """
    multiple = length_multiple(model)
    tokens = torch.full((2, 4 * multiple), model.encoder.padding_idx + 1)
    length = multiple * torch.export.Dim("length", min=1) if multiple > 1 else torch.export.Dim("S")
    inputs = {"tokens": (tokens, {0: torch.export.Dim("B"), 1: length})}
    if architecture.classifies(model):
        return trace(_Classifier(model), inputs, [PROBABILITIES])
    layers = range(len(model.decoder.layers))
    names = [f"source_{kind}_{index}" for index in layers for kind in ("keys", "values")]
    return trace(_ForDecoder(model), inputs, names)


def length_multiple(model: Any) -> int:
    """The length of a padded source must be a multiple of this number."""
    found = 1
    for layer, _, pooled in _with_pooling(model):
        mixer = getattr(layer, "mixer", None)
        found = math.lcm(found, pooled * (1 if mixer is None else mixer.length_multiple()))
    return found


def pair_bytes(model: Any) -> int:
    """The bytes that onnxruntime takes for a pair of positions in the largest attention layer."""
    found = 0
    for layer, memory, pooled in _with_pooling(model):
        attention: Any = getattr(layer, "self_attn", getattr(layer, "mixer", None))
        attention = getattr(attention, "attention", attention)
        if not getattr(attention, "is_linear", False):  # float32 scores of all heads, and a mask
            found = max(found, 4 * (getattr(attention, "num_heads", 1) + 1) // (pooled * memory))
    return found


def _with_pooling(model: Any) -> Iterator[tuple[Any, int, int]]:
    """The layers, each with the source positions of a position that it reads and that it writes."""
    pooled = 1
    for layer in model.encoder.layers:
        memory = pooled
        if getattr(layer, "starts_later_block", False):
            pooled *= layer.time_pooling.window
        yield layer, memory, pooled


def _allow_more_positions(linformer: Linformer, more: int) -> None:
    """Allow padding beyond the last position of a source, with weights of 0."""
    for mixtures in (linformer.key_mixtures, linformer.value_mixtures):
        if mixtures is not None:
            mixtures.data = nn.functional.pad(mixtures.data, (0, more))
    linformer.max_positions += more


class _Encoder(nn.Module):
    """`Encoder` in evaluation mode on right-padded sources, with layout B x S x d throughout.

    Shape:
        tokens: B x S; result: B x S x d, and B x S, True at padding.
    """

    def __init__(self, model: Any):
        super().__init__()
        encoder = traceable(model.encoder)
        for module in encoder.modules():  # choose traceable forms
            if isinstance(module, Fastformer):
                module.reassociate = False
            elif isinstance(module, MultiHeadMixer):
                module.counts_positions = False  # sources begin at position 0
            if hasattr(module, "fixed"):
                module.fixed = True
            if isinstance(module, Linformer):
                _allow_more_positions(module, length_multiple(model) - 1)
        if isinstance(encoder.embed_positions, nn.Embedding):
            # the longest source may be padded beyond the last position
            table = encoder.embed_positions.weight
            table.data = nn.functional.pad(table.data, (0, 0, 0, length_multiple(model) - 1))
        self.encoder = encoder
        self.layers = nn.ModuleList(_Layer(layer) for layer in encoder.layers)
        self.time_window = getattr(encoder, "time_window", 1)
        self.windows = (
            getattr(encoder, "upsample_time", 1),
            getattr(encoder, "upsample_features", 1),
        )

    def encode(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        encoder = self.encoder
        all_padding = padding = tokens.eq(encoder.padding_idx)
        x = encoder.embed_scale * encoder.embed_tokens(tokens)
        if encoder.embed_positions is not None:  # values at padding do not matter
            x = x + embedded_positions(encoder.embed_positions, torch.arange(tokens.size(1)))
        if encoder.layernorm_embedding is not None:
            x = encoder.layernorm_embedding(x)
        if encoder.quant_noise is not None:
            x = encoder.quant_noise(x)
        x = x.masked_fill(padding.unsqueeze(-1), 0.0)
        first_block: Tensor | None = None
        for layer in self.layers:
            if layer.starts_later_block:
                first_block = x if first_block is None else first_block
                pooled = pool_padding_mask(padding, self.time_window)
                x = layer(x, padding, pooled)
                padding = pooled
            else:
                x = layer(x, padding, padding)
        if first_block is not None:
            x = x.transpose(0, 1)
            x = upsample(x, *self.windows, first_block.size(1)).transpose(0, 1)
            x = first_block + x
        if encoder.layer_norm is not None:
            x = encoder.layer_norm(x)
        return x, all_padding


class _ForDecoder(_Encoder):
    """An encoder, and the source keys and values of all decoder layers."""

    def __init__(self, model: Any):
        super().__init__(model)
        attentions = [layer.encoder_attn for layer in model.decoder.layers]
        self.to_decoder = stacked([p for a in attentions for p in (a.k_proj, a.v_proj)])
        self.heads = [attention.num_heads for attention in attentions]

    def forward(self, given: dict[str, Tensor]) -> list[Tensor]:
        parts = self.to_decoder(self.encode(given["tokens"])[0]).chunk(2 * len(self.heads), dim=-1)
        return [
            part.unflatten(-1, (heads, -1)).transpose(1, 2)
            for part, heads in zip(parts, [h for h in self.heads for _ in range(2)])
        ]


class _Classifier(_Encoder):
    """An encoder with the only classification head of a model."""

    def __init__(self, model: Any):
        super().__init__(model)
        self.head = next(iter(model.classification_heads.values()))

    def forward(self, given: dict[str, Tensor]) -> Tensor:
        x, padding = self.encode(given["tokens"])
        return torch.softmax(self.head(x.transpose(0, 1), padding), dim=-1)


class _Layer(nn.Module):
    """An encoder layer of this package or of fairseq, on B x T x d."""

    def __init__(self, layer: Any):
        super().__init__()
        self.layer = layer
        self.starts_later_block = bool(getattr(layer, "starts_later_block", False))
        mixer = getattr(layer, "mixer", None)
        attention = getattr(layer, "self_attn", getattr(mixer, "attention", None))
        self.mixer: Any = mixer
        if mixer is None or isinstance(mixer, SoftmaxAttention):
            self.mixer = _Attention(attention, merged=not self.starts_later_block)

    def forward(self, x: Tensor, padding: Tensor, pooled_padding: Tensor) -> Tensor:
        def mix(x: Tensor, memory: Tensor) -> tuple[Tensor, None]:
            return self._mix(x, memory, pooled_padding, padding), None

        def pool(x: Tensor) -> Tensor:
            if not self.starts_later_block:
                return x
            pooled = self.layer.time_pooling(x.transpose(0, 1), padding).transpose(0, 1)
            return self.layer.feature_pooling(pooled)

        return run_encoder_layer(self.layer, x, mix, pool)

    def _mix(self, x: Tensor, memory: Tensor, padding: Tensor, memory_padding: Tensor) -> Tensor:
        if isinstance(self.mixer, _Attention):
            return self.mixer(x, memory, memory_padding)
        x_first = x.transpose(0, 1)
        memory = x_first if memory is x else memory.transpose(0, 1)
        return self.mixer(x_first, memory, padding, memory_padding).transpose(0, 1)


class _Attention(nn.Module):
    """fairseq's attention as onnxruntime's operator MultiHeadAttention.

    Args:
        attention: fairseq's MultiheadAttention.
        merged: whether queries and memory are the same tensor; then one product gives all three.
    """

    def __init__(self, attention: Any, merged: bool):
        super().__init__()
        self.heads = attention.num_heads
        self.query = None if merged else attention.q_proj
        parts = [attention.q_proj] if merged else []
        self.projection = stacked(parts + [attention.k_proj, attention.v_proj])
        self.out = attention.out_proj

    def forward(self, x: Tensor, memory: Tensor, padding: Tensor) -> Tensor:
        if self.query is None:
            query, key, value = self.projection(x).chunk(3, dim=-1)
        else:
            query = self.query(x)
            key, value = self.projection(memory).chunk(2, dim=-1)
        return self.out(attend(self.heads, query, key, value, ~padding))
