"""The forward of fairseq's Transformer, and of this package's, on packed sequences.

Results at real target positions, and all gradients, equal those of the padded batch; only random
numbers of dropout differ. Nothing here waits for the GPU, and no size depends on data.
"""

from typing import Any

import torch
from fairseq.models.transformer import (
    TransformerDecoder,
    TransformerDecoderBase,
    TransformerEncoder,
    TransformerEncoderBase,
)
from fairseq.modules import MultiheadAttention, TransformerEncoderLayer
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch import Tensor

from fairseq_plugins.data.packed_batches import Shape, parts
from fairseq_plugins.layers.decoder_layer import embed_packed, has_standard_layers
from fairseq_plugins.layers.encoder_layer import EncoderLayer
from fairseq_plugins.layers.packed import Layout
from fairseq_plugins.layers.projections import is_linear, store_together

from .decoder import Decoder, decode_packed
from .encoder import Encoder, encode_packed

ENCODERS = (TransformerEncoder, TransformerEncoderBase, Encoder)
DECODERS = (TransformerDecoder, TransformerDecoderBase, Decoder)
ENCODER_LAYERS = (TransformerEncoderLayer, TransformerEncoderLayerBase, EncoderLayer)


class PackedModel:
    """A model for one packed batch. Criterions call it like a model.

    Args:
        model: an encoder-decoder for which `find_obstacle` finds nothing.
        numbers: `data.packed_batches.PackedBatch.numbers` on the model's device.
        shape: the shape of the batch.
    """

    def __init__(self, model: Any, numbers: Tensor, shape: Shape):
        self.module, self.shape = model, shape
        self.parts: dict[str, Any] = parts(numbers, shape)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.module, name)

    def sample(self, sentences: int, tokens: int) -> dict[str, Any]:
        """The batch as fairseq's criterions take it: all rows as one padded sentence."""
        source, previous, target = (
            self.parts[name].unsqueeze(0) for name in ("source", "previous", "target")
        )
        words = {"src_tokens": source, "src_lengths": None, "prev_output_tokens": previous}
        return {
            "net_input": words,
            "target": target,
            "ntokens": tokens,
            "nsentences": sentences,
        }

    def __call__(
        self,
        src_tokens: Tensor,
        src_lengths: None,
        prev_output_tokens: Tensor,
        features_only: bool = False,
    ) -> tuple[Tensor, dict[str, Any]]:
        """The forward of fairseq's model.

        Args:
            src_tokens, prev_output_tokens: those of `sample`, P x N and P x M: P times the batch.
            features_only: skip the projection to the vocabulary.

        Returns:
            P x M x C or P x M x V, finite at padding, and a dictionary with "attn", "sentences"
            (the sentence of each target row) and what copying adds.
        """
        encoder, decoder = self.module.encoder, self.module.decoder
        passes, shape = src_tokens.size(0), self.shape
        source = [
            Layout(starts, rows, shape.longest).repeat(passes)
            for starts, rows in zip(self.parts["source_starts"], shape.source)
        ]
        target = Layout(self.parts["target_starts"], shape.target, shape.longest_target)
        target = target.repeat(passes)
        words, previous = src_tokens.flatten(), prev_output_tokens.flatten()
        tables = encoder.embed_tokens, decoder.embed_tokens
        if tables[0] is tables[1]:  # looked up together, as the gradient sorts the tokens
            both = tables[0](torch.cat([words, previous]))
            found = both.split([len(words), len(previous)])
        else:
            found = tables[0](words), tables[1](previous)
        memory = encode_packed(encoder, embed_packed(encoder, words, found[0], source[0]), source)
        x, extra = decode_packed(decoder, previous, found[1], target, words, memory, source[0])
        extra["sentences"] = [target.sentence]
        x = x.view(passes, shape.target, -1)
        return x if features_only else decoder.output_layer(x), extra


def store_projections_together(model: Any) -> None:
    """Let attention multiply by several projections at once without concatenating them."""
    for module in model.modules():
        if isinstance(module, MultiheadAttention):
            projections = [module.q_proj, module.k_proj, module.v_proj]
            if all(map(is_linear, projections)):
                query, *memory = (layer.in_features for layer in projections)
                store_together(projections if query in memory else projections[1:])
    # those of all layers, as `keys_and_values` multiplies by them
    across = [layer.encoder_attn for layer in model.decoder.layers]
    projections = [p for attention in across for p in (attention.k_proj, attention.v_proj)]
    if all(map(is_linear, projections)):
        store_together(projections)


def find_obstacle(model: Any) -> str:
    """Why a model's forward cannot take packed sequences, in a few words; empty if it can.

    Args:
        model: without wrappers for parallel training.
    """
    encoder: Any = getattr(model, "encoder", None)
    decoder: Any = getattr(model, "decoder", None)
    if type(encoder) not in ENCODERS or type(decoder) not in DECODERS:
        return f"{type(model).__name__} has a custom encoder or decoder"
    if any(type(layer) not in ENCODER_LAYERS for layer in encoder.layers.children()):
        return "the encoder has wrapped or custom layers"
    if not has_standard_layers(decoder):
        return "the decoder has wrapped or custom layers"
    layers = [*encoder.layers.children(), *decoder.layers.children()]
    cfg = decoder.cfg
    for found, reason in (
        (cfg.encoder.layerdrop > 0 or cfg.decoder.layerdrop > 0, "LayerDrop"),
        (cfg.quant_noise.pq > 0 or cfg.quant_noise.scalar > 0, "quantisation noise"),
        (
            any(hasattr(layer, "precheckpoint_forward") for layer in layers),
            "--checkpoint-activations",
        ),
        (decoder.adaptive_softmax is not None, "--adaptive-softmax-cutoff"),
        (cfg.no_cross_attention, "--no-cross-attention"),
        (
            any(getattr(m, "routes_positions", False) for m in model.modules()),
            "--encoder-ffn or --decoder-ffn switch",
        ),
        (bool(getattr(cfg.encoder, "xformers_att_config", None)), "--encoder-xformers-att-config"),
    ):
        if found:
            return reason
    for layer in layers:
        mixer = getattr(layer, "mixer", None)
        if mixer is not None and not mixer.takes_packed:
            return f"--encoder-token-mixer with {type(mixer).__name__}"
    if any(m._forward_hooks or m._forward_pre_hooks or m._backward_hooks for m in model.modules()):
        return "hooks on its modules"
    return ""
