"""Named architectures: presets of defaults. Options on a command line or in YAML override them."""

from collections.abc import Callable
from typing import Any

from fairseq.models import register_model_architecture

from . import efficient_transformer, encoder_classifier
from .encoder_classifier import fill_classifier_defaults
from .options import fill_defaults, set_default

Preset = dict[str, Any]


def _sizes(dim: int, ffn_dim: int, heads: int, *sides: str) -> Preset:
    sizes = {"embed_dim": dim, "ffn_embed_dim": ffn_dim, "attention_heads": heads}
    return {f"{side}_{name}": size for side in sides for name, size in sizes.items()}


FTC = {"encoder_blocks": "3,3", "time_window": 2, "feature_window": 2}
DEEP, MID = ({"encoder_blocks": b, "decoder_layers": n} for b, n in (("6,6", 1), ("4,4", 3)))
FASTFORMER = {"encoder_token_mixer": "fastformer"}
MSCFFN = {"encoder_ffn": "mscffn", "decoder_ffn": "mscffn"}
# fairseq's transformer_iwslt_de_en, as in TransformerFTC, section 3.3
IWSLT = {**_sizes(512, 1024, 4, "encoder", "decoder"), "decoder_layers": 6}
# Fastformer's table 9 for summarization. The paper does not give the inner dimension of the
# feed-forward network; here it is 4 x 256.
SUMMARIES = {**_sizes(256, 1024, 16, "encoder", "decoder"), "decoder_layers": 4, "dropout": 0.2}
CNN_DM = {**SUMMARIES, "encoder_layers": 4, "max_source_positions": 2048}
PUBMED = {**SUMMARIES, "encoder_layers": 2, "max_source_positions": 4096}

ENCODER_DECODERS: dict[str, Preset] = {
    # the three ideas at the sizes of fairseq's transformer
    "transformer_ftc": FTC,
    "fastformer_encoder": FASTFORMER,
    "mscffn_transformer": MSCFFN,
    # "Feature+Time 2 x 3", "Feature 2 x 3" and "Time 2 x 3" of TransformerFTC's table 1
    "transformer_ftc_iwslt_de_en": {**IWSLT, **FTC},
    "transformer_fc_iwslt_de_en": {**IWSLT, **FTC, "time_window": 1},
    "transformer_tc_iwslt_de_en": {**IWSLT, **FTC, "feature_window": 1},
    # A deep encoder and a shallow decoder, proposed in the discussion of TransformerFTC (section 5,
    # after Kasai et al. 2020). Compression pays for a deeper encoder; generation is faster, because
    # most of its time is the decoder's. Multiply-adds of the matrix products per token, in units of
    # d^2, with as many target as source tokens and without the output projection: 8 for a full
    # encoder layer, 1.75 for the layer that pools, 1 for a pooled layer, 12 for a decoder layer.
    # Totals: 54.75 + 12 = 66.75 for this model, 27.75 + 72 = 99.75 for blocks of 3,3 with 6 decoder
    # layers, 48 + 72 = 120 for the Transformer.
    "transformer_ftc_deep_iwslt_de_en": {**IWSLT, **FTC, **DEEP},
    # Between both: 36.75 + 36 = 72.75 d^2, 0.61 of the Transformer's, with half of its decoder
    # layers. The deep preset needs 0.56 with a sixth of them: its gain is in generation.
    "transformer_ftc_mid_iwslt_de_en": {**IWSLT, **FTC, **MID},
    "fastformer_encoder_iwslt_de_en": {**IWSLT, **FASTFORMER},
    # The paper's 12 subspaces do not divide 512 features. The nearest number that does, 8, is used
    # (2.6 d^2 multiply-adds).
    "mscffn_transformer_iwslt_de_en": {**IWSLT, **MSCFFN},
    # Fastformer's table 9, and the same with pairs of positions pooled in the middle
    "fastformer_encoder_cnn_dm": {**CNN_DM, **FASTFORMER},
    "fastformer_encoder_pubmed": {**PUBMED, **FASTFORMER},
    "fastformer_tc_cnn_dm": {**CNN_DM, **FASTFORMER, "encoder_blocks": "2,2", "time_window": 2},
    "fastformer_tc_pubmed": {**PUBMED, **FASTFORMER, "encoder_blocks": "1,1", "time_window": 2},
    # the Transformers beside them in table 9
    "transformer_cnn_dm": {**CNN_DM, "max_source_positions": 512},
    "transformer_pubmed": {**PUBMED, "max_source_positions": 512},
}

# what all models of the Long-Range Arena share
ARENA = {"encoder_normalize_before": True, "activation_fn": "gelu", "dropout": 0.1}

CLASSIFIERS: dict[str, Preset] = {
    # the sizes of fairseq's transformer: 6 layers, 512/2048, 8 heads
    "encoder_classifier": {},
    # IMDB of Fastformer's table 9, which also has the windows, global tokens and Linformer's
    # projection. BigBird here counts blocks instead of tokens: with blocks of 4, the 2 global and 2
    # random blocks are the table's 8 tokens each, and a window of 3 blocks is nearest to its 8
    # tokens. Poolingformer's second window is 4 times as wide as its first.
    "encoder_classifier_imdb": {
        **_sizes(256, 1024, 16, "encoder"),
        "encoder_layers": 2,
        "dropout": 0.2,
        "longformer_window": 8,
        "longformer_global_tokens": 8,
        "bigbird_block": 4,
        "linformer_projected_length": 16,
    },
    # ListOps as in the paper of the Long-Range Arena; its code has 4 layers and an inner dimension
    # of 1,024
    "encoder_classifier_listops": {**_sizes(512, 2048, 8, "encoder"), "encoder_layers": 6, **ARENA},
    # text as in its code; its paper has the sizes of ListOps
    "encoder_classifier_byte_text": {
        **_sizes(256, 1024, 4, "encoder"),
        "encoder_layers": 4,
        **ARENA,
    },
    "encoder_classifier_image": {
        **_sizes(128, 128, 8, "encoder"),
        "encoder_layers": 1,
        **ARENA,
        "encoder_learned_pos": True,
        "dropout": 0.3,
        "attention_dropout": 0.2,
    },
}


def _register(model: str, presets: dict[str, Preset], fill: Callable[[Any], None]) -> None:
    for name, preset in presets.items():

        def architecture(args: Any, preset: Preset = preset) -> None:
            # the blocks decide the number of layers
            if "encoder_blocks" in preset:
                set_default(args, "encoder_blocks", preset["encoder_blocks"])
            has_blocks = getattr(args, "encoder_blocks", None) is not None
            for option, value in preset.items():
                if not (has_blocks and option == "encoder_layers"):
                    set_default(args, option, value)
            fill(args)

        register_model_architecture(model, name)(architecture)


_register(efficient_transformer.MODEL_NAME, ENCODER_DECODERS, fill_defaults)
_register(encoder_classifier.MODEL_NAME, CLASSIFIERS, fill_classifier_defaults)
