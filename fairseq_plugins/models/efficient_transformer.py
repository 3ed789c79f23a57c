"""fairseq's Transformer with a choice of token mixers, feed-forward networks and compression."""

import functools
import logging
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import torch
from fairseq.checkpoint_utils import prune_state_dict
from fairseq.distributed import fsdp_wrap
from fairseq.models import register_model
from fairseq.models.transformer import (
    TransformerDecoderBase,
    TransformerEncoderBase,
    TransformerModel,
    TransformerModelBase,
    base_architecture,
)
from fairseq.models.transformer.transformer_config import (
    DEFAULT_MAX_SOURCE_POSITIONS,
    DEFAULT_MAX_TARGET_POSITIONS,
)
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from omegaconf import OmegaConf, open_dict
from torch import Tensor, nn

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.modules.compression import (
    FeaturePooling,
    TimePooling,
    align_to_start,
    pool_padding_mask,
    restore_alignment,
    upsample,
)
from fairseq_plugins.modules.copy_attention import CopyAttention, find_before, find_places
from fairseq_plugins.modules.decoder_layer import DecoderLayer, has_standard_layers
from fairseq_plugins.modules.dropout import use_fast_dropout
from fairseq_plugins.modules.encoder_layer import EncoderLayer
from fairseq_plugins.modules.feed_forward import FEED_FORWARDS
from fairseq_plugins.modules.layer_drop import BlockLayerDropModuleList
from fairseq_plugins.modules.packed_decoder import Memory, decode_rows, embed_rows
from fairseq_plugins.modules.rows import Layout, layout_of, put_rows, take_rows

from .checks import check_dictionaries
from .options import (
    add_options,
    completing,
    fill_defaults,
    fill_layers_to_keep,
    option_names,
    parse_blocks,
    set_default,
    to_config,
    to_namespace,
)
from .plan import ModelPlan, plan_model, store_completed
from .word_vectors import load_word_vectors

logger = logging.getLogger(__name__)

MODEL_NAME = "efficient_transformer"


