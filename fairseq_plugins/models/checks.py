"""Checks of the values and combinations of fairseq's own Transformer options.

fairseq itself reports most of these errors with a traceback, while it builds the model or at the
first batch.
"""

from typing import Any

import torch.distributed as dist
from fairseq import utils

from fairseq_plugins.errors import ConfigurationError, check_choice, check_range, flag

LARGEST_SIZE = 2**20  # limit for features, positions and similar; a larger number is a typo
LARGEST_DEPTH = 1000
SIDES = ("encoder", "decoder")
SIZES = ("embed_dim", "ffn_embed_dim", "attention_heads")
SHARES = (
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "relu_dropout",
    "adaptive_softmax_dropout",
    "encoder_layerdrop",
    "decoder_layerdrop",
)
# options that only fairseq's `transformer` supports, with --arch transformer
REFUSED = {
    "quant_noise_pq": "parts of this model compute without that noise",
    "quant_noise_scalar": "parts of this model compute without that noise",
    "encoder_xformers_att_config": "this model has attention of its own",
    "decoder_xformers_att_config": "this model has attention of its own",
}


RANGES: dict[str, tuple[float, float]] = {
    **dict.fromkeys(SHARES, (0, 1)),
    **{f"{side}_{size}": (1, LARGEST_SIZE) for side in SIDES for size in SIZES},
    **{f"{side}_layers": (1, LARGEST_DEPTH) for side in SIDES},
    **dict.fromkeys(("decoder_input_dim", "decoder_output_dim"), (1, LARGEST_SIZE)),
    **dict.fromkeys(("max_source_positions", "max_target_positions"), (1, LARGEST_SIZE)),
    "base_layers": (0, LARGEST_DEPTH),
    "adaptive_softmax_factor": (1, LARGEST_SIZE),
}


def check_fairseq_options(args: Any) -> None:
    """Check the value of each of fairseq's options, and their combinations.

    Args:
        args: fairseq's TransformerConfig.

    Raises:
        ConfigurationError: an option is out of range, or conflicts with another option or with
            this machine.
    """
    for name, reason in REFUSED.items():
        if getattr(args, name, None):
            raise ConfigurationError(f"{flag(name)} {getattr(args, name)}: {reason}: remove it")
    for name, (least, most) in RANGES.items():
        value = getattr(args, name, None)
        if value is not None:  # fairseq's parser keeps --decoder-output-dim a string
            check_range(flag(name), value, least, most)
    if args.tie_adaptive_weights and args.adaptive_softmax_cutoff is not None:
        raise ConfigurationError(
            "--tie-adaptive-weights needs an adaptive input, which this model lacks: remove it"
        )
    check_choice("activation_fn", args.activation_fn, utils.get_available_activation_fns())
    if args.base_layers and not (dist.is_available() and dist.is_initialized()):
        raise ConfigurationError(
            f"--base-layers {args.base_layers} spreads experts over processes, but this is a "
            "single one: remove it, or train with --distributed-world-size 2 or more"
        )
    _check_sharing(args)


def _check_sharing(args: Any) -> None:
    source, target = args.encoder_embed_dim, args.decoder_embed_dim
    for name in ("share_all_embeddings", "merge_src_tgt_embed", "cross_self_attention"):
        if getattr(args, name, False) and source != target:
            raise ConfigurationError(
                f"{flag(name)} needs equal sizes, but --encoder-embed-dim {source} and "
                f"--decoder-embed-dim {target} differ"
            )
    if args.share_all_embeddings and args.decoder_embed_path not in (None, args.encoder_embed_path):
        raise ConfigurationError(
            f"--share-all-embeddings has one embedding, but --decoder-embed-path "
            f"{args.decoder_embed_path} differs from the encoder's: remove one of them"
        )
    for name in ("encoder_embed_path", "decoder_embed_path"):
        if getattr(args, "merge_src_tgt_embed", False) and getattr(args, name):
            raise ConfigurationError(
                f"{flag(name)} {getattr(args, name)} has no effect with --merge-src-tgt-embed: "
                "remove one of them"
            )
    tied = args.share_all_embeddings or args.share_decoder_input_output_embed
    tied = tied or getattr(args, "merge_src_tgt_embed", False)
    output = int(args.decoder_output_dim)
    if tied and output != target and args.adaptive_softmax_cutoff is None:
        raise ConfigurationError(
            f"--decoder-output-dim {output}: tied embeddings require the --decoder-embed-dim, "
            f"{target}: remove it, or the sharing"
        )


def check_dictionaries(args: Any, source: Any, target: Any) -> None:
    """Check the options that depend on the vocabularies.

    Args:
        args: fairseq's TransformerConfig, with the options of the plugin.
        source, target: fairseq's dictionaries.

    Raises:
        ConfigurationError: an option does not fit the dictionaries.
    """
    for name, instead in (
        ("share_all_embeddings", "share with --share-decoder-input-output-embed"),
        ("copy_attention", "remove it"),
    ):
        if getattr(args, name) and source != target:
            raise ConfigurationError(
                f"{flag(name)} needs one dictionary for both languages: join them by "
                f"`fairseq-plugins join-dictionaries DATA OUT`, or {instead}"
            )
    cutoff = args.adaptive_softmax_cutoff
    if cutoff is None:
        return
    bounds = parse_numbers(cutoff)
    ascending = bool(bounds) and all(a < b for a, b in zip([0, *bounds], bounds))
    if not ascending or bounds[-1] > len(target):
        raise ConfigurationError(
            f"--adaptive-softmax-cutoff {cutoff}: give ascending numbers from 1 to at most "
            f"{len(target)}, the size of the vocabulary"
        )


def parse_layers_to_keep(side: str, value: Any, layers: int) -> list[int] | None:
    """Parse --encoder-layers-to-keep or --decoder-layers-to-keep: "0,2", [0, 2] or None.

    Args:
        side: "encoder" or "decoder", for the message.
        value: the option's value.
        layers: number of layers before pruning.

    Returns:
        the layers that fairseq keeps, ascending, or None for no pruning.

    Raises:
        ConfigurationError: the value does not name layers of the model, each at most once.
    """
    if value is None or value == "":
        return None
    kept = parse_numbers(value)
    if not kept or len(set(kept)) < len(kept) or not set(kept) <= set(range(layers)):
        raise ConfigurationError(
            f"--{side}-layers-to-keep {value} must name some of the layers 0 to {layers - 1}, "
            "each once, such as 0"
        )
    return sorted(kept)


def parse_numbers(value: Any) -> list[int]:
    """Parse "1,2", [1, 2] or 1 to a list of integers; empty if that fails."""
    try:
        return [int(word) for word in str(value).strip("[]() ").split(",")]
    except ValueError:
        return []
