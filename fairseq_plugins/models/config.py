"""Every option of the models, and the plan of a model that follows from them.

Options are added to fairseq's own Transformer options. `fill_defaults` completes what an
architecture and the user left open, `plan_model` checks the whole and works out the sizes; nothing
else reads or checks these options.
"""

import difflib
import logging
from argparse import Namespace
from dataclasses import dataclass, field
from typing import Any, Iterable, List, NamedTuple, Optional, Tuple

import torch
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.models.transformer import base_architecture
from omegaconf import OmegaConf

from fairseq_plugins.errors import ConfigurationError, nearest
from fairseq_plugins.modules import compilation
from fairseq_plugins.modules.compression import FEATURE_POOLINGS, TIME_POOLINGS
from fairseq_plugins.modules.feed_forward import FEED_FORWARDS
from fairseq_plugins.modules.feed_forward.mscffn import valid_subspaces
from fairseq_plugins.modules.token_mixers import (
    FASTFORMER_INTERACTIONS,
    FASTFORMER_SHARING,
    TOKEN_MIXERS,
)

logger = logging.getLogger(__name__)

TRAINING_PATHS = ("auto", "fast", "plain")
MSCFFN_SUBSPACES = 12  # the paper's n, where the dimensions allow it


@dataclass
class EfficientTransformerOptions(FairseqDataclass):
    """What the models add to fairseq's Transformer. The same in every architecture."""

    encoder_blocks: Optional[str] = field(
        default=None,
        metadata={
            "help": "layers of each encoder block, such as 3,3: the first keeps the full size, "
            "each later one is pooled by the windows. Default: 3,3 in transformer_ftc*, "
            "transformer_fc* and transformer_tc*; one block of --encoder-layers layers in "
            "fastformer_encoder* and mscffn_transformer*"
        },
    )
    time_window: int = field(
        default=1,
        metadata={
            "help": "positions pooled into one where a later block begins; 1 is off. Default: 2 in "
            "transformer_ftc* and transformer_tc*, 1 elsewhere"
        },
    )
    feature_window: int = field(
        default=1,
        metadata={
            "help": "features pooled into one where a later block begins; 1 is off. Default: 2 in "
            "transformer_ftc* and transformer_fc*, 1 elsewhere"
        },
    )
    time_pooling: ChoiceEnum(list(TIME_POOLINGS)) = field(  # type: ignore[valid-type]
        default="mean", metadata={"help": "pooling over time (default: mean)"}
    )
    feature_pooling: ChoiceEnum(list(FEATURE_POOLINGS)) = field(  # type: ignore[valid-type]
        default="mean", metadata={"help": "pooling over features (default: mean)"}
    )
    encoder_token_mixer: ChoiceEnum(list(TOKEN_MIXERS)) = field(  # type: ignore[valid-type]
        default="softmax",
        metadata={
            "help": "how the encoder's positions see each other. Default: fastformer in "
            "fastformer_encoder*, softmax elsewhere"
        },
    )
    decoder_token_mixer: str = field(
        default="softmax",
        metadata={"help": "softmax is the only one that a left-to-right decoder can use"},
    )
    fastformer_interaction: ChoiceEnum(list(FASTFORMER_INTERACTIONS)) = field(  # type: ignore[valid-type]
        default="product",
        metadata={"help": "how Fastformer's summaries meet keys and values (default: product)"},
    )
    fastformer_sharing: str = field(
        default="query-value,layer",
        metadata={
            "help": "what Fastformer shares parameters over: any of query-value, head, layer, "
            "separated by commas, or none (default: query-value,layer)"
        },
    )
    encoder_ffn: ChoiceEnum(list(FEED_FORWARDS)) = field(  # type: ignore[valid-type]
        default="standard",
        metadata={
            "help": "feed-forward network of the encoder. Default: mscffn in mscffn_transformer*, "
            "standard elsewhere"
        },
    )
    decoder_ffn: ChoiceEnum(list(FEED_FORWARDS)) = field(  # type: ignore[valid-type]
        default="standard",
        metadata={
            "help": "feed-forward network of the decoder. Default: mscffn in mscffn_transformer*, "
            "standard elsewhere"
        },
    )
    mscffn_subspaces: Optional[int] = field(
        default=None,
        metadata={
            "help": "n, the subspaces of an MSCFFN: even, a divisor of each dimension it has. "
            "Default: 12, or where that does not fit the nearest number that does (8 for 512)"
        },
    )
    mscffn_expansion: int = field(
        default=6, metadata={"help": "m, how much wider an MSCFFN's inner layer is (default: 6)"}
    )
    training_path: ChoiceEnum(list(TRAINING_PATHS)) = field(  # type: ignore[valid-type]
        default="auto",
        metadata={
            "help": "how training computes the same model: plain, as fairseq does, or fast, where "
            "the decoder computes real target positions alone, and on a CPU dropout has a cheaper "
            "random stream and attention dropout memory linear in length. Default: auto, fast "
            "where any choice differs from the Transformer's and no option of fairseq's stands "
            "against it, else plain"
        },
    )
    torch_compile: bool = field(
        default=False,
        metadata={
            "help": "let torch compile each layer in training (on --training-path fast): fewer and "
            "larger kernels, for GPUs that wait for those of small batches to be launched. The "
            "first batches take minutes. On a CPU it is slower than what it replaces. Default: off"
        },
    )


