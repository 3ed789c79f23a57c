"""The encoder: blocks of layers, on a padded batch and on packed sequences."""

from collections.abc import Iterator
from typing import Any

import torch
from fairseq.distributed import fsdp_wrap
from fairseq.models.transformer import TransformerEncoderBase
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from torch import Tensor, nn

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.layers import packed_pooling
from fairseq_plugins.layers.compression import (
    FeaturePooling,
    TimePooling,
    align_to_start,
    pool_padding_mask,
    restore_alignment,
    upsample,
)
from fairseq_plugins.layers.encoder_layer import EncoderLayer, run_encoder_layer
from fairseq_plugins.layers.layer_drop import BlockLayerDropModuleList
from fairseq_plugins.layers.packed import Layout, Windows, packed_attention
from fairseq_plugins.layers.token_mixers import SoftmaxAttention

from .plan import ModelPlan


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

    def packed_kernels(self) -> Iterator[tuple[Any, ...]]:
        """The Triton kernels for pooling packed sequences, as `kernels.usable` takes them."""
        dim = 0  # of the blocks, from the last one to the first
        layers: list[Any] = list(self.layers.children())
        for layer in reversed(layers):
            if layer.starts_later_block:
                dim = dim or layer.final_layer_norm.normalized_shape[0]
                features = layer.feature_pooling
                dim *= features.window
                averaged = packed_pooling.averaged(features)
                if layer.time_pooling.kind == "mean" and self.time_window * averaged > 1:
                    yield packed_pooling.kernel_of(dim, self.time_window, averaged)
        if dim:
            yield packed_pooling.kernel_of(dim, self.upsample_time, self.upsample_features)

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


def encode_packed(encoder: Any, x: Tensor, layouts: list[Layout]) -> Tensor:
    """The layers of `Encoder.forward`, or of fairseq's encoder, on packed sequences.

    Args:
        encoder: one that `packed.find_obstacle` accepts.
        x: N x d, embedded tokens.
        layouts: layout of the rows in each block, or one for all if no block pools over time.

    Returns:
        N x d.
    """
    at, later, first = layouts[0], iter(layouts[1:]), None
    for layer in encoder.layers:
        before, windows = at, None
        if getattr(layer, "starts_later_block", False):
            first = x if first is None else first
            at = next(later, at)  # all layouts are one if no block pools over time
            windows = Windows(before, at, encoder.time_window)

        def pool(x: Tensor, layer: Any = layer, windows: Windows | None = windows) -> Tensor:
            if windows is None:
                return x
            return packed_pooling.pool(x, windows, layer.time_pooling, layer.feature_pooling)

        def mix(
            x: Tensor, memory: Tensor, layer: Any = layer, at: Layout = at, before: Layout = before
        ) -> tuple[Tensor, nn.Module | None]:
            mixer = layer.mixer if isinstance(layer, EncoderLayer) else None
            if mixer is not None and type(mixer) is not SoftmaxAttention:
                return mixer.forward_packed(x, at, memory, before), None  # type: ignore[operator]
            attention: Any = layer.self_attn if mixer is None else mixer.attention
            return packed_attention(attention, x, at, memory, before)[0], attention.out_proj

        x = run_encoder_layer(layer, x, mix, pool)
    if first is not None:
        windows = Windows(layouts[0], at, encoder.upsample_time)
        x = packed_pooling.upsample(first, x, windows)
    return x if encoder.layer_norm is None else encoder.layer_norm(x)


def wrap_layer(layer: nn.Module, cfg: Any) -> nn.Module:
    """Wrap a layer for activation checkpointing and sharding, as fairseq wraps its own layers."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
        # as in fairseq, sharding wraps every checkpointed layer, whatever its size
        return fsdp_wrap(layer, min_num_params=0)
    return fsdp_wrap(layer, min_num_params=cfg.min_params_to_wrap)
