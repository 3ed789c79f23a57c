"""Exports an ordinary Transformer with CTranslate2's own converter."""

import copy
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.layers.feed_forwards import StandardFeedForward
from fairseq_plugins.layers.token_mixers import SoftmaxAttention

from . import architecture


def write_ctranslate2(model: Any, task: Any, out: Path, int8: bool) -> None:
    """Write a folder that `ctranslate2.Translator` reads. Encoder and decoder may differ in depth.

    The converter's `_load` reads checkpoints in a way that torch >= 2.6 refuses, so this calls the
    converter's other functions on the loaded model.

    Args:
        model: a model of this package or of fairseq, in evaluation mode.
        task: the task, which has the dictionaries.
        out: a new or an empty folder.
        int8: whether to store 8-bit matrices.

    Raises:
        ConfigurationError: CTranslate2 is missing, or does not support a part of the model.
    """
    _check(model)
    try:
        from ctranslate2.converters import fairseq as converter
        from ctranslate2.converters.converter import Converter
    except ImportError:
        raise ConfigurationError(
            "--format ctranslate2 needs ctranslate2: pip install ctranslate2"
        ) from None
    model = copy.deepcopy(model)  # the converter changes parameters in place
    encoder, decoder = model.encoder, model.decoder
    activation = str(getattr(model.cfg, "activation_fn", "relu"))
    if activation not in converter._SUPPORTED_ACTIVATIONS:
        raise _unknown(f"--activation-fn {activation}")
    layers = [_fairseq_layer(layer) for layer in encoder.layers]
    spec = converter.transformer_spec.TransformerSpec.from_config(
        (len(layers), len(decoder.layers)),
        decoder.layers[0].self_attn.num_heads,
        pre_norm=layers[0].normalize_before,
        activation=converter._SUPPORTED_ACTIVATIONS[activation],
        layernorm_embedding=encoder.layernorm_embedding is not None,
    )

    class Loaded(Converter):
        def _load(self) -> Any:
            return spec

    model.requires_grad_(False)
    del encoder.layers  # nn.Module refuses a plain list in place of a submodule
    encoder.layers = layers
    with torch.no_grad():
        converter.set_transformer_encoder(spec.encoder, encoder)
        converter.set_transformer_decoder(spec.decoder, decoder)
    spec.register_source_vocabulary(converter._get_vocab(task.source_dictionary))
    spec.register_target_vocabulary(converter._get_vocab(task.target_dictionary))
    spec.config.decoder_start_token = spec.config.eos_token
    spec.config.add_source_eos = True
    Loaded().convert(str(out), quantization="int8" if int8 else None, force=True)


def largest_difference(
    folder: Path,
    task: Any,
    sources: list[list[int]],
    expected: list[tuple[list[int], float]],
    compute_type: str = "float32",
) -> float:
    """The largest score difference between CTranslate2 and torch, for torch's hypotheses.

    Args:
        folder: the CTranslate2 model.
        task: the task, which has the dictionaries.
        sources: tokens of each sentence, with the end symbol.
        expected: tokens and score of torch's hypothesis for each.
        compute_type: CTranslate2's compute type, such as "int8".
    """
    import ctranslate2

    def words(dictionary: Any, tokens: list[int]) -> list[str]:
        return [dictionary.symbols[token] for token in tokens[:-1]]  # without the end symbol

    translator = ctranslate2.Translator(str(folder), device="cpu", compute_type=compute_type)
    scored = translator.score_batch(
        [words(task.source_dictionary, tokens) for tokens in sources],
        [words(task.target_dictionary, tokens) for tokens, _ in expected],
        max_input_length=0,
    )
    differences = [
        abs(score - sum(found.log_probs) / len(tokens))
        for found, (tokens, score) in zip(scored, expected)
    ]
    return math.inf if any(map(math.isnan, differences)) else max(differences)


def _check(model: Any) -> None:
    """Raise a ConfigurationError for a model that CTranslate2 does not support."""
    architecture.check(model)
    encoder, decoder = model.encoder, model.decoder
    if getattr(decoder, "copying", None) is not None:
        raise _unknown("--copy-attention")
    layers = [*map(_fairseq_layer, encoder.layers), *decoder.layers]
    heads = {layer.self_attn.num_heads for layer in layers}
    positions = encoder.embed_positions, decoder.embed_positions
    before = {bool(layer.normalize_before) for layer in layers}
    for what, there in {
        "--encoder-layers 0": not len(encoder.layers),
        "its decoder": any(hasattr(layer, "ffn") for layer in decoder.layers),
        "--quant-noise-pq": decoder.quant_noise is not None,
        "--decoder-output-dim": decoder.project_out_dim is not None,
        "encoder and decoder with different numbers of heads": len(heads) > 1,
        "--no-token-positional-embeddings": None in positions,
        "LayerNorms before the layers of one side only": len(before) > 1,
        "--no-decoder-final-norm": before == {True} and decoder.layer_norm is None,
    }.items():
        if there:
            raise _unknown(what)


def _fairseq_layer(layer: Any) -> Any:
    """A view of an encoder layer with fairseq's attribute names."""
    if hasattr(layer, "self_attn"):
        return layer
    if (
        layer.starts_later_block
        or not isinstance(layer.mixer, SoftmaxAttention)
        or not isinstance(layer.ffn, StandardFeedForward)
    ):
        raise _unknown("compression, Fastformer or MSCFFN")
    return SimpleNamespace(
        self_attn=layer.mixer.attention,
        self_attn_layer_norm=layer.self_attn_layer_norm,
        final_layer_norm=layer.final_layer_norm,
        fc1=layer.ffn.fc1,
        fc2=layer.ffn.fc2,
        normalize_before=layer.normalize_before,
    )


def _unknown(what: str) -> ConfigurationError:
    return ConfigurationError(
        f"--format ctranslate2: CTranslate2 does not support {what}: use --format onnx"
    )