@register_model(MODEL_NAME)
class EfficientTransformerModel(TransformerModel):
    """An encoder-decoder Transformer assembled from independent choices.

    - `--encoder-blocks`, `--time-window` and `--feature-window` compress the encoder
      (TransformerFTC).
    - `--encoder-token-mixer` chooses its attention (such as Fastformer's).
    - `--encoder-ffn` and `--decoder-ffn` choose the feed-forward networks (such as MSCFFN).

    With the Transformer's own choices, results equal those of fairseq's `transformer` bit for bit,
    and its checkpoints load.

    `architectures.py` has the named architectures, `options.py` the options.
    """

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        TransformerModel.add_args(parser)
        add_options(parser)

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "EfficientTransformerModel":
        """Check the options, then build the model.

        Args:
            args: a Namespace (command line) or a DictConfig (YAML), with the architecture applied.
                Completed in place, so that a checkpoint holds the options of the model.
            task: has the dictionaries and the maximum lengths.

        Raises:
            ConfigurationError: an option is unknown or cannot work.
        """
        with completing(args, cls):
            fill_defaults(args)
            for name, default in (
                ("max_source_positions", DEFAULT_MAX_SOURCE_POSITIONS),
                ("max_target_positions", DEFAULT_MAX_TARGET_POSITIONS),
            ):
                # task and model share these on a command line; a YAML file sets only those of the
                # task
                set_default(args, name, getattr(getattr(task, "cfg", None), name, default))
            plan = plan_model(args)
            check_dictionaries(to_config(args), task.source_dictionary, task.target_dictionary)
            store_completed(plan, args)
            fill_layers_to_keep(args)
        # of a pruned model, fairseq replaces the depths in its options
        options = to_namespace(args)
        options.plan = plan  # for `build_encoder` and `build_decoder`
        model = super().build_model(options, task)
        # checkpoints contain the word vectors: loading must not need the files
        args.encoder_embed_path = args.decoder_embed_path = None
        if plan.fast_training:
            use_fast_dropout(model)
        return model

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        super().upgrade_state_dict_named(state_dict, name)
        if self.decoder.adaptive_softmax is not None:
            # fairseq adds this entry for a tied embedding, even without a projection
            state_dict.pop("decoder.output_projection.weight", None)

    def load_state_dict(
        self,
        state_dict: dict[str, Tensor],
        strict: bool = True,
        model_cfg: Any = None,
        args: Namespace | None = None,
    ) -> Any:
        """Load parameters as fairseq does, and tell `model_cfg` the depth of a pruned model.

        A training may begin with some of the layers of a model. fairseq's checkpoints of it have
        the depth of that model and cannot be loaded, and a rerun prunes them again.
        """
        sides = ("encoder", "decoder")
        if not any(getattr(model_cfg, f"{side}_layers_to_keep", None) for side in sides):
            return super().load_state_dict(state_dict, strict, model_cfg, args)
        depths = [_count_layers(self.state_dict(), side) for side in sides]
        if depths != [_count_layers(state_dict, side) for side in sides]:
            # first, because old names are upgraded only for the layers of this model
            state_dict = prune_state_dict(state_dict, model_cfg)
        found = super().load_state_dict(state_dict, strict)
        with open_dict(model_cfg) if OmegaConf.is_config(model_cfg) else nullcontext():
            for side, depth in zip(sides, depths):
                setattr(model_cfg, f"{side}_layers_to_keep", None)
                setattr(model_cfg, f"{side}_layers", depth)
            if len(parse_blocks(model_cfg.encoder_blocks)) == 1:
                model_cfg.encoder_blocks = str(depths[0])
        return found

    @classmethod
    def option_names(cls) -> set[str]:
        """The names of all options that build a model."""
        implied = Namespace()
        base_architecture(implied)
        return option_names(cls) | set(vars(implied))

    @classmethod
    def build_embedding(
        cls, cfg: Any, dictionary: Any, embed_dim: int, path: str | None = None
    ) -> nn.Embedding:
        embedding = super().build_embedding(cfg, dictionary, embed_dim)
        if path:
            of_encoder = (path, embed_dim) == (cfg.encoder.embed_path, cfg.encoder.embed_dim)
            side = "encoder" if of_encoder else "decoder"
            load_word_vectors(path, dictionary, embedding, f"--{side}-embed-path")
        return embedding

    @classmethod
    def build_encoder(cls, cfg: Any, src_dict: Any, embed_tokens: nn.Embedding) -> "Encoder":
        return Encoder(cfg, src_dict, embed_tokens, cfg.plan)

    @classmethod
    def build_decoder(
        cls, cfg: Any, tgt_dict: Any, embed_tokens: nn.Embedding
    ) -> TransformerDecoderBase:
        plan = cfg.plan
        is_fairseqs = plan.decoder_ffn.name == FEED_FORWARDS.default and plan.copying is None
        if is_fairseqs and not plan.fast_training:
            return TransformerModelBase.build_decoder(cfg, tgt_dict, embed_tokens)
        return Decoder(cfg, tgt_dict, embed_tokens, plan)


def _count_layers(names: Iterable[str], side: str) -> int:
    """The number of layers of the encoder or the decoder in the names of parameters."""
    found = (re.match(rf"{side}\.layers\.(\d+)\.", name) for name in names)
    return len({match.group(1) for match in found if match})


