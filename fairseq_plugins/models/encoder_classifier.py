"""Text classification: an encoder, a sentence vector and a linear layer, without a decoder."""

import re
from argparse import SUPPRESS, ArgumentError, ArgumentParser
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import FairseqEncoderModel, register_model
from fairseq.models.transformer import TransformerModel
from torch import Tensor, nn

from fairseq_plugins.layers.dropout import use_fast_dropout
from fairseq_plugins.layers.feed_forwards import FEED_FORWARDS
from fairseq_plugins.layers.sentence_pooling import ClassificationHead
from fairseq_plugins.options.fields import checked_options, option, options_of

from .efficient_transformer import EfficientTransformerModel, Encoder
from .options import (
    add_options,
    completing,
    fill_defaults,
    option_names,
    refuse_decoder_token_mixer,
    set_default,
    to_config,
    to_namespace,
)
from .plan import ModelPlan, plan_model, store_completed

MODEL_NAME = "encoder_classifier"
SENTENCE_POOLINGS = ("attention", "mean")
# unsupported options: those of decoders, and lengths, which the task sets (--max-positions)
_NOT_OF_AN_ENCODER = re.compile(
    r"(decoder|max|share|adaptive|tie|base|cross|merge|copy)_|no_(cross|decoder)_"
    r"|char_inputs$|encoder_layers_to_keep$|help$"
)


@dataclass
class EncoderClassifierOptions(FairseqDataclass):
    """Options that a classifier adds to those of an encoder."""

    sentence_pooling: ChoiceEnum(list(SENTENCE_POOLINGS)) = option(  # type: ignore[valid-type]
        "attention",
        "how the encoder's output becomes one vector: attention, as in Fastformer's code, or mean; "
        "only over real tokens",
    )


@register_model(MODEL_NAME)
class EncoderClassifierModel(FairseqEncoderModel):
    """The encoder of `EfficientTransformerModel`, with all its choices, and classification heads.

    For fairseq's criterion `sentence_prediction` and the task `classification`, or fairseq's own
    `sentence_prediction`. There are no decoder options. Texts need no start symbol, because all
    tokens contribute to the sentence vector.
    """

    head = ClassificationHead

    def __init__(self, encoder: Encoder, sentence_pooling: str, dropout: float):
        super().__init__(encoder)
        self.sentence_pooling, self.dropout = sentence_pooling, dropout
        self.classification_heads = nn.ModuleDict()

    @classmethod
    def add_args(cls, parser: ArgumentParser) -> None:
        everything = ArgumentParser(argument_default=SUPPRESS, allow_abbrev=False)
        TransformerModel.add_args(everything)
        add_options(everything)
        gen_parser_from_dataclass(everything, EncoderClassifierOptions(), delete_default=True)
        for action in everything._actions:
            if not _NOT_OF_AN_ENCODER.match(action.dest):
                with suppress(ArgumentError):  # fairseq-train has --cuda-graphs for every model
                    parser._add_action(action)

    @classmethod
    def build_model(cls, args: Any, task: Any) -> "EncoderClassifierModel":
        """Check the options, then build the model.

        Args:
            args: a Namespace (command line) or a DictConfig (YAML), with the architecture applied.
                Completed in place, so that a checkpoint holds the options of the model.
            task: has the dictionary and the maximum length.

        Raises:
            ConfigurationError: an option is unknown or cannot work.
        """
        with completing(args, cls):
            fill_classifier_defaults(args)
            plan, cfg = plan_encoder(args, task.max_positions())
            store_completed(plan, args)
        embedding = EfficientTransformerModel.build_embedding(
            cfg, task.source_dictionary, cfg.encoder.embed_dim, cfg.encoder.embed_path
        )
        # checkpoints contain the word vectors: loading must not need the file
        args.encoder_embed_path = None
        encoder = Encoder(cfg, task.source_dictionary, embedding, plan)
        model = cls(encoder, str(args.sentence_pooling), cfg.dropout)
        model.args = args  # fairseq's criterion and trainer read it
        if plan.fast_training:
            use_fast_dropout(model)
        return model

    @classmethod
    def option_names(cls) -> set[str]:
        """The names of all options that build a model."""
        return option_names(cls) | {"max_positions"}

    def forward(
        self,
        src_tokens: Tensor,
        src_lengths: Tensor | None = None,
        features_only: bool = True,
        classification_head_name: str | None = None,
    ) -> tuple[Tensor, dict[str, list[Tensor]]]:
        """Logits of the classes, or the encoder's output if no head is named.

        Args:
            src_tokens: B x T, padded on either side.
            src_lengths: not used.
            features_only: not used; fairseq's criterion passes it.
            classification_head_name: a name given to `register_classification_head`, or None.

        Returns:
            logits, B x classes, or without a head the encoder's output, B x T x d; and the
            dictionary that the encoder returns.
        """
        encoded = self.encoder(src_tokens, src_lengths)
        x, padding_mask = encoded["encoder_out"][0], encoded["encoder_padding_mask"][0]
        if classification_head_name is None:
            return x.transpose(0, 1), encoded
        return self.classification_heads[classification_head_name](x, padding_mask), encoded

    def register_classification_head(
        self, name: str, num_classes: int, inner_dim: int | None = None
    ) -> None:
        """Add a classification head. fairseq's task adds the head that its criterion trains.

        Args:
            name: the head's name for `forward`.
            num_classes: number of logits.
            inner_dim: not used; only RoBERTa's heads have a hidden layer.
        """
        dim = self.encoder.cfg.encoder.embed_dim
        self.classification_heads[name] = self.head(
            dim, num_classes, self.sentence_pooling, self.dropout
        )

    def get_normalized_probs(
        self, net_output: tuple[Tensor, Any], log_probs: bool, sample: Any = None
    ) -> Tensor:
        """(Log-)probabilities of the classes, B x classes, in float32."""
        scores = net_output[0].float()
        return F.log_softmax(scores, dim=-1) if log_probs else F.softmax(scores, dim=-1)


def fill_classifier_defaults(args: Any) -> None:
    """Complete the options that neither the user nor the architecture has set, in place.

    Raises:
        ConfigurationError: options disagree or cannot be parsed.
    """
    refuse_decoder_token_mixer(args)
    for declared in options_of(EncoderClassifierOptions):
        set_default(args, declared.name, declared.default)
    checked_options(EncoderClassifierOptions, args)
    completed = to_namespace(args)
    fill_defaults(completed)
    known = EncoderClassifierModel.option_names()
    for name, value in vars(completed).items():
        if name in known:  # the others belong to decoders
            setattr(args, name, value)


def plan_encoder(args: Any, max_positions: int) -> tuple[ModelPlan, Any]:
    """The plan and fairseq's configuration of a Transformer with this encoder and a dummy decoder.

    The decoder is never built. It has the encoder's sizes, so that its checks pass.
    """
    full = to_namespace(args)
    for size in ("embed_dim", "ffn_embed_dim", "attention_heads"):
        setattr(full, f"decoder_{size}", getattr(full, f"encoder_{size}"))
    full.decoder_layers = 1
    full.decoder_ffn = FEED_FORWARDS.default
    full.max_source_positions = full.max_target_positions = max_positions
    full.checkpoint_activations |= full.offload_activations
    fill_defaults(full)
    return plan_model(full), to_config(full)
