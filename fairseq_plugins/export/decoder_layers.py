"""The layers of a decoder step, written into an ONNX graph.

Each function adds the nodes of one part of a layer and returns the name of its result.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from onnx import helper
from torch import nn

from fairseq_plugins.layers.feed_forwards import MSCFFN, SwitchFeedForward

from .architecture import bias_of
from .copying import COPYING_WEIGHTS
from .graph import MICROSOFT, TYPES, Graph

ACTIVATIONS = {
    "relu": ("Relu", {}),
    "gelu": ("Gelu", {}),
    "gelu_accurate": ("Gelu", {"approximate": "tanh"}),
    "gelu_fast": ("Gelu", {"approximate": "tanh"}),
    "tanh": ("Tanh", {}),
    "linear": ("Identity", {}),
}


def add_layer(graph: Graph, layer: Any, index: int, x: str, activation: str, copies: bool) -> str:
    """fairseq's decoder layer on B x n x d."""
    name = f"layers.{index}"

    def residual(x: str, norm: str, compute: Callable[[str], str]) -> str:
        module, norm = getattr(layer, norm), f"{name}.{norm}"
        if layer.normalize_before:
            return graph.node("Add", x, compute(graph.layer_norm(x, norm, module)))
        return graph.layer_norm(graph.node("Add", x, compute(x)), norm, module)

    for norm, compute in (
        ("self_attn_layer_norm", _read_target),
        ("encoder_attn_layer_norm", partial(_read_source, copies=copies)),
        ("final_layer_norm", partial(_feed_forward, activation=activation)),
    ):
        x = residual(x, norm, partial(compute, graph, layer, index))
    return x


def source_projection(decoder: Any) -> nn.Linear:
    """One linear map to the source keys and values of all layers, d to 2 L d."""
    attentions = [layer.encoder_attn for layer in decoder.layers]
    return stacked([p for a in attentions for p in (a.k_proj, a.v_proj)])


def stacked(projections: list[Any]) -> nn.Linear:
    """Several linear maps of one input as one map, with concatenated outputs."""
    weight = torch.cat([projection.weight.detach() for projection in projections])
    bias = torch.cat([bias_of(projection) for projection in projections])
    whole = nn.Linear(weight.size(1), weight.size(0))
    whole.weight.data, whole.bias.data = weight.float(), bias.float()
    return whole


def feed_forward_of(layer: Any) -> Any:
    """The feed-forward network of a layer; fairseq's layer itself has fc1 and fc2."""
    return getattr(layer, "ffn", layer)


def _read_target(graph: Graph, layer: Any, index: int, x: str) -> str:
    attention, name = layer.self_attn, f"layers.{index}.self_attn"
    heads = attention.num_heads
    merged = stacked([attention.q_proj, attention.k_proj, attention.v_proj])
    x = graph.linear(x, name + ".qkv", merged.weight, merged.bias)
    query, key, value = graph.split(graph.reshape(x, -1, 1, 3 * attention.embed_dim), 3, axis=-1)
    cache = ["R", heads, "capacity", attention.head_dim]
    kinds = [f"{kind}_{index}" for kind in ("keys", "values")]
    inputs = [query, key, value, "", ""]
    inputs += [graph.input(kind, "float", cache) for kind in kinds]
    inputs += ["step", "width", "ancestors"]
    outputs = [name] + [graph.output("new_" + kind, "float", cache) for kind in kinds]
    graph.nodes.append(
        helper.make_node(
            "DecoderMaskedMultiHeadAttention",
            inputs,
            outputs,
            name,
            domain=MICROSOFT,
            num_heads=heads,
            past_present_share_buffer=1,
        )
    )
    out = attention.out_proj
    return graph.linear(graph.node("Reshape", name, "shape"), name + ".out", out.weight, out.bias)


def _read_source(graph: Graph, layer: Any, index: int, x: str, copies: bool) -> str:
    attention, name = layer.encoder_attn, f"layers.{index}.encoder_attn"
    heads, query, out = attention.num_heads, attention.q_proj, attention.out_proj
    x = graph.linear(x, name + ".q", query.weight, query.bias)
    memory = [
        graph.input(f"source_{kind}_{index}", "float", ["B", heads, "S", attention.head_dim])
        for kind in ("keys", "values")
    ]
    if copies:
        x = _read_with_weights(graph, x, memory, heads, attention.head_dim)
    else:
        x = graph.node(
            "MultiHeadAttention", x, *memory, "", "real", domain=MICROSOFT, num_heads=heads
        )
    return graph.linear(x, name + ".out", out.weight, out.bias)


