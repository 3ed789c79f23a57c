"""Named architectures of classifiers: presets of defaults, which options override."""

from typing import Any

from fairseq.models import register_model_architecture

from .encoder_classifier import MODEL_NAME, fill_classifier_defaults
from .options import set_default


@register_model_architecture(MODEL_NAME, MODEL_NAME)
def encoder_classifier(args: Any) -> None:
    """The sizes of fairseq's `transformer`: 6 layers, 512/2048, 8 heads."""
    fill_classifier_defaults(args)


def _sizes(args: Any, dim: int, ffn_dim: int, heads: int, layers: int) -> None:
    set_default(args, "encoder_embed_dim", dim)
    set_default(args, "encoder_ffn_embed_dim", ffn_dim)
    set_default(args, "encoder_attention_heads", heads)
    if getattr(args, "encoder_blocks", None) is None:  # else the blocks decide the number of layers
        set_default(args, "encoder_layers", layers)


@register_model_architecture(MODEL_NAME, "encoder_classifier_imdb")
def encoder_classifier_imdb(args: Any) -> None:
    """IMDB of Fastformer's table 9: 2 layers, 256 features, 16 heads, dropout 0.2.

    Windows, global tokens and Linformer's projection are also the table's. BigBird here counts
    blocks instead of tokens: with blocks of 4, the 2 global and 2 random blocks are the table's 8
    tokens each, and a window of 3 blocks is nearest to its 8 tokens. Poolingformer's second window
    is 4 times as wide as its first. The table does not give the inner dimension of the feed-forward
    network; here it is 4 x 256.
    """
    _sizes(args, 256, 1024, 16, 2)
    set_default(args, "dropout", 0.2)
    set_default(args, "longformer_window", 8)
    set_default(args, "longformer_global_tokens", 8)
    set_default(args, "bigbird_block", 4)
    set_default(args, "linformer_projected_length", 16)
    encoder_classifier(args)


def _long_range_arena(args: Any) -> None:
    """Set what all models of the Long-Range Arena share: pre-norm, gelu, dropout 0.1."""
    set_default(args, "encoder_normalize_before", True)
    set_default(args, "activation_fn", "gelu")
    set_default(args, "dropout", 0.1)


@register_model_architecture(MODEL_NAME, "encoder_classifier_listops")
def encoder_classifier_listops(args: Any) -> None:
    """ListOps of the Long-Range Arena: 6 layers, 512/2048, 8 heads, as in its paper.

    Its code has 4 layers and an inner dimension of 1,024.
    """
    _sizes(args, 512, 2048, 8, 6)
    _long_range_arena(args)
    encoder_classifier(args)


@register_model_architecture(MODEL_NAME, "encoder_classifier_byte_text")
def encoder_classifier_byte_text(args: Any) -> None:
    """Text of the Long-Range Arena: 4 layers, 256/1024, 4 heads, as in its code.

    Its paper has the sizes of ListOps.
    """
    _sizes(args, 256, 1024, 4, 4)
    _long_range_arena(args)
    encoder_classifier(args)


@register_model_architecture(MODEL_NAME, "encoder_classifier_image")
def encoder_classifier_image(args: Any) -> None:
    """Image of the Long-Range Arena: 1 layer, 128/128, 8 heads, learned positions, dropout 0.3."""
    _sizes(args, 128, 128, 8, 1)
    set_default(args, "encoder_learned_pos", True)
    set_default(args, "dropout", 0.3)
    set_default(args, "attention_dropout", 0.2)
    _long_range_arena(args)
    encoder_classifier(args)
