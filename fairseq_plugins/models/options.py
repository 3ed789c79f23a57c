"""All options that the models add to fairseq's Transformer.

`fill_defaults` completes those that neither the user nor the architecture has set; `plan.py` checks
them together.
"""

import logging
import math
from argparse import SUPPRESS, ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import Field, dataclass
from typing import Any, Optional

from fairseq.dataclass import ChoiceEnum
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models.transformer import TransformerConfig, base_architecture
from omegaconf import OmegaConf, open_dict

from fairseq_plugins.errors import ConfigurationError, check_known, flag
from fairseq_plugins.layers.compression import FEATURE_POOLINGS, TIME_POOLINGS
from fairseq_plugins.layers.copying import CopyOptions
from fairseq_plugins.layers.feed_forwards import FEED_FORWARDS
from fairseq_plugins.layers.token_mixers import TOKEN_MIXERS
from fairseq_plugins.options.fields import option, options_of

from .checks import parse_layers_to_keep, parse_numbers

logger = logging.getLogger(__name__)

CUDA_GRAPHS_HELP = (
    "training captures forward and backward on a GPU once per batch shape and replays "
    "them: the host launches one graph instead of some 1,500 kernels. Needs --bf16 or --fp16. "
    "Default: off"
)
TRAINING_PATHS = ("auto", "fast", "plain")
REGISTRIES = (TOKEN_MIXERS, FEED_FORWARDS)
DECODER_MIXER = "decoder_token_mixer"  # hidden: its only value is the default


@dataclass
class EfficientTransformerOptions(CopyOptions):
    """Options that the models add to fairseq's Transformer, in every architecture.

    The options of token mixers, feed-forward networks and copying are in the files of these
    parts.
    """

    encoder_blocks: Optional[str] = option(  # noqa: UP045, fairseq reads no `|`
        None,
        "layers of each encoder block, such as 3,3: the first keeps the full size, each later one "
        "is pooled by the windows. Default: 3,3 in transformer_ftc*, transformer_fc* and "
        "transformer_tc* (6,6 in ..._deep*, 4,4 in ..._mid*); 2,2 in fastformer_tc_cnn_dm, 1,1 in "
        "fastformer_tc_pubmed; one block of --encoder-layers layers elsewhere",
    )
    time_window: int = option(
        1,
        "positions pooled into one where a later block begins; 1 is off. Default: 2 in "
        "transformer_ftc*, transformer_tc* and fastformer_tc_*, 1 elsewhere",
        least=1,
    )
    feature_window: int = option(
        1,
        "features pooled into one where a later block begins; 1 is off. Default: 2 in "
        "transformer_ftc* and transformer_fc*, 1 elsewhere",
        least=1,
        most=math.inf,
    )
    time_pooling: ChoiceEnum(list(TIME_POOLINGS)) = option(  # type: ignore[valid-type]
        "mean", "pooling over time"
    )
    feature_pooling: ChoiceEnum(list(FEATURE_POOLINGS)) = option(  # type: ignore[valid-type]
        "mean", "pooling over features"
    )
    encoder_token_mixer: str = option(
        TOKEN_MIXERS.default,
        f"how the encoder's positions see each other: {', '.join(TOKEN_MIXERS)}. Default: "
        "fastformer in fastformer_encoder*, softmax elsewhere",
    )
    encoder_ffn: str = option(
        FEED_FORWARDS.default,
        f"feed-forward network of the encoder: {', '.join(FEED_FORWARDS)}. Default: mscffn in "
        "mscffn_transformer*, standard elsewhere",
    )
    decoder_ffn: str = option(
        FEED_FORWARDS.default,
        f"feed-forward network of the decoder: {', '.join(FEED_FORWARDS)}. Default: mscffn in "
        "mscffn_transformer*, standard elsewhere",
    )
    training_path: ChoiceEnum(list(TRAINING_PATHS)) = option(  # type: ignore[valid-type]
        "auto",
        "how training computes the same model. plain: as fairseq does. fast: the decoder skips "
        "padding; on a CPU, dropout is faster and attention dropout needs memory linear in length. "
        "Default: auto, which is plain for fairseq's own Transformer and for options that fast "
        "does not support, otherwise fast",
    )
    cuda_graphs: bool = option(False, CUDA_GRAPHS_HELP)
    init_from: Optional[str] = option(  # noqa: UP045
        None,
        "checkpoint or folder of a training, whose parameters start this one where name and shape "
        "fit; embeddings and the output projection symbol by symbol. Default: none",
    )
    init_only: Optional[str] = option(  # noqa: UP045
        None,
        "load only these parameters or modules of --init-from, with * as in a shell, separated by "
        "commas, such as encoder.layers.0,decoder. Default: all",
        needs="init_from",
    )
    init_skip: Optional[str] = option(  # noqa: UP045
        None, "do not load these parameters or modules of --init-from. Default: none",
        needs="init_from",
    )  # fmt: skip
    init_data: Optional[str] = option(  # noqa: UP045
        None,
        "data that --init-from was trained on, for its dictionaries. Default: the folder named in "
        "the checkpoint",
        needs="init_from",
    )
    freeze: Optional[str] = option(  # noqa: UP045
        None, "do not train these parameters or modules, written as for --init-only. Default: none"
    )