def _read_with_weights(graph: Graph, x: str, memory: list[str], heads: int, size: int) -> str:
    """MultiHeadAttention in single steps, which also gives the weights that copy, B x n x S."""
    keys, values = memory
    scaling = graph.number("scaling", size**-0.5)
    x = graph.node("Mul", graph.reshape(x, 0, 0, heads, size), scaling)
    x = graph.node("Transpose", x, perm=[0, 2, 1, 3])
    scores = graph.node("MatMul", x, graph.node("Transpose", keys, perm=[0, 1, 3, 2]))
    choices = graph.number("visible", 0.0), graph.number("hidden", -math.inf)
    hidden = graph.node("Where", graph.node("Cast", "real", to=TYPES["bool"]), *choices)
    hidden = graph.node("Unsqueeze", hidden, graph.numbers(1, 2))
    weights = graph.node("Softmax", graph.node("Add", scores, hidden), axis=-1)
    graph.node("ReduceMean", weights, graph.numbers(1), keepdims=0, name=COPYING_WEIGHTS)
    x = graph.node("Transpose", graph.node("MatMul", weights, values), perm=[0, 2, 1, 3])
    return graph.reshape(x, 0, 0, heads * size)


def _feed_forward(graph: Graph, layer: Any, index: int, x: str, activation: str) -> str:
    ffn, name = feed_forward_of(layer), f"layers.{index}"
    if isinstance(ffn, MSCFFN):
        return _mscffn(graph, ffn, name + ".ffn", x)
    if isinstance(ffn, SwitchFeedForward):
        return _switch(graph, ffn, name + ".ffn", x, activation)
    return _standard(graph, ffn, name, x, activation)


def _standard(graph: Graph, ffn: Any, name: str, x: str, activation: str) -> str:
    x = graph.linear(x, name + ".fc1", ffn.fc1.weight, ffn.fc1.bias)
    operator, attributes = ACTIVATIONS[activation]
    x = graph.node(operator, x, **attributes)
    return graph.linear(x, name + ".fc2", ffn.fc2.weight, ffn.fc2.bias)


def _mscffn(graph: Graph, ffn: MSCFFN, name: str, x: str) -> str:
    """Equations 6 to 10 of `MSCFFN`, with the odd subspaces (the gates) before the even ones."""
    n, size = ffn.subspaces, ffn.embed_dim // ffn.subspaces
    order = [*range(0, n, 2), *range(1, n, 2)]
    weight = ffn.in_proj.weight.view(n, size, -1)[order].flatten(0, 1)
    bias = ffn.in_proj.bias.view(n, size)[order].flatten()
    x = graph.linear(x, name + ".in", weight, bias)
    x = graph.node("Transpose", graph.reshape(x, -1, n, size), perm=[1, 0, 2])

    def product(x: str, part: str, weight: torch.Tensor, bias: torch.Tensor) -> str:
        x = graph.node("MatMul", x, graph.weight(f"{name}.{part}.weight", weight))
        return graph.node("Add", x, graph.weight(f"{name}.{part}.bias", bias))

    x = product(x, "expand", ffn.expand_weight[order], ffn.expand_bias[order])
    gate, value = graph.split(x, 2, axis=0)
    x = graph.node("Mul", graph.node("Relu", gate), value)
    x = product(x, "contract", ffn.contract_weight, ffn.contract_bias)
    x = graph.node("Reshape", graph.node("Transpose", x, perm=[1, 0, 2]), "shape")
    return graph.linear(x, name + ".out", ffn.out_proj.weight, ffn.out_proj.bias)


def _switch(graph: Graph, ffn: SwitchFeedForward, name: str, x: str, activation: str) -> str:
    """All experts, and the one chosen by the router: a step has too few rows to sort them."""
    last = graph.numbers(-1)
    shares = graph.node("Softmax", graph.linear(x, name + ".router", ffn.router), axis=-1)
    gate = graph.node("ReduceMax", shares, last, keepdims=1)
    expert = graph.node("ArgMax", shares, axis=-1, keepdims=1)
    out = ""
    for number, network in enumerate(ffn.experts):
        own = _standard(graph, network, f"{name}.experts.{number}", x, activation)
        chosen = graph.node("Equal", expert, graph.numbers(number))
        out = graph.node("Where", chosen, own, out) if out else own
    return graph.node("Mul", out, gate)
