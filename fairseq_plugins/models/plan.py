"""The plan of a model: its options checked together, and all sizes computed from them."""

import logging
from argparse import Namespace
from typing import Any, NamedTuple

from fairseq.models import ARCH_CONFIG_REGISTRY

from fairseq_plugins.errors import ConfigurationError, flag, nearest
from fairseq_plugins.layers.copying import CopySpec
from fairseq_plugins.layers.decoder_layer import find_extensions
from fairseq_plugins.layers.feed_forwards import FEED_FORWARDS, FeedForwardSpec
from fairseq_plugins.layers.registry import Choice
from fairseq_plugins.layers.token_mixers import TOKEN_MIXERS, MixerSpec
from fairseq_plugins.options.fields import checked_options

from .checks import check_fairseq_options, parse_layers_to_keep
from .options import (
    EfficientTransformerOptions,
    fill_defaults,
    parse_blocks,
    split_evenly,
    to_config,
)

logger = logging.getLogger(__name__)


class LayerPlan(NamedTuple):
    """One encoder layer. `starts_later_block`: it is the first of a later block, so it pools."""

    mixer: MixerSpec
    ffn: FeedForwardSpec
    starts_later_block: bool


class ModelPlan(NamedTuple):
    """A checked configuration, with all sizes computed."""

    layers: tuple[LayerPlan, ...]
    time_window: int
    feature_window: int
    time_pooling: str
    feature_pooling: str
    later_blocks: int
    mixer: Choice
    encoder_ffn: Choice
    decoder_ffn: Choice
    decoder_ffn_spec: FeedForwardSpec
    copying: CopySpec | None
    fast_training: bool


def plan_model(args: Any) -> ModelPlan:
    """Check all options of a model and compute its sizes, before anything is built.

    Args:
        args: options after `fill_defaults`, or the TransformerConfig of such options.

    Raises:
        ConfigurationError: an option cannot work, or conflicts with another one.
    """
    args = to_config(args)
    check_fairseq_options(args)
    checked_options(EfficientTransformerOptions, args)
    mixer = TOKEN_MIXERS.choose("encoder_token_mixer", args)
    encoder_ffn = FEED_FORWARDS.choose("encoder_ffn", args)
    decoder_ffn = FEED_FORWARDS.choose("decoder_ffn", args)
    defaults = _defaults_of(getattr(args, "arch", None) or args._name)
    idle = TOKEN_MIXERS.idle([mixer.name], args, defaults)
    idle += FEED_FORWARDS.idle([encoder_ffn.name, decoder_ffn.name], args, defaults)
    for side in ("time", "feature"):
        if getattr(args, f"{side}_window") == 1 and str(getattr(args, f"{side}_pooling")) != "mean":
            idle.append((f"{side}_pooling", f"--{side}-window above 1"))
    if args.tie_adaptive_weights:
        idle.append(("tie_adaptive_weights", "an adaptive softmax"))
    for name, part in idle:
        logger.warning("%s has no effect: no layer of the model has %s", flag(name), part)
    blocks = _prune(parse_blocks(args.encoder_blocks), args)
    _check_heads("encoder", args.encoder_embed_dim, args.encoder_attention_heads)
    _check_heads("decoder", args.decoder_embed_dim, args.decoder_attention_heads)
    _check_windows(args, blocks, encoder_ffn)

    fast_training = _choose_fast_training(args, blocks)
    _check_routing(args, encoder_ffn, decoder_ffn, fast_training)
    layers = _plan_layers(args, blocks, fast_training)
    decoder_ffn_spec = _ffn_spec(args, args.decoder_embed_dim, args.decoder_ffn_embed_dim)
    # encoder and decoder share the options of a network that both use, which must fit both
    users = [*((encoder_ffn, layer.ffn) for layer in layers), (decoder_ffn, decoder_ffn_spec)]
    encoder_ffn, decoder_ffn = (
        ffn.completed([spec for other, spec in users if other == ffn])
        for ffn in (encoder_ffn, decoder_ffn)
    )
    return ModelPlan(
        layers=tuple(layers),
        time_window=args.time_window,
        feature_window=args.feature_window,
        time_pooling=str(args.time_pooling),
        feature_pooling=str(args.feature_pooling),
        later_blocks=len(blocks) - 1,
        mixer=mixer.completed([layer.mixer for layer in layers]),
        encoder_ffn=encoder_ffn,
        decoder_ffn=decoder_ffn,
        decoder_ffn_spec=decoder_ffn_spec,
        copying=_plan_copying(args),
        fast_training=fast_training,
    )


def _defaults_of(architecture: str | None) -> Namespace:
    """All options of an architecture. It may set those of parts that only the user chooses."""
    defaults = Namespace()
    if architecture in ARCH_CONFIG_REGISTRY:
        ARCH_CONFIG_REGISTRY[architecture](defaults)
    fill_defaults(defaults)
    return defaults


def store_completed(plan: ModelPlan, args: Any) -> None:
    """Write the options that the plan completed into `args`, so that checkpoints hold them."""
    for choice in (plan.mixer, plan.encoder_ffn, plan.decoder_ffn):
        choice.store(args)


def _prune(blocks: list[int], args: Any) -> list[int]:
    """The number of layers of each block after --encoder-layers-to-keep."""
    kept = parse_layers_to_keep("encoder", args.encoder_layers_to_keep, sum(blocks))
    if kept is None or len(kept) == sum(blocks):
        return blocks
    if len(blocks) > 1:
        raise ConfigurationError(
            f"--encoder-layers-to-keep {args.encoder_layers_to_keep} prunes encoders of one block, "
            f"but --encoder-blocks {args.encoder_blocks} has {len(blocks)}: name all its layers, "
            "or remove it"
        )
    return [len(kept)]


