"""Generation on a CPU with 8-bit matrix products."""

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
from fairseq_plugins.modules.token_mixers import TokenMixer

ENGINES_WITH_SCALES_PER_OUTPUT = ("x86", "fbgemm", "onednn")


def quantize(model: Any) -> Any:
    """Quantise the linear maps of a model's layers and its output projection, in place.

    Dynamic quantisation: weights are stored in 8 bits with one scale for each output (where
    torch's engine for this CPU has that), inputs are rounded to 8 bits with one scale for each
    call, and products are summed in 32 bits. Embeddings, LayerNorms, softmax, an adaptive softmax
    and MSCFFN's small subspace matrices stay as they are. The model can then only be evaluated, on
    a CPU.

    Because inputs share a scale, what is said of a sentence is no longer independent, to the last
    digit, of the batch it is in.

    Raises:
        ConfigurationError: the model is not in float32 on a CPU, or this build of torch has no
            8-bit products.
    """
    weight = model.decoder.embed_tokens.weight
    if weight.device.type != "cpu":
        raise ConfigurationError("--int8 is for the CPU and the model is on a GPU: add --cpu")
    if weight.dtype != torch.float32:
        raise ConfigurationError(
            "--int8 needs a model in float32, and this one is in {}".format(weight.dtype)
        )
    engine = torch.backends.quantized.engine
    if engine in (None, "none"):
        raise ConfigurationError("--int8: this build of torch has no 8-bit products for this CPU")
    per_channel = engine in ENGINES_WITH_SCALES_PER_OUTPUT
    config = per_channel_dynamic_qconfig if per_channel else default_dynamic_qconfig
    model.eval()
    for module in model.modules():
        if isinstance(module, MultiheadAttention):
            # else it hands its weights to a function of torch that knows floating point only
            module.skip_embed_dim_check = True
        elif isinstance(module, TokenMixer):
            module.call_projections()
    with warnings.catch_warnings():  # torch has announced that this will move to another package
        warnings.simplefilter("ignore")
        for part in (model.encoder.layers, model.decoder.layers):
            quantize_dynamic(part, {nn.Linear: config}, inplace=True)
        if model.decoder.output_projection is not None:  # an adaptive softmax has none
            projection = nn.Sequential(model.decoder.output_projection)
            quantize_dynamic(projection, {nn.Linear: config}, inplace=True)
            model.decoder.output_projection = projection[0]
    return model