class Encoder(TransformerEncoderBase):
    """Blocks of encoder layers; each later block works on a pooled sequence.

    With several blocks, ``out = upsample(last block) + first block`` (TransformerFTC, section
    3.2.1). With one block, the output is that of the last layer. With pre-norm, the final LayerNorm
    follows the sum. Embedding, positions and the format of the result are fairseq's.

    Args:
        cfg: fairseq's TransformerConfig.
        dictionary, embed_tokens: of the source; embed_tokens is V x d.
        plan: the checked sizes and choices.
    """

    def __init__(self, cfg: Any, dictionary: Any, embed_tokens: nn.Embedding, plan: ModelPlan):
        super().__init__(cfg, dictionary, embed_tokens)
        # fairseq's name, which --retain-dropout-modules takes
        self.dropout_module.module_name = "TransformerEncoder"
        layers = build_encoder_layers(cfg, plan)
        self.layers = nn.ModuleList(layers)
        if self.encoder_layerdrop > 0:
            self.layers = BlockLayerDropModuleList(self.encoder_layerdrop, layers)
        self.time_window = plan.time_window
        self.upsample_time = plan.time_window**plan.later_blocks
        self.upsample_features = plan.feature_window**plan.later_blocks

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> Any:
        """As fairseq's, but refuse different entries of layers that share a token mixer.

        Loading would keep only those of the last layer.
        """
        super().upgrade_state_dict_named(state_dict, name)
        first_of: dict[int, int] = {}
        # all layers; LayerDrop iterates over some
        layers: list[Any] = list(self.layers.children())
        for number, layer in enumerate(layers):
            first = first_of.setdefault(id(layer.mixer), number)
            for entry in layer.mixer.state_dict():
                own, other = (
                    state_dict.get(f"{name}.layers.{n}.mixer.{entry}") for n in (number, first)
                )
                if own is not None and other is not None and not torch.equal(own, other):
                    raise ConfigurationError(
                        f"encoder layers {first} and {number} share a token mixer here, but differ "
                        "in the checkpoint: give the --fastformer-sharing of its training"
                    )
        return state_dict

    def build_encoder_layer(self, cfg: Any) -> nn.Module:
        """A placeholder: fairseq builds layers one by one, and these may share parts.

        `__init__` replaces it by a layer of `build_encoder_layers`.
        """
        return nn.Identity()

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        return_all_hiddens: bool = False,
        token_embeddings: Tensor | None = None,
    ) -> dict[str, list[Tensor]]:
        """The forward of fairseq's encoder, with blocks.

        "encoder_states" holds each layer's output at that layer's size. A sentence of padding only
        (in dummy batches) is not masked: attention reads its zero embeddings, and the output stays
        finite.

        Args:
            src_tokens: B x T, padded on either side.
            src_lengths: not used.
            return_all_hiddens: also return "encoder_states".
            token_embeddings: B x T x d, instead of those of `src_tokens`.

        Returns:
            the entries of fairseq's encoder; "encoder_out" holds T x B x d.
        """
        encoder_padding_mask = src_tokens.eq(self.padding_idx)
        x, encoder_embedding = self.forward_embedding(src_tokens, token_embeddings)

        padding_mask: Tensor | None = None
        if bool(encoder_padding_mask.any()):
            x = x.masked_fill(encoder_padding_mask.unsqueeze(-1), 0.0)
            empty = encoder_padding_mask.all(dim=1, keepdim=True)
            encoder_padding_mask = encoder_padding_mask & ~empty
            padding_mask = encoder_padding_mask

        # B x T x C -> T x B x C
        x = x.transpose(0, 1)
        rank: Tensor | None = None
        if padding_mask is not None and self.upsample_time > 1:
            x, padding_mask, rank = align_to_start(x, padding_mask)

        encoder_states: list[Tensor] = []
        if return_all_hiddens:
            encoder_states.append(x)
        first_block: Tensor | None = None
        for layer in self.layers:
            if layer.starts_later_block:
                if first_block is None:
                    first_block = x
                pooled_mask = padding_mask
                if padding_mask is not None:
                    pooled_mask = pool_padding_mask(padding_mask, self.time_window)
                x = layer(x, padding_mask, pooled_mask)
                padding_mask = pooled_mask
            else:
                x = layer(x, padding_mask, padding_mask)
            if return_all_hiddens:
                encoder_states.append(x)

        if first_block is not None:
            x = first_block + upsample(
                x, self.upsample_time, self.upsample_features, first_block.size(0)
            )
        if rank is not None:
            x = restore_alignment(x, rank)
        if self.layer_norm is not None:
            x = self.layer_norm(x)

        lengths = src_tokens.ne(self.padding_idx).sum(dim=1, dtype=torch.int32)
        return {
            "encoder_out": [x],  # T x B x C
            "encoder_padding_mask": [encoder_padding_mask],  # B x T
            "encoder_embedding": [encoder_embedding],  # B x T x C
            "encoder_states": encoder_states,  # List[T x B x C]
            "src_tokens": [src_tokens],  # B x T
            "src_lengths": [lengths.reshape(-1, 1).contiguous()],  # B x 1
        }


