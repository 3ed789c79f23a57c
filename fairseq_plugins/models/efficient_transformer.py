"""fairseq's Transformer with a choice of token mixers, feed-forward networks and compression."""

import logging
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

from fairseq.checkpoint_utils import prune_state_dict
from fairseq.models import register_model
from fairseq.models.transformer import (
    TransformerDecoderBase,
    TransformerModel,
    TransformerModelBase,
    base_architecture,
)
from fairseq.models.transformer.transformer_config import (
    DEFAULT_MAX_SOURCE_POSITIONS,
    DEFAULT_MAX_TARGET_POSITIONS,
)
from omegaconf import OmegaConf, open_dict
from torch import Tensor, nn

from fairseq_plugins.layers.dropout import use_fast_dropout
from fairseq_plugins.layers.feed_forwards import FEED_FORWARDS

from .checks import check_dictionaries
from .decoder import Decoder
from .encoder import Encoder
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
from .plan import plan_model, store_completed
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
