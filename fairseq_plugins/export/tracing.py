"""Trace a module of torch to an ONNX graph, with onnxruntime's own operators."""

import copy
import math
import warnings
from typing import Any

import onnx
import torch
from torch import Tensor, nn

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.layers.feed_forwards import MSCFFN, FeedForward, SwitchFeedForward
from fairseq_plugins.layers.token_mixers import TokenMixer
from fairseq_plugins.system.quiet import only_errors

from .architecture import bias_of

OPSET = 21
MICROSOFT = "com.microsoft::"  # onnxruntime's own operators
Inputs = dict[str, tuple[Tensor, dict[int, Any]]]  # an example, and the dimensions that vary


def trace(module: nn.Module, inputs: Inputs, outputs: list[str]) -> onnx.ModelProto:
    """The ONNX graph of a module whose forward takes a dictionary of tensors, `given`.

    Raises:
        ConfigurationError: torch's exporter fails.
    """
    # imported here: the exporter translates this function with onnxscript
    from onnxscript import opset21 as onnx_op

    def log_sigmoid(x: Any) -> Any:  # torch's own translation is the logarithm of 0 below -88
        return onnx_op.Neg(onnx_op.Softplus(onnx_op.Neg(x)))

    examples = {name: example for name, (example, _) in inputs.items()}
    with warnings.catch_warnings(), torch.no_grad(), only_errors():
        warnings.simplefilter("ignore")
        try:
            program: Any = torch.onnx.export(
                module.eval(),
                kwargs={"given": examples},
                dynamo=True,
                input_names=list(inputs),
                output_names=outputs,
                dynamic_shapes={"given": {name: varies for name, (_, varies) in inputs.items()}},
                opset_version=OPSET,
                custom_translation_table={torch.ops.aten.log_sigmoid.default: log_sigmoid},
                verbose=False,
                optimize=True,
            )
        except torch.onnx.OnnxExporterError as error:
            reason = str(error.__cause__ or error).strip().splitlines()[0]
            parts = (type(m) for m in module.modules() if isinstance(m, (TokenMixer, FeedForward)))
            names = ", ".join(sorted({part.__name__ for part in parts}))
            raise ConfigurationError(
                "the model cannot be exported: torch's exporter fails on its layers, made of "
                f"{names or 'fairseq layers'}: {reason}"
            ) from error
    traced: onnx.ModelProto = program.model_proto
    for node in traced.graph.node:  # they contain file names of this machine
        del node.metadata_props[:]
    return traced


def traceable(part: nn.Module) -> Any:
    """A copy of an encoder or decoder in float32, with the forms that can be traced."""
    part = copy.deepcopy(part).float()
    for module in list(part.modules()):
        if isinstance(module, MSCFFN):
            module.chunked = False
        for name, child in module.named_children():
            if isinstance(child, SwitchFeedForward):
                setattr(module, name, _AllExperts(child))
    return part


class _AllExperts(nn.Module):
    """A Switch network that computes all experts instead of sorting the positions."""

    def __init__(self, switch: SwitchFeedForward):
        super().__init__()
        self.switch = switch

    def forward(self, x: Tensor) -> Tensor:
        gate, chosen = self.switch._probabilities(x).max(dim=-1, keepdim=True)
        out = torch.zeros_like(x)
        for number, network in enumerate(self.switch.experts):
            out = torch.where(chosen == number, network(x), out)
        return out * gate


def stacked(projections: list[Any]) -> nn.Linear:
    """Several linear maps of one input as one map, with concatenated outputs."""
    weight = torch.cat([projection.weight.detach() for projection in projections])
    bias = torch.cat([bias_of(projection) for projection in projections])
    whole = nn.Linear(weight.size(1), weight.size(0))
    whole.weight.data, whole.bias.data = weight.float(), bias.float()
    return whole


def embedded_positions(module: Any, numbers: Tensor) -> Tensor:
    """fairseq's embeddings of positions, counted from 0: numbers to numbers x d.

    Sinusoids are computed; a stored table would be a large part of an 8-bit file.
    """
    numbers = numbers + (getattr(module, "padding_idx", None) or 0) + 1
    if isinstance(module, nn.Embedding):
        return nn.functional.embedding(numbers, module.weight)
    size = module.embedding_dim
    half = size // 2
    rates = torch.exp(torch.arange(half) * -(math.log(10000) / (half - 1)))
    angles = numbers.float().unsqueeze(1) * rates
    table = torch.cat([angles.sin(), angles.cos()], dim=1)
    return nn.functional.pad(table, (0, 1)) if size % 2 else table


def attend(heads: int, query: Tensor, keys: Tensor, values: Tensor, real: Tensor) -> Tensor:
    """onnxruntime's operator MultiHeadAttention.

    Args:
        heads: their number, h.
        query: B x t x d.
        keys, values: B x S x d or B x h x S x s.
        real: B x S, True or not 0 at real tokens.
    """
    return torch.onnx.ops.symbolic(
        MICROSOFT + "MultiHeadAttention",
        (query, keys, values, None, real.to(torch.int32)),
        attrs={"num_heads": heads},
        dtype=query.dtype,
        shape=query.shape,
        version=1,
    )