class LayerPlan(NamedTuple):
    """One encoder layer: its sizes, and the windows where it begins a later block."""

    embed_dim: int
    ffn_embed_dim: int
    memory_dim: int  # size of its input; differs from embed_dim where features are pooled
    starts_block: bool


class ModelPlan(NamedTuple):
    """A checked configuration, as numbers."""

    layers: Tuple[LayerPlan, ...]
    time_window: int
    feature_window: int
    time_pooling: str
    feature_pooling: str
    later_blocks: int
    encoder_token_mixer: str
    fastformer_interaction: str
    fastformer_sharing: Tuple[str, ...]
    encoder_ffn: str
    decoder_ffn: str
    mscffn_subspaces: Optional[int]  # None where no layer has an MSCFFN
    mscffn_expansion: int
    fast_training: bool
    compile_training: bool


def fill_defaults(args: Any) -> None:
    """Complete the options that neither the user nor the architecture has set.

    `--encoder-layers` follows from `--encoder-blocks` where blocks are given, and the blocks from
    the layers where they are not.

    Raises:
        ConfigurationError: both are given and disagree, or the blocks cannot be read.
    """
    for name, option in EfficientTransformerOptions.__dataclass_fields__.items():
        if not name.startswith("_"):
            set_default(args, name, option.default)
    if args.encoder_blocks is None:
        set_default(args, "encoder_layers", 6)
        args.encoder_blocks = str(args.encoder_layers)
        return
    blocks = parse_blocks(args.encoder_blocks)
    args.encoder_blocks = ",".join(str(layers) for layers in blocks)
    set_default(args, "encoder_layers", sum(blocks))
    if args.encoder_layers != sum(blocks):
        raise ConfigurationError(
            f"--encoder-layers {args.encoder_layers} does not match --encoder-blocks "
            f"{args.encoder_blocks}, which has {sum(blocks)}: leave --encoder-layers out, or give "
            "blocks that add up to it, such as --encoder-blocks "
            f"{_split_evenly(args.encoder_layers)}"
        )


def fill_fairseq_defaults(args: Any) -> None:
    """Complete the options of fairseq's own Transformer, in place.

    fairseq asks a configuration for each option with a default in case it is missing. omegaconf
    before 2.1 answers None then, which fairseq 0.12.2 takes for the value, so what is asked is a
    Namespace.
    """
    options = dict(args) if OmegaConf.is_config(args) else vars(args)
    completed = Namespace(**{name: value for name, value in options.items() if value is not None})
    base_architecture(completed)
    set_default(completed, "base_layers", 0)  # the trainer asks for it in the same way
    for name, value in vars(completed).items():
        setattr(args, name, value)