def fill_defaults(args: Any) -> None:
    """Complete the options that neither the user nor the architecture has set.

    These are the plugin's and those of fairseq's own Transformer. `--encoder-blocks` sets
    `--encoder-layers`; without blocks, the encoder is one block of `--encoder-layers` layers.

    Args:
        args: a Namespace or DictConfig, completed in place.

    Raises:
        ConfigurationError: both are given and disagree, or the blocks cannot be parsed, or the
            decoder is to have another token mixer.
    """
    refuse_decoder_token_mixer(args)
    for name, declared in plugin_options():
        set_default(args, name, declared.default)
    _fill_blocks(args)
    _fill_fairseq_defaults(args)


def _fill_blocks(args: Any) -> None:
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
            f"{args.encoder_blocks}, which has {sum(blocks)}: remove --encoder-layers, or give "
            "blocks that add up to it, such as --encoder-blocks "
            f"{split_evenly(args.encoder_layers)}"
        )


def refuse_decoder_token_mixer(args: Any) -> None:
    """Raise a ConfigurationError if the decoder is to have another token mixer than attention."""
    mixer = (args if OmegaConf.is_config(args) else vars(args)).pop(DECODER_MIXER, None)
    if mixer not in (None, TOKEN_MIXERS.default):
        raise ConfigurationError(
            f"{flag(DECODER_MIXER)} {mixer}: a left-to-right decoder has {TOKEN_MIXERS.default} "
            "attention, as it must not see later positions; choose the encoder's by "
            "--encoder-token-mixer"
        )


def add_options(parser: ArgumentParser) -> None:
    """Add all options to a parser, including those of every registered part."""
    gen_parser_from_dataclass(parser, EfficientTransformerOptions(), delete_default=True)
    for registry in REGISTRIES:
        registry.add_options(parser)
    parser.add_argument(flag(DECODER_MIXER), default=SUPPRESS, help=SUPPRESS)


def plugin_options() -> Iterator[tuple[str, Field]]:
    """Yield the full name and the field of every option, including those of registered parts."""
    yield from ((each.name, each) for each in options_of(EfficientTransformerOptions))
    for registry in REGISTRIES:
        yield from registry.options()


def _fill_fairseq_defaults(args: Any) -> None:
    """Complete the options of fairseq's own Transformer, in place.

    fairseq reads each option with ``getattr(args, name, default)``, which takes an explicit null
    as the value. Therefore fairseq gets a Namespace without nulls here.
    """
    options = dict(args) if OmegaConf.is_config(args) else vars(args)
    completed = Namespace(**{name: value for name, value in options.items() if value is not None})
    base_architecture(completed)
    set_default(completed, "base_layers", 0)  # the trainer also reads it with getattr
    for name, value in vars(completed).items():
        setattr(args, name, value)


def set_default(args: Any, name: str, value: Any) -> None:
    """Set an option of a Namespace or DictConfig if it is missing or None."""
    if getattr(args, name, None) is None:
        setattr(args, name, value)


def parse_blocks(value: Any) -> list[int]:
    """Parse the number of layers of each block: "3,3", [3, 3] or 6.

    Raises:
        ConfigurationError: not integers of at least 1.
    """
    blocks = parse_numbers(value)
    if not blocks or min(blocks) < 1:
        raise ConfigurationError(
            f"--encoder-blocks {value}: give the number of layers of each block, at "
            "least 1, separated by commas, such as 3,3"
        )
    return blocks


def to_config(args: Any) -> TransformerConfig:
    """fairseq's TransformerConfig, which also holds the options of the plugin."""
    return TransformerConfig.from_namespace(
        to_namespace(args) if OmegaConf.is_config(args) else args
    )


def fill_layers_to_keep(args: Any) -> None:
    """If one side is pruned, keep all layers of the other: fairseq drops layers not named.

    Args:
        args: options, changed in place.

    Raises:
        ConfigurationError: an option names a layer that the model does not have.
    """
    depths = {"encoder": sum(parse_blocks(args.encoder_blocks)), "decoder": args.decoder_layers}
    options = {side: getattr(args, f"{side}_layers_to_keep") for side in depths}
    kept = {side: parse_layers_to_keep(side, options[side], depths[side]) for side in depths}
    if any(kept.values()):
        for side, layers in kept.items():
            names = range(depths[side]) if layers is None else layers
            setattr(args, f"{side}_layers_to_keep", ",".join(str(name) for name in names))


@contextmanager
def completing(args: Any, model: Any) -> Iterator[None]:
    """Context in which `build_model` of a class completes its options in place.

    Raises:
        ConfigurationError: a YAML file has options that the model does not know.
    """
    if not OmegaConf.is_config(args):
        yield
        return
    problem, advice = "is not an option of this model", "see --help for the options"
    check_known(args.keys(), model.option_names(), "model.", problem, advice)
    with open_dict(args):
        yield


def option_names(model: Any) -> set[str]:
    """The names of the options that `add_args` of a model class adds."""
    parser = ArgumentParser(add_help=False, allow_abbrev=False)
    model.add_args(parser)
    return {action.dest for action in parser._actions} | {"_name", "arch"}


def to_namespace(args: Any) -> Namespace:
    """A copy of the options, as a Namespace."""
    options: Any = OmegaConf.to_container(args, resolve=True) if OmegaConf.is_config(args) else None
    return Namespace(**(options or vars(args)))


def split_evenly(layers: int) -> str:
    """Two blocks that total this many layers, as an example in messages: "3,2" for 5."""
    return f"{layers - layers // 2},{layers // 2}" if layers > 1 else "1,1"