def _plan_layers(args: Any, blocks: list[int], fast_training: bool) -> list[LayerPlan]:
    layers: list[LayerPlan] = []
    for block, count in enumerate(blocks):
        shrink = args.feature_window**block
        dim, ffn_dim = args.encoder_embed_dim // shrink, args.encoder_ffn_embed_dim // shrink
        for layer in range(count):
            starts_later_block = block > 0 and layer == 0
            mixer = MixerSpec(
                embed_dim=dim,
                memory_dim=dim * args.feature_window if starts_later_block else dim,
                num_heads=args.encoder_attention_heads,
                dropout=args.attention_dropout,
                max_positions=args.max_source_positions,
                time_window=args.time_window if starts_later_block else 1,
                fast=fast_training,
            )
            layers.append(LayerPlan(mixer, _ffn_spec(args, dim, ffn_dim), starts_later_block))
    return layers


def _ffn_spec(args: Any, embed_dim: int, ffn_embed_dim: int) -> FeedForwardSpec:
    return FeedForwardSpec(
        embed_dim=embed_dim,
        ffn_embed_dim=ffn_embed_dim,
        activation_fn=str(args.activation_fn),
        dropout=args.activation_dropout or args.relu_dropout or 0.0,
    )


# With these options the decoder has no output projection, or lacks the cross-attention weights of
# some layers. Copying needs both.
_NOT_COPYING = (
    "adaptive_softmax_cutoff",
    "base_layers",
    "cross_self_attention",
    "decoder_layerdrop",
    "no_cross_attention",
)


def _plan_copying(args: Any) -> CopySpec | None:
    if not args.copy_attention:
        return None
    for name in _NOT_COPYING:
        if getattr(args, name, None):
            raise ConfigurationError(
                f"--copy-attention does not support {flag(name)} {getattr(args, name)}: remove one "
                "of them"
            )
    return CopySpec(int(args.decoder_output_dim), args.decoder_embed_dim, args.copy_next)


def _check_heads(side: str, dim: int, heads: int) -> None:
    if heads < 1 or dim % heads != 0:
        allowed = [n for n in range(1, dim + 1) if dim % n == 0]
        raise ConfigurationError(
            f"--{side}-attention-heads {heads} does not divide --{side}-embed-dim {dim}: nearest "
            f"that work: {nearest(heads, allowed)}"
        )


def _check_windows(args: Any, blocks: list[int], encoder_ffn: Choice) -> None:
    later = len(blocks) - 1
    for name in ("time_window", "feature_window"):
        window, option = getattr(args, name), flag(name)
        if window > 1 and later == 0:
            raise ConfigurationError(
                f"{option} {window} pools at the start of later blocks, but --encoder-blocks "
                f"{args.encoder_blocks} has one block: give several, such as --encoder-blocks "
                f"{split_evenly(sum(blocks))}, or {option} 1"
            )
    dim, ffn = args.encoder_embed_dim, args.encoder_ffn_embed_dim
    heads = args.encoder_attention_heads

    def fits(window: int) -> bool:
        shrink = window**later
        ffn_fits = ffn % shrink == 0 or not encoder_ffn.part.uses_ffn_embed_dim
        return dim % shrink == 0 and (dim // shrink) % heads == 0 and ffn_fits

    if not fits(args.feature_window):
        allowed = [window for window in range(1, dim + 1) if dim % window == 0 and fits(window)]
        raise ConfigurationError(
            f"--feature-window {args.feature_window} over {later} later block(s) does not fit "
            f"--encoder-embed-dim {dim}, --encoder-ffn-embed-dim {ffn} and "
            f"--encoder-attention-heads {heads}: each block's sizes must be whole and divisible by "
            f"the heads; nearest that work: {nearest(args.feature_window, allowed)}"
        )


def _choose_fast_training(args: Any, blocks: list[int]) -> bool:
    if args.training_path == "plain":
        return False
    obstacles = find_extensions(args) + ["offload_activations"] * args.offload_activations
    needed = args.training_path == "fast"
    if needed and obstacles:
        raise ConfigurationError(
            f"--training-path fast does not support {', '.join(map(flag, obstacles))}: use "
            "--training-path auto or plain, or remove the other"
        )
    like_transformer = (
        len(blocks) == 1
        and args.encoder_token_mixer == TOKEN_MIXERS.default
        and args.encoder_ffn == args.decoder_ffn == FEED_FORWARDS.default
        and not args.copy_attention
    )
    return needed or not (obstacles or like_transformer)


def _check_routing(
    args: Any, encoder_ffn: Choice, decoder_ffn: Choice, fast_training: bool
) -> None:
    """Refuse options that lose a routing network's balance loss, or route padding."""
    for side, ffn in (("encoder", encoder_ffn), ("decoder", decoder_ffn)):
        if ffn.part.routes_positions and args.checkpoint_activations:
            raise ConfigurationError(
                f"--checkpoint-activations would lose the loss that balances --{side}-ffn "
                f"{ffn.name}: remove one of them"
            )
    if decoder_ffn.part.routes_positions and not fast_training:
        raise ConfigurationError(
            f"--decoder-ffn {decoder_ffn.name} cannot train on --training-path plain, where it "
            "would route padding: use --training-path fast, whose error message names the obstacle"
        )
