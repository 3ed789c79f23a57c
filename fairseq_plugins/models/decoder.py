"""The decoder: fairseq's, with other networks and copying, and its layers on packed sequences."""

import functools
import logging
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.models.transformer import TransformerDecoderBase
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from torch import Tensor, nn

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.layers.copying import CopyAttention, find_before, find_word_positions
from fairseq_plugins.layers.decoder_layer import (
    DecoderLayer,
    embed_packed,
    has_standard_layers,
    run_decoder_layer,
)
from fairseq_plugins.layers.feed_forwards import FEED_FORWARDS
from fairseq_plugins.layers.packed import (
    Layout,
    keys_and_values,
    layout_of,
    packed_attention,
    put_rows,
    take_rows,
)

from .encoder import wrap_layer
from .plan import ModelPlan

logger = logging.getLogger(__name__)


class Decoder(TransformerDecoderBase):
    """fairseq's decoder with the plan's feed-forward network in each layer.

    With `plan.fast_training`, left-to-right training computes real target positions only (see
    `decode_packed`). Features and "attn" are then zero at padding, and "inner_states" is empty. In
    all other cases, fairseq's own forward runs.

    With `plan.copying`, "attn" is the attention that copies, whatever layer and heads the caller
    names, and the returned dictionary has the entries of `CopyAttention`, which
    `get_normalized_probs` reads.

    Args:
        cfg: fairseq's TransformerConfig.
        dictionary, embed_tokens: of the target; embed_tokens is V x d.
        plan: the checked sizes and choices.

    Raises:
        ConfigurationError: layers are wrapped for sharding, which a routing network cannot use.
    """

    def __init__(self, cfg: Any, dictionary: Any, embed_tokens: nn.Embedding, plan: ModelPlan):
        self.plan = plan  # fairseq's constructor calls build_decoder_layer
        self.vocabulary = len(dictionary)
        self.end = dictionary.eos()
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn=cfg.no_cross_attention)
        self.dropout_module.module_name = "TransformerDecoder"
        self.copying = None if plan.copying is None else CopyAttention(plan.copying)
        self.packs = plan.fast_training and has_standard_layers(self)
        self.packed_output = False  # see `extract_packed_features`
        if plan.decoder_ffn.part.routes_positions and not self.packs:
            raise ConfigurationError(
                f"--decoder-ffn {plan.decoder_ffn.name} would route padding in layers that are "
                "wrapped for sharding: use another --ddp-backend than fully_sharded, or another "
                "network there"
            )
        if plan.fast_training and not self.packs:
            logger.warning(
                "the decoder's layers are wrapped for sharding: training also computes padding, as "
                "with --training-path plain"
            )

    def build_decoder_layer(self, cfg: Any, no_encoder_attn: bool = False) -> nn.Module:
        ffn = self.plan.decoder_ffn
        if ffn.name == FEED_FORWARDS.default:
            return super().build_decoder_layer(cfg, no_encoder_attn)
        build_ffn = functools.partial(ffn.build, self.plan.decoder_ffn_spec)
        return wrap_layer(DecoderLayer(cfg, build_ffn, no_encoder_attn), cfg)

    def extract_features(
        self,
        prev_output_tokens: Tensor,
        encoder_out: dict[str, list[Tensor]] | None,
        incremental_state: dict[str, dict[str, Tensor | None]] | None = None,
        full_context_alignment: bool = False,
        alignment_layer: int | None = None,
        alignment_heads: int | None = None,
    ) -> tuple[Tensor, dict[str, list[Tensor | None]]]:
        """As in fairseq: features, B x T x C, and a dictionary with "attn" and "inner_states"."""
        if self.copying is not None:
            alignment_layer, alignment_heads = None, None  # the last layer, all heads
        packs = False
        if not torch.jit.is_scripting():
            plain = incremental_state is not None or full_context_alignment
            plain = plain or alignment_layer is not None
            packs = self.packs and self.training and not plain
        if packs:
            return self.extract_packed_features(prev_output_tokens, encoder_out)
        x, extra = self.extract_features_scriptable(
            prev_output_tokens,
            encoder_out,
            incremental_state,
            full_context_alignment,
            alignment_layer,
            alignment_heads,
        )
        if self.copying is not None:
            attention, inputs = extra["attn"][0], extra["inner_states"][0]
            assert encoder_out is not None and attention is not None and inputs is not None
            words = encoder_out["src_tokens"][0]
            positions = find_word_positions(words, self.vocabulary).unsqueeze(1)
            before = find_before(words, self.padding_idx, self.end).unsqueeze(1)
            previous = prev_output_tokens[:, -x.size(1) :]
            inputs = inputs.transpose(0, 1)
            extra.update(self.copying(x, inputs, attention, words, positions, before, previous))
            if not torch.jit.is_scripting():
                if self.training and attention.dtype == torch.float16:
                    # fairseq's own layers round the attention, and thus its gradient, to float16
                    raise ConfigurationError(
                        "--copy-attention: in float16, gradients overflow on --training-path "
                        "plain: train with --bf16 or in float32, or with --training-path fast, "
                        "whose error message names what needs plain"
                    )
        return x, extra

    def get_normalized_probs(
        self,
        net_output: tuple[Tensor, dict[str, list[Tensor | None]] | None],
        log_probs: bool,
        sample: dict[str, Tensor] | None = None,
    ) -> Tensor:
        """(Log-)probabilities, B x T x V; with copying, of the mixture (see `CopyAttention`)."""
        if self.copying is None:
            return self.get_normalized_probs_scriptable(net_output, log_probs, sample)
        extra = net_output[1]
        assert extra is not None
        return self.copying.mix(net_output[0], extra, log_probs)

    @torch.jit.unused
    def extract_packed_features(
        self, prev_output_tokens: Tensor, encoder_out: dict[str, list[Tensor]] | None
    ) -> tuple[Tensor, dict[str, list[Tensor | None]]]:
        """`extract_features` for the N real target positions only.

        With `packed_output`, which a criterion sets, all results have one row per real position:
        N x C features, attention and log-odds. "positions" has their indices in the flattened B x T
        tokens. "attn" is then None unless the model copies, and begins at the first word of the
        source, as the log-odds always do.
        """
        source: Layout | None = None
        memory = words = None
        if encoder_out is not None and len(encoder_out["encoder_out"]) > 0:
            real = ~encoder_out["encoder_padding_mask"][0]
            source, source_index = layout_of(real)
            padded = encoder_out["encoder_out"][0].transpose(0, 1)
            memory = take_rows(padded.flatten(0, 1), source_index)
            words = encoder_out["src_tokens"][0].flatten()[source_index]
        target, index = layout_of(prev_output_tokens.ne(self.padding_idx))
        previous = prev_output_tokens.flatten()[index]
        found = self.embed_tokens(previous)
        # criterions that do not take packed output may read the weights: guided alignment does
        need_weights = not self.packed_output
        x, extra = decode_packed(self, previous, found, target, words, memory, source, need_weights)
        if self.packed_output:
            return x, {**extra, "positions": [index]}

        def unpack(rows: Tensor) -> Tensor:  # N x ... -> B x T x ...
            shape = prev_output_tokens.shape
            return put_rows(rows, index, shape.numel()).unflatten(0, shape)

        attention = extra["attn"][0]
        if attention is not None:  # its columns as in the batch, which may begin with padding
            column = (real.cumsum(dim=1) - 1).clamp(min=0)[target.sentence]
            extra["attn"] = [attention.gather(1, column) * real[target.sentence]]
        for name in {"attn", "copy_log_generate", "copy_log_odds"} & extra.keys():
            extra[name] = [None if rows is None else unpack(rows) for rows in extra[name]]
        return unpack(x), {**extra, "inner_states": []}


