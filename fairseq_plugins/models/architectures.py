"""Named architectures: presets of defaults. Options on a command line or in YAML override them."""

from typing import Any

from fairseq.models import register_model_architecture

from .efficient_transformer import MODEL_NAME
from .options import fill_defaults, fill_fairseq_defaults, set_default


def _finish(args: Any) -> None:
    fill_defaults(args)
    fill_fairseq_defaults(args)


def _iwslt_de_en_sizes(args: Any) -> None:
    """Set the sizes of fairseq's transformer_iwslt_de_en, as in TransformerFTC, section 3.3."""
    for side in ("encoder", "decoder"):
        set_default(args, f"{side}_embed_dim", 512)
        set_default(args, f"{side}_ffn_embed_dim", 1024)
        set_default(args, f"{side}_attention_heads", 4)
    set_default(args, "decoder_layers", 6)


@register_model_architecture(MODEL_NAME, "transformer_ftc")
def transformer_ftc(args: Any) -> None:
    """TransformerFTC: 2 blocks of 3 layers, windows of 2 over time and features."""
    set_default(args, "encoder_blocks", "3,3")
    set_default(args, "time_window", 2)
    set_default(args, "feature_window", 2)
    _finish(args)


@register_model_architecture(MODEL_NAME, "fastformer_encoder")
def fastformer_encoder(args: Any) -> None:
    """Fastformer's additive attention in the encoder, softmax attention in the decoder."""
    set_default(args, "encoder_token_mixer", "fastformer")
    _finish(args)


@register_model_architecture(MODEL_NAME, "mscffn_transformer")
def mscffn_transformer(args: Any) -> None:
    """The Transformer with MSCFFN as every feed-forward network."""
    set_default(args, "encoder_ffn", "mscffn")
    set_default(args, "decoder_ffn", "mscffn")
    _finish(args)


@register_model_architecture(MODEL_NAME, "transformer_ftc_iwslt_de_en")
def transformer_ftc_iwslt_de_en(args: Any) -> None:
    """The model "Feature+Time 2 x 3" of TransformerFTC's table 1."""
    _iwslt_de_en_sizes(args)
    transformer_ftc(args)


@register_model_architecture(MODEL_NAME, "transformer_fc_iwslt_de_en")
def transformer_fc_iwslt_de_en(args: Any) -> None:
    """The model "Feature 2 x 3" of TransformerFTC's table 1."""
    set_default(args, "time_window", 1)
    transformer_ftc_iwslt_de_en(args)


@register_model_architecture(MODEL_NAME, "transformer_tc_iwslt_de_en")
def transformer_tc_iwslt_de_en(args: Any) -> None:
    """The model "Time 2 x 3" of TransformerFTC's table 1."""
    set_default(args, "feature_window", 1)
    transformer_ftc_iwslt_de_en(args)


@register_model_architecture(MODEL_NAME, "transformer_ftc_deep_iwslt_de_en")
def transformer_ftc_deep_iwslt_de_en(args: Any) -> None:
    """A deep encoder and a shallow decoder: blocks of 6 and 6 layers, one decoder layer.

    Proposed in the discussion of TransformerFTC (section 5, after Kasai et al. 2020). Compression
    pays for a deeper encoder. Generation is faster, because most of its time is the decoder's.

    Multiply-adds of the matrix products per token, in units of d^2, with as many target as source
    tokens and without the output projection: 8 for a full encoder layer, 1.75 for the layer that
    pools, 1 for a pooled layer, 12 for a decoder layer. Totals: 54.75 + 12 = 66.75 for this model,
    27.75 + 72 = 99.75 for blocks of 3,3 with 6 decoder layers, 48 + 72 = 120 for the Transformer.
    """
    set_default(args, "encoder_blocks", "6,6")
    set_default(args, "decoder_layers", 1)
    transformer_ftc_iwslt_de_en(args)


