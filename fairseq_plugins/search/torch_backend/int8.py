"""Quantisation to 8 bits, for generation on a CPU."""

import warnings
from typing import Any

import torch
from fairseq.modules import MultiheadAttention
from torch import nn
from torch.ao.quantization import (
    default_dynamic_qconfig,
    per_channel_dynamic_qconfig,
    quantize_dynamic,
)

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.layers.token_mixers import TokenMixer

ENGINES_WITH_SCALES_PER_OUTPUT = ("x86", "fbgemm", "onednn")


def quantize(model: Any) -> Any:
    """Quantise the linear maps in a model's layers and its output projection, in place.

    Dynamic quantisation: weights are stored in 8 bits with one scale per output, or one scale per
    matrix if torch's engine for this CPU has no scales per output. Inputs are rounded to 8 bits
    with one scale per call. Products are summed in 32 bits. Embeddings, LayerNorms, softmax, an
    adaptive softmax and MSCFFN's small subspace matrices are not quantised. Afterwards the model
    works only in evaluation mode and on a CPU.

    All inputs of a call share one scale, so the output may vary slightly with batch composition.

    Args:
        model: an encoder-decoder in float32 on a CPU.

    Returns:
        the same model, in evaluation mode.

    Raises:
        ConfigurationError: the model is not on a CPU or no Transformer, or this build of torch has
            no 8-bit products.
    """
    if model.decoder.embed_tokens.weight.device.type != "cpu":
        raise ConfigurationError("--int8 is for CPUs, but the model is on a GPU: add --cpu")
    for part in (model.encoder, model.decoder):
        if not hasattr(part, "layers"):
            raise ConfigurationError(
                f"--int8 is for Transformers, but this model has a {type(part).__name__}: remove it"
            )
    engine = torch.backends.quantized.engine
    if engine in (None, "none"):
        raise ConfigurationError("--int8: this build of torch has no 8-bit products for this CPU")
    per_channel = engine in ENGINES_WITH_SCALES_PER_OUTPUT
    config = per_channel_dynamic_qconfig if per_channel else default_dynamic_qconfig
    model.eval()
    for module in model.modules():
        if isinstance(module, MultiheadAttention):
            # else fairseq passes its weights to a function of torch that takes only floating point
            module.skip_embed_dim_check = True
        elif isinstance(module, TokenMixer):
            module.call_projections()
    with warnings.catch_warnings():  # torch warns that this function will move to another package
        warnings.simplefilter("ignore")
        for part in (model.encoder.layers, model.decoder.layers):
            quantize_dynamic(part, {nn.Linear: config}, inplace=True)
        if model.decoder.output_projection is not None:  # None with an adaptive softmax
            projection = nn.Sequential(model.decoder.output_projection)
            quantize_dynamic(projection, {nn.Linear: config}, inplace=True)
            model.decoder.output_projection = projection[0]
    return model