def decode_packed(
    decoder: Any,
    previous: Tensor,
    found: Tensor,
    at: Layout,
    words: Tensor | None,
    memory: Tensor | None,
    source: Layout | None,
    need_weights: bool = False,
) -> tuple[Tensor, dict[str, list[Tensor | None]]]:
    """The forward of a decoder that `has_standard_layers` on packed sequences, without projection.

    Only real target positions are computed. If fairseq's `checkpoint_wrapper` wraps a layer,
    backward recomputes its activations.

    Args:
        decoder: fairseq's decoder, or one with other layers or networks.
        previous, found: N and N x d, the input token of each target position, and its embedding;
            at: their layout.
        words, memory: N' and N' x C, the tokens and the output of the encoder, and `source`, their
            layout; or None for all three.
        need_weights: also return the attention of the last layer to the source, as copying does.

    Returns:
        the features, N x C, and a dictionary of what copying adds, and "attn", the mean over heads
        of the attention, N x width in the padded source, zero at padding; or None.
    """
    x = embedded = embed_packed(decoder, previous, found, at)
    copying = getattr(decoder, "copying", None)
    need_weights = need_weights or copying is not None
    weights: Tensor | None = None
    layers: list[Any] = list(decoder.layers)  # once: LayerDrop draws them
    memories: list[Any] = [memory] * len(layers)
    recomputes = any(hasattr(layer, "precheckpoint_forward") for layer in layers)
    attentions = [layer.encoder_attn for layer in layers]
    if memory is not None and not recomputes and None not in attentions:
        memories = keys_and_values(attentions, memory)
    for number, (layer, memory) in enumerate(zip(layers, memories)):
        need = need_weights and number == len(decoder.layers) - 1

        def run(
            x: Tensor, memory: Any, layer: Any = layer, need: bool = need
        ) -> tuple[Tensor, Tensor | None]:
            def attend_target(x: Tensor) -> tuple[Tensor, Tensor | None]:
                return packed_attention(layer.self_attn, x, at, x, at, causal=True)

            attend_source = None
            if layer.encoder_attn is not None and memory is not None and source is not None:
                attend_source = functools.partial(
                    packed_attention,
                    layer.encoder_attn,
                    at=at,
                    memory=memory,
                    memory_at=source,
                    need_weights=need,
                )
            return run_decoder_layer(layer, x, attend_target, attend_source)

        if hasattr(layer, "precheckpoint_forward"):
            x, weights = checkpoint_wrapper(SimpleNamespace(forward=run)).forward(x, memory)
        else:
            x, weights = run(x, memory)
    if decoder.layer_norm is not None:
        x = decoder.layer_norm(x)
    if decoder.project_out_dim is not None:
        x = decoder.project_out_dim(x)
    extra: dict[str, list[Tensor | None]] = {"attn": [weights]}
    if copying is not None:
        assert words is not None and source is not None and weights is not None
        # padding is 0 there
        padded = source.to_padded((words - decoder.padding_idx).unsqueeze(1)).squeeze(2)
        padded = padded + decoder.padding_idx
        positions = find_word_positions(padded, decoder.vocabulary)[at.sentence]
        before: Tensor | None = None
        if copying.next is not None:
            before = find_before(padded, decoder.padding_idx, decoder.end)[at.sentence]
        extra.update(copying(x, embedded, weights, padded, positions, before, previous))
    return x, extra