@register_model_architecture(MODEL_NAME, "transformer_ftc_mid_iwslt_de_en")
def transformer_ftc_mid_iwslt_de_en(args: Any) -> None:
    """Between the 3,3 and the deep preset: blocks of 4 and 4 layers, three decoder layers.

    Counted as for the deep preset, one more layer in each block adds 9 d^2, and three fewer decoder
    layers save 36 d^2. The total is 36.75 + 36 = 72.75 d^2, 0.61 of the Transformer's, with half of
    its decoder layers. The deep preset needs 0.56 with a sixth of them: little less for training;
    its gain is in generation.
    """
    set_default(args, "encoder_blocks", "4,4")
    set_default(args, "decoder_layers", 3)
    transformer_ftc_iwslt_de_en(args)


@register_model_architecture(MODEL_NAME, "fastformer_encoder_iwslt_de_en")
def fastformer_encoder_iwslt_de_en(args: Any) -> None:
    """fastformer_encoder with the sizes of fairseq's transformer_iwslt_de_en."""
    _iwslt_de_en_sizes(args)
    fastformer_encoder(args)


@register_model_architecture(MODEL_NAME, "mscffn_transformer_iwslt_de_en")
def mscffn_transformer_iwslt_de_en(args: Any) -> None:
    """mscffn_transformer with the sizes of fairseq's transformer_iwslt_de_en.

    The paper's 12 subspaces do not divide 512 features. The nearest number that does, 8, is used
    (2.6 d^2 multiply-adds).
    """
    _iwslt_de_en_sizes(args)
    mscffn_transformer(args)


def _summarization_sizes(args: Any, encoder_layers: int, max_source_positions: int) -> None:
    """Set Fastformer's table 9 for summarization: 256 features, 16 heads, dropout 0.2.

    The paper does not give the inner dimension of the feed-forward network; here it is 4 x 256.
    """
    for side in ("encoder", "decoder"):
        set_default(args, f"{side}_embed_dim", 256)
        set_default(args, f"{side}_ffn_embed_dim", 1024)
        set_default(args, f"{side}_attention_heads", 16)
    if getattr(args, "encoder_blocks", None) is None:  # else the blocks decide the number of layers
        set_default(args, "encoder_layers", encoder_layers)
    set_default(args, "decoder_layers", 4)
    set_default(args, "dropout", 0.2)
    set_default(args, "max_source_positions", max_source_positions)


@register_model_architecture(MODEL_NAME, "fastformer_encoder_cnn_dm")
def fastformer_encoder_cnn_dm(args: Any) -> None:
    """CNN/DailyMail of Fastformer's table 9: 4 + 4 layers, documents of 2,048 tokens."""
    _summarization_sizes(args, encoder_layers=4, max_source_positions=2048)
    fastformer_encoder(args)


@register_model_architecture(MODEL_NAME, "fastformer_encoder_pubmed")
def fastformer_encoder_pubmed(args: Any) -> None:
    """PubMed of Fastformer's table 9: 2 + 4 layers, documents of 4,096 tokens."""
    _summarization_sizes(args, encoder_layers=2, max_source_positions=4096)
    fastformer_encoder(args)


@register_model_architecture(MODEL_NAME, "fastformer_tc_cnn_dm")
def fastformer_tc_cnn_dm(args: Any) -> None:
    """fastformer_encoder_cnn_dm with pairs of positions pooled for its last 2 encoder layers."""
    set_default(args, "encoder_blocks", "2,2")
    set_default(args, "time_window", 2)
    fastformer_encoder_cnn_dm(args)


@register_model_architecture(MODEL_NAME, "fastformer_tc_pubmed")
def fastformer_tc_pubmed(args: Any) -> None:
    """fastformer_encoder_pubmed with pairs of positions pooled for its second encoder layer."""
    set_default(args, "encoder_blocks", "1,1")
    set_default(args, "time_window", 2)
    fastformer_encoder_pubmed(args)


@register_model_architecture(MODEL_NAME, "transformer_cnn_dm")
def transformer_cnn_dm(args: Any) -> None:
    """The Transformer baseline of fastformer_encoder_cnn_dm in table 9: documents of 512 tokens."""
    _summarization_sizes(args, encoder_layers=4, max_source_positions=512)
    _finish(args)


@register_model_architecture(MODEL_NAME, "transformer_pubmed")
def transformer_pubmed(args: Any) -> None:
    """The Transformer baseline of fastformer_encoder_pubmed in table 9: documents of 512 tokens."""
    _summarization_sizes(args, encoder_layers=2, max_source_positions=512)
    _finish(args)