def set_default(args: Any, name: str, value: Any) -> None:
    """Set an option of a Namespace or DictConfig unless it is there."""
    if getattr(args, name, None) is None:
        setattr(args, name, value)


def parse_blocks(value: Any) -> List[int]:
    """The layers of each block, from "3,3", [3, 3] or 6."""
    words = str(value).strip("[]() ").split(",")
    try:
        blocks = [int(word) for word in words]
    except ValueError:
        blocks = []
    if not blocks or min(blocks) < 1:
        raise ConfigurationError(
            f"--encoder-blocks {value} cannot be read: give the number of layers of each block, at "
            "least 1, separated by commas, such as 3,3"
        )
    return blocks


def plan_model(args: Any) -> ModelPlan:
    """Check all options of a model and work out its sizes.

    Args:
        args: options after `fill_defaults` and fairseq's own defaults.

    Raises:
        ConfigurationError: an option that cannot work; nothing is built before all are checked.
    """
    for name, option in EfficientTransformerOptions.__dataclass_fields__.items():
        choices = getattr(option.type, "__members__", {}).values()
        if choices:
            _check_choice(name, getattr(args, name), [choice.value for choice in choices])
    if args.decoder_token_mixer != "softmax":
        raise ConfigurationError(
            f"--decoder-token-mixer {args.decoder_token_mixer} cannot work: its summaries are "
            "taken over the whole sentence, and a left-to-right decoder must not see what it has "
            "still to write; use softmax there, and --encoder-token-mixer for the encoder"
            if args.decoder_token_mixer in TOKEN_MIXERS
            else f"--decoder-token-mixer {args.decoder_token_mixer} is unknown: use softmax"
        )
    blocks = parse_blocks(args.encoder_blocks)
    if args.encoder_layers_to_keep:
        if len(blocks) > 1:
            raise ConfigurationError(
                f"--encoder-layers-to-keep {args.encoder_layers_to_keep} prunes encoders of one "
                f"block, and --encoder-blocks {args.encoder_blocks} has {len(blocks)}: leave it out"
            )
        blocks = [args.encoder_layers]
    _check_heads("encoder", args.encoder_embed_dim, args.encoder_attention_heads)
    _check_heads("decoder", args.decoder_embed_dim, args.decoder_attention_heads)
    _check_windows(args, blocks)

    layers: List[LayerPlan] = []
    for block, count in enumerate(blocks):
        shrink = args.feature_window**block
        dim, ffn_dim = args.encoder_embed_dim // shrink, args.encoder_ffn_embed_dim // shrink
        for layer in range(count):
            starts_block = block > 0 and layer == 0
            memory_dim = dim * args.feature_window if starts_block else dim
            layers.append(LayerPlan(dim, ffn_dim, memory_dim, starts_block))

    if args.encoder_token_mixer != "softmax" and getattr(args, "encoder_xformers_att_config", None):
        raise ConfigurationError(
            f"--encoder-xformers-att-config needs softmax attention, not --encoder-token-mixer "
            f"{args.encoder_token_mixer}: leave one of them out"
        )
    _check_quant_noise(args, layers)
    return ModelPlan(
        layers=tuple(layers),
        time_window=args.time_window,
        feature_window=args.feature_window,
        time_pooling=str(args.time_pooling),
        feature_pooling=str(args.feature_pooling),
        later_blocks=len(blocks) - 1,
        encoder_token_mixer=str(args.encoder_token_mixer),
        fastformer_interaction=str(args.fastformer_interaction),
        fastformer_sharing=_parse_sharing(args.fastformer_sharing),
        encoder_ffn=str(args.encoder_ffn),
        decoder_ffn=str(args.decoder_ffn),
        mscffn_subspaces=_choose_subspaces(args, layers),
        mscffn_expansion=args.mscffn_expansion,
        fast_training=_choose_fast_training(args, blocks),
        compile_training=_choose_compilation(args),
    )