def build_encoder_layers(cfg: Any, plan: ModelPlan) -> list[nn.Module]:
    """Build all encoder layers. Layers of equal sizes share one mixer if its options say so."""
    shared: dict[tuple[int, int], nn.Module] = {}
    layers = []
    for layer in plan.layers:
        size = (layer.mixer.embed_dim, layer.mixer.memory_dim)
        mixer = shared.get(size)
        if mixer is None:
            mixer = plan.mixer.build(layer.mixer)
        if plan.mixer.part.shares_layers(plan.mixer.options):
            shared[size] = mixer
        time_pooling: TimePooling | None = None
        feature_pooling: FeaturePooling | None = None
        if layer.starts_later_block:
            time_pooling = TimePooling(plan.time_window, plan.time_pooling)
            feature_pooling = FeaturePooling(
                layer.mixer.memory_dim, plan.feature_window, plan.feature_pooling
            )
        built = EncoderLayer(
            mixer,
            plan.encoder_ffn.build(layer.ffn),
            layer.mixer.embed_dim,
            time_pooling,
            feature_pooling,
            layer.mixer.memory_dim,
            dropout=cfg.dropout,
            normalize_before=cfg.encoder.normalize_before,
            export=cfg.export,
        )
        layers.append(wrap_layer(built, cfg))
    return layers


class Decoder(TransformerDecoderBase):
    """fairseq's decoder with the plan's feed-forward network in each layer.

    With `plan.fast_training`, left-to-right training computes real target positions only (see
    `packed_decoder`). Features and "attn" are then zero at padding, and "inner_states" is empty. In
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
            places = find_places(words, self.vocabulary).unsqueeze(1)
            before = find_before(words, self.padding_idx, self.end).unsqueeze(1)
            previous = prev_output_tokens[:, -x.size(1) :]
            inputs = inputs.transpose(0, 1)
            extra.update(self.copying(x, inputs, attention, words, places, before, previous))
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
        memory: Memory | None = None
        if encoder_out is not None and len(encoder_out["encoder_out"]) > 0:
            x = encoder_out["encoder_out"][0].transpose(0, 1)
            real = ~encoder_out["encoder_padding_mask"][0]
            source, source_index = layout_of(real)
            memory = Memory(take_rows(x.flatten(0, 1), source_index), source)
        target, index = layout_of(prev_output_tokens.ne(self.padding_idx))
        previous = prev_output_tokens.flatten()[index]

        def positions() -> Tensor:
            embedded = self.embed_positions(prev_output_tokens)
            return take_rows(embedded.expand(*prev_output_tokens.shape, -1).flatten(0, 1), index)

        embedded = embed_rows(self, previous, positions)
        # criterions that do not take packed output may read the weights: guided alignment does
        need_weights = self.copying is not None or not self.packed_output
        x, attention = decode_rows(self, embedded, target, memory, need_weights)
        extra: dict[str, list[Tensor | None]] = {"attn": [attention]}
        if self.copying is not None:
            assert encoder_out is not None and source is not None and attention is not None
            words = encoder_out["src_tokens"][0].flatten()[source_index]
            extra.update(self.copy_on_rows(x, embedded, attention, words, source, previous, target))
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

    @torch.jit.unused
    def copy_on_rows(
        self,
        x: Tensor,
        embedded: Tensor,
        attention: Tensor,
        words: Tensor,
        source: Layout,
        previous: Tensor,
        target: Layout,
    ) -> dict[str, list[Tensor | None]]:
        """What `CopyAttention` adds for N target positions, if the model copies.

        Args:
            x, embedded: N x C, output and input of the layers.
            attention: N x width, the attention that copies, in the grid of the source.
            words: N', the source, and its layout.
            previous: N, the input token of each position; target: their layout.
        """
        assert self.copying is not None
        # padding is 0 in the grid
        grid = source.to_grid((words - self.padding_idx).unsqueeze(1)).squeeze(2)
        grid = grid + self.padding_idx
        places = find_places(grid, self.vocabulary)[target.sentence]
        before: Tensor | None = None
        if self.copying.next is not None:
            before = find_before(grid, self.padding_idx, self.end)[target.sentence]
        return self.copying(x, embedded, attention, grid, places, before, previous)


def wrap_layer(layer: nn.Module, cfg: Any) -> nn.Module:
    """Wrap a layer for activation checkpointing and sharding, as fairseq wraps its own layers."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
        # as in fairseq, sharding wraps every checkpointed layer, whatever its size
        return fsdp_wrap(layer, min_num_params=0)
    return fsdp_wrap(layer, min_num_params=cfg.min_params_to_wrap)
