"""A decoder step and the selection of the best continuations as one ONNX graph.

The graph is written node by node instead of traced, for two reasons. onnxruntime has operators for
attention with a cache that torch's exporter cannot emit. And a traced graph computes the sizes of
its reshapes in every step.
"""

import math
from typing import Any

import onnx
import torch
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from torch import nn

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.layers.feed_forwards import MSCFFN, StandardFeedForward, SwitchFeedForward

from .candidates import add_logits, add_search, grouping
from .copying import add_copying, add_known
from .decoder_layers import ACTIVATIONS, add_layer, feed_forward_of
from .graph import Graph


def activation_name(model: Any) -> str:
    """The value of `--activation-fn` of a loaded model."""
    cfg = getattr(model, "cfg", None) or getattr(model, "args", None)
    return str(getattr(cfg, "activation_fn", "relu"))


def check(decoder: Any, activation: str) -> None:
    """Raise a ConfigurationError for a decoder that the graph cannot express.

    `architecture.check` must accept the model.
    """
    networks = [feed_forward_of(layer) for layer in decoder.layers]
    # a subclass with its own forward computes something else
    known = {ffn.forward for ffn in (MSCFFN, StandardFeedForward, SwitchFeedForward)}
    other = [
        type(ffn).__name__
        for ffn in networks
        if type(ffn).forward not in known and not isinstance(ffn, TransformerDecoderLayerBase)
    ]
    if activation not in ACTIVATIONS:
        reason = f"--activation-fn {activation}: use one of {', '.join(ACTIVATIONS)}"
    elif other:
        reason = f"the graph does not support its decoder's feed-forward network, {other[0]}"
    else:
        return
    raise ConfigurationError("the model cannot be exported: " + reason)


def build(decoder: Any, activation: str, max_positions: int) -> onnx.ModelProto:
    """The graph of one step for B sentences of n hypotheses, R = B n, for `onnx_backend`.

    Caches have one row per hypothesis and are never reordered: for each past position of a
    hypothesis, `ancestors` gives the row that holds its keys and values. A step writes into the
    caches in place: input and output share memory.

    The k best of the n V continuations are in the k groups of tokens with the best maxima, so only
    the members of these groups are sorted (see `torch_backend.grouped_top_k`).

    Args:
        decoder: in evaluation mode; `check` must accept it.
        activation: the value of --activation-fn.
        max_positions: maximum tokens of a hypothesis.

    Inputs:
        tokens: int64, B x n, the last token of each hypothesis. If the model copies, tokens from V
            on are subwords of the source that the dictionary lacks (see `torch_backend.unknown`).
        shape: int64, the three numbers B, n, -1.
        step: int32, one number: the tokens of each hypothesis before this step.
        width: int32, one number: n.
        totals: float, B x n, the scores of the hypotheses.
        ancestors: int32, B x n x capacity, numbers from 0 to n - 1.
        real: int32, B x S, 1 at real source tokens, else 0.
        forced: int64, B x n x 1, tokens whose log-probabilities `forced_scores` returns.
        count: int64, one number: k.
        sampling: bool, whether to return `log_probs`.
        source_keys_i, source_values_i: float, B x h x S x s, for each layer i.
        keys_i, values_i: float, R x h x capacity x s.
        source_words, source_places: int64, B x n x S, if the model copies: the source tokens, and
            for each one a position that all equal tokens of the sentence share.
        source_before: int64, B x n x S, if copying goes on (--copy-next): `find_before`, where
            unknown subwords have numbers from V on.

    Outputs:
        best_totals, best_tokens, parents: B x k, the best first.
        forced_scores: B x n x 1.
        copying, copy_gate: float, B x n x S and B x n x 1, if the model copies: the attention that
            copies, and the logit of g, the share of what is generated.
        log_probs: B x n x V', or empty; V' is V rounded up to whole groups.
        new_keys_i, new_values_i: the caches.
    """
    graph = Graph()
    graph.input("tokens", "int64", ["B", "n"])
    graph.input("shape", "int64", [3])
    graph.input("step", "int32", [1])
    graph.input("width", "int32", [1])
    graph.input("totals", "float", ["B", "n"])
    graph.input("ancestors", "int32", ["B", "n", "capacity"])
    graph.input("real", "int32", ["B", "S"])
    x = embedded = _embed(graph, decoder, max_positions)
    copying = getattr(decoder, "copying", None)
    for index, layer in enumerate(decoder.layers):
        copies = copying is not None and index == len(decoder.layers) - 1
        x = add_layer(graph, layer, index, x, activation, copies)
    if decoder.layer_norm is not None:
        x = graph.layer_norm(x, "layer_norm", decoder.layer_norm)
    if decoder.project_out_dim is not None:
        x = graph.linear(x, "project_out_dim", decoder.project_out_dim.weight)
    group, groups = grouping(decoder.output_projection.weight.size(0))
    logits = add_logits(graph, decoder.output_projection, x, groups * group)
    log_probs = graph.node("LogSoftmax", logits, axis=-1)
    if copying is not None:
        log_probs = add_copying(graph, copying, x, embedded, log_probs)
    add_search(graph, log_probs, group, groups)
    return graph.model()


def _embed(graph: Graph, decoder: Any, max_positions: int) -> str:
    """Tokens to B x n x d."""
    table = decoder.embed_tokens.weight.detach() * decoder.embed_scale
    copies = getattr(decoder, "copying", None) is not None
    tokens = add_known(graph, decoder.vocabulary) if copies else "tokens"
    x = graph.node("Gather", graph.weight("embed_tokens", table), tokens)
    if decoder.quant_noise is not None:  # fairseq adds a layer, which stays after training
        x = graph.linear(x, "quant_noise", decoder.quant_noise.weight)
    if decoder.embed_positions is not None:
        places = _positions(graph, decoder.embed_positions, max_positions)
        x = graph.node("Add", x, graph.node("Gather", places, "step"))
    if decoder.layernorm_embedding is not None:
        x = graph.layer_norm(x, "layernorm_embedding", decoder.layernorm_embedding)
    return x


def _positions(graph: Graph, module: Any, count: int) -> str:
    """Embeddings of positions, count x d.

    Sinusoids are written as operators on constants, which onnxruntime folds when it loads the
    graph. A stored table would be a large part of an 8-bit file.
    """
    first = (module.padding_idx or 0) + 1
    if isinstance(module, nn.Embedding):
        return graph.weight("embed_positions", module.weight[first : first + count])
    half = module.embedding_dim // 2
    rates = torch.exp(torch.arange(half, dtype=torch.float) * -(math.log(10000) / (half - 1)))
    bounds = [
        graph.number("position_" + name, value)
        for name, value in (("start", first), ("end", first + count), ("step", 1))
    ]
    places = graph.reshape(graph.node("Range", *bounds), -1, 1)
    angles = graph.node("Mul", places, graph.weight("rates", rates.unsqueeze(0)))
    parts = [graph.node("Sin", angles), graph.node("Cos", angles)]
    if module.embedding_dim % 2:
        parts.append(graph.node("Mul", places, graph.number("position_zero", 0)))
    return graph.node("Concat", *parts, axis=1)