def check_names(given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse options that nothing reads. A command line does so by itself; a YAML file does not."""
    known = sorted(known)
    for name in given:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            advice = f"did you mean {close[0]}?" if close else "see --help for the options"
            raise ConfigurationError(f"model.{name} is no option of this model: {advice}")


def _check_choice(name: str, value: Any, choices: List[str]) -> None:
    if str(value) not in choices:
        raise ConfigurationError(
            f"--{name.replace('_', '-')} {value} is unknown: choose one of {', '.join(choices)}"
        )


def _check_heads(side: str, dim: int, heads: int) -> None:
    if heads < 1 or dim % heads != 0:
        allowed = [n for n in range(1, dim + 1) if dim % n == 0]
        raise ConfigurationError(
            f"--{side}-attention-heads {heads} does not divide --{side}-embed-dim {dim}: nearest "
            f"that work: {nearest(heads, allowed)}"
        )


def _check_windows(args: Any, blocks: List[int]) -> None:
    later = len(blocks) - 1
    for name in ("time_window", "feature_window"):
        window, option = getattr(args, name), "--" + name.replace("_", "-")
        if window < 1:
            raise ConfigurationError(f"{option} {window} is below 1; 1 switches it off")
        if window > 1 and later == 0:
            raise ConfigurationError(
                f"{option} {window} pools where a later block begins, and --encoder-blocks "
                f"{args.encoder_blocks} has one block: give several, such as --encoder-blocks "
                f"{_split_evenly(sum(blocks))}, or {option} 1"
            )
    pooled, longest = args.time_window**later, args.max_source_positions
    if pooled > longest:
        largest = max(window for window in range(1, args.time_window) if window**later <= longest)
        raise ConfigurationError(
            f"--time-window {args.time_window} pools {pooled} positions into one by the last "
            f"block, more than --max-source-positions {longest}: at most {largest} works with "
            f"--encoder-blocks {args.encoder_blocks}"
        )
    dim, ffn, heads = (
        args.encoder_embed_dim,
        args.encoder_ffn_embed_dim,
        args.encoder_attention_heads,
    )

    def fits(window: int) -> bool:
        shrink = window**later
        ffn_fits = args.encoder_ffn == "mscffn" or ffn % shrink == 0
        return dim % shrink == 0 and (dim // shrink) % heads == 0 and ffn_fits

    if not fits(args.feature_window):
        allowed = [window for window in range(1, dim + 1) if fits(window)]
        raise ConfigurationError(
            f"--feature-window {args.feature_window} over {later} later block(s) does not fit "
            f"--encoder-embed-dim {dim}, --encoder-ffn-embed-dim {ffn} and "
            f"--encoder-attention-heads {heads}: each block's sizes must be whole and divisible by "
            f"the heads; nearest that work: {nearest(args.feature_window, allowed)}"
        )


def _parse_sharing(value: str) -> Tuple[str, ...]:
    words = [word.strip() for word in str(value).split(",") if word.strip()]
    if words == ["none"]:
        return ()
    unknown = [word for word in words if word not in FASTFORMER_SHARING]
    if unknown or not words:
        raise ConfigurationError(
            f"--fastformer-sharing {value} cannot be read: give any of "
            f"{', '.join(FASTFORMER_SHARING)}, separated by commas, or none alone"
        )
    return tuple(words)


def _choose_subspaces(args: Any, layers: List[LayerPlan]) -> Optional[int]:
    dims = [layer.embed_dim for layer in layers] if args.encoder_ffn == "mscffn" else []
    if args.decoder_ffn == "mscffn":
        dims.append(args.decoder_embed_dim)
    if not dims:
        return args.mscffn_subspaces
    allowed = valid_subspaces(dims)
    names = ", ".join(str(dim) for dim in sorted(set(dims), reverse=True))
    if not allowed:
        raise ConfigurationError(
            f"MSCFFN needs an even number of subspaces, and the dimensions {names} have no even "
            "divisor in common: choose even dimensions, or --encoder-ffn/--decoder-ffn standard"
        )
    if args.mscffn_expansion < 1:
        raise ConfigurationError(f"--mscffn-expansion {args.mscffn_expansion} is below 1")
    if args.mscffn_subspaces is None:
        return min(allowed, key=lambda n: abs(n - MSCFFN_SUBSPACES))
    if args.mscffn_subspaces not in allowed:
        raise ConfigurationError(
            f"--mscffn-subspaces {args.mscffn_subspaces} must be even and divide the dimensions "
            f"{names} of the layers that have an MSCFFN: nearest that work: "
            f"{nearest(args.mscffn_subspaces, allowed)}"
        )
    return args.mscffn_subspaces


def _choose_fast_training(args: Any, blocks: List[int]) -> bool:
    if args.training_path == "plain":
        return False
    obstacles = [
        "--" + name.replace("_", "-")
        for name in (
            "quant_noise_pq",
            "quant_noise_scalar",
            "cross_self_attention",
            "decoder_xformers_att_config",
            "encoder_xformers_att_config",
            "offload_activations",
            "base_layers",
            "scale_attn",
            "scale_fc",
            "scale_heads",
            "scale_resids",
        )
        if getattr(args, name, None)
    ]
    needed = args.torch_compile or args.training_path == "fast"
    if needed and obstacles:
        name, advice = "--training-path fast", "use --training-path auto or plain"
        if args.torch_compile:
            name, advice = "--torch-compile", "leave --torch-compile out"
        raise ConfigurationError(
            f"{name} does not compute what {', '.join(obstacles)} asks for: {advice}, or leave the "
            "other out"
        )
    like_transformer = (
        len(blocks) == 1
        and args.encoder_token_mixer == "softmax"
        and args.encoder_ffn == args.decoder_ffn == "standard"
    )
    return needed or not (obstacles or like_transformer)


def _choose_compilation(args: Any) -> bool:
    if not args.torch_compile:
        return False
    if args.training_path == "plain":
        raise ConfigurationError(
            "--torch-compile compiles the layers of --training-path fast, not those of plain: "
            "leave one of them out"
        )
    if args.checkpoint_activations:
        raise ConfigurationError(
            "--torch-compile decides itself what backward computes again, which "
            "--checkpoint-activations does too: leave one of them out"
        )
    if not compilation.available():
        # no error: a checkpoint that was trained with it is the same model without
        logger.warning(
            f"--torch-compile needs torch 2.1 or newer, and this is {torch.__version__}: layers "
            "run without being compiled"
        )
        return False
    return True


def _check_quant_noise(args: Any, layers: List[LayerPlan]) -> None:
    """Quantisation noise cuts the input features of every matrix into blocks of one size."""
    block = args.quant_noise_pq_block_size
    if not args.quant_noise_pq:
        return
    sizes = {args.encoder_embed_dim, args.decoder_embed_dim}
    for layer in layers:
        sizes |= {layer.embed_dim, layer.memory_dim}
        sizes.add(layer.ffn_embed_dim if args.encoder_ffn == "standard" else layer.embed_dim // 2)
        if "head" in _parse_sharing(args.fastformer_sharing) and (
            args.encoder_token_mixer == "fastformer"
        ):
            heads = args.encoder_attention_heads
            sizes |= {layer.embed_dim // heads, layer.memory_dim // heads}
    decoder_dim = args.decoder_embed_dim
    sizes.add(args.decoder_ffn_embed_dim if args.decoder_ffn == "standard" else decoder_dim // 2)
    allowed = [n for n in range(1, min(sizes) + 1) if all(size % n == 0 for size in sizes)]
    if block not in allowed:
        names = ", ".join(str(size) for size in sorted(sizes, reverse=True))
        raise ConfigurationError(
            f"--quant-noise-pq-block-size {block} must divide the sizes of all layers ({names}): "
            f"nearest that work: {nearest(block, allowed)}"
        )


def _split_evenly(layers: int) -> str:
    return f"{layers - layers // 2},{layers // 2}" if layers > 1 else "1,1"
