"""A decoder step and the selection of the best continuations as one ONNX graph.

The graph is written node by node, not traced, for two reasons. onnxruntime has operators for
attention with a cache that torch's exporter cannot emit. And a traced graph computes the sizes of
its reshapes in every step.
"""

import math
from functools import partial
from typing import Any, Callable, List, Optional, Tuple

import numpy as np
import onnx
import torch
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase
from onnx import helper
from torch import nn

from fairseq_plugins.errors import ConfigurationError
from fairseq_plugins.modules.copy_attention import CopyAttention
from fairseq_plugins.modules.feed_forward import MSCFFN, StandardFeedForward, SwitchFeedForward
from fairseq_plugins.serving.shortlist import GROUP as GROUP_OF_SHORTLIST
from fairseq_plugins.serving.shortlist import ZERO

from .graph import MICROSOFT, TYPES, Graph

ACTIVATIONS = {
    "relu": ("Relu", {}),
    "gelu": ("Gelu", {}),
    "gelu_accurate": ("Gelu", {"approximate": "tanh"}),
    "gelu_fast": ("Gelu", {"approximate": "tanh"}),
    "tanh": ("Tanh", {}),
    "linear": ("Identity", {}),
}
GROUP = 64  # the most tokens in a group, see `build`
COPYING_WEIGHTS = "copying.weights"
OF_SOURCE = ["B", "n", "S"]
FILLER = -math.inf  # logit of tokens that fill up the last group


def activation_name(model: Any) -> str:
    """The value of `--activation-fn` of a loaded model."""
    cfg = getattr(model, "cfg", None) or getattr(model, "args", None)
    return str(getattr(cfg, "activation_fn", "relu"))


def check(decoder: Any, activation: str) -> None:
    """Raise ConfigurationError for a decoder that the graph cannot express.

    `architecture.check` must accept the model.
    """
    networks = [_network(layer) for layer in decoder.layers]
    # a subclass with a forward of its own computes something else
    known = {ffn.forward for ffn in (MSCFFN, StandardFeedForward, SwitchFeedForward)}
    other = [
        type(ffn).__name__
        for ffn in networks
        if type(ffn).forward not in known and not isinstance(ffn, TransformerDecoderLayerBase)
    ]
    if activation not in ACTIVATIONS:
        reason = f"--activation-fn {activation}: use one of {', '.join(ACTIVATIONS)}"
    elif other:
        reason = f"the graph does not know its decoder's feed-forward network, {other[0]}"
    else:
        return
    raise ConfigurationError("the model cannot be exported: " + reason)


def _network(layer: Any) -> Any:
    """The feed-forward network of a layer; fairseq's layer itself has fc1 and fc2."""
    return getattr(layer, "ffn", layer)


def build(
    decoder: Any, activation: str, max_positions: int, shortlist: Optional[str] = None
) -> onnx.ModelProto:
    """The graph of one step for B sentences of n hypotheses, R = B n; `serving.search` runs it.

    Caches have one row per hypothesis and are never reordered: for each past position of a
    hypothesis, `ancestors` names the row that holds its keys and values. A step writes its own into
    the caches in place: input and output share memory.

    The k best of the n V continuations are in the k groups of tokens with the best maxima, so only
    the members of these groups are sorted (see `generation.beam_search`).

    With a shortlist the vocabulary is an input: the V words that a batch may write, where V is a
    multiple of `serving.shortlist.GROUP`.

    Args:
        decoder: in evaluation mode; `check` must accept it.
        activation: the value of --activation-fn.
        max_positions: the most tokens of a hypothesis.
        shortlist: None for the whole vocabulary, else "float32" or "int8", the type of the words'
            vectors.

    Inputs:
        tokens: int64, B x n, the last token of each hypothesis.
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
        source_words, source_places: int64, B x n x S, if the model copies: the source tokens (with
            a shortlist, their positions in it), and for each one a position that all equal tokens
            of the sentence share.
        source_before: int64, B x n x S, if copying goes on (--copy-next): `find_before`.
        words, word_vectors, word_biases, word_scales, groups: with a shortlist, the numbers of its
            words, int64, V; their vectors, d x V; biases, V; the scales of uint8 vectors, V; and
            the number of groups, int64.

    Outputs:
        best_totals, best_tokens, parents: B x k, the best first.
        forced_scores: B x n x 1.
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
    for index, layer in enumerate(decoder.layers):
        x = _layer(graph, layer, index, x, activation, copying_heads(decoder, index))
    if decoder.layer_norm is not None:
        x = graph.layer_norm(x, "layer_norm", decoder.layer_norm)
    if decoder.project_out_dim is not None:
        x = graph.linear(x, "project_out_dim", decoder.project_out_dim.weight)
    if shortlist is None:
        group, groups = grouping(decoder.output_projection.weight.size(0))
        number = graph.numbers(groups)
        logits = _logits(graph, decoder.output_projection, x, groups * group)
    else:
        group, number = GROUP_OF_SHORTLIST, graph.input("groups", "int64", [1])
        logits = _logits_of_shortlist(graph, x, decoder.output_projection, shortlist == "int8")
    log_probs = graph.node("LogSoftmax", logits, axis=-1)
    if getattr(decoder, "copying", None) is not None:
        log_probs = _copy(graph, decoder.copying, x, embedded, log_probs)
    if shortlist is None:
        _search(graph, log_probs, group, number, "best_tokens")
    else:
        _search(graph, log_probs, group, number, "best_places")
        words = graph.input("words", "int64", ["V"])
        graph.node("Gather", words, "best_places", name="best_tokens")
    return graph.model()


def copying_heads(decoder: Any, index: int) -> int:
    """The number of heads of layer `index` whose attention copies; 0 if it does not copy."""
    copying = getattr(decoder, "copying", None)
    layers = len(decoder.layers)
    if copying is None or index != (-1 if copying.layer is None else copying.layer) % layers:
        return 0
    return int(copying.heads or decoder.layers[index].encoder_attn.num_heads)


def grouping(vocabulary: int) -> Tuple[int, int]:
    """The size and the number of the groups of tokens, see `build`."""
    group = max(1, min(GROUP, vocabulary // GROUP))
    return group, math.ceil(vocabulary / group)


def source_projection(decoder: Any) -> nn.Linear:
    """One linear map to the source keys and values of all layers, d to 2 L d."""
    attentions = [layer.encoder_attn for layer in decoder.layers]
    return stacked([p for a in attentions for p in (a.k_proj, a.v_proj)])


def stacked(projections: List[Any]) -> nn.Linear:
    """Several linear maps of the same input as one, with their outputs concatenated."""
    weight = torch.cat([projection.weight.detach() for projection in projections])
    biases = [
        projection.weight.new_zeros(projection.weight.size(0))
        if projection.bias is None
        else projection.bias.detach()
        for projection in projections
    ]
    whole = nn.Linear(weight.size(1), weight.size(0))
    whole.weight.data, whole.bias.data = weight.float(), torch.cat(biases).float()
    return whole


def _embed(graph: Graph, decoder: Any, max_positions: int) -> str:
    """Tokens to B x n x d."""
    table = decoder.embed_tokens.weight.detach() * decoder.embed_scale
    x = graph.node("Gather", graph.weight("embed_tokens", table), "tokens")
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
        graph.weight("position_" + name, np.array(value, np.float32))
        for name, value in (("start", first), ("end", first + count), ("step", 1))
    ]
    places = graph.reshape(graph.node("Range", *bounds), -1, 1)
    angles = graph.node("Mul", places, graph.weight("rates", rates.unsqueeze(0)))
    parts = [graph.node("Sin", angles), graph.node("Cos", angles)]
    if module.embedding_dim % 2:
        parts.append(graph.node("Mul", places, graph.weight("zero", np.zeros((1, 1), np.float32))))
    return graph.node("Concat", *parts, axis=1)


def _layer(
    graph: Graph, layer: Any, index: int, x: str, activation: str, copying_heads: int
) -> str:
    """fairseq's decoder layer on B x n x d."""
    name = f"layers.{index}"

    def residual(x: str, norm: str, compute: Callable[[str], str]) -> str:
        module, norm = getattr(layer, norm), f"{name}.{norm}"
        if layer.normalize_before:
            return graph.node("Add", x, compute(graph.layer_norm(x, norm, module)))
        return graph.layer_norm(graph.node("Add", x, compute(x)), norm, module)

    for norm, compute in (
        ("self_attn_layer_norm", _read_target),
        ("encoder_attn_layer_norm", partial(_read_source, copying_heads=copying_heads)),
        ("final_layer_norm", partial(_feed_forward, activation=activation)),
    ):
        x = residual(x, norm, partial(compute, graph, layer, index))
    return x


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


def _read_source(graph: Graph, layer: Any, index: int, x: str, copying_heads: int) -> str:
    attention, name = layer.encoder_attn, f"layers.{index}.encoder_attn"
    heads, query, out = attention.num_heads, attention.q_proj, attention.out_proj
    x = graph.linear(x, name + ".q", query.weight, query.bias)
    memory = [
        graph.input(f"source_{kind}_{index}", "float", ["B", heads, "S", attention.head_dim])
        for kind in ("keys", "values")
    ]
    if copying_heads:
        x = _read_with_weights(graph, x, memory, heads, attention.head_dim, copying_heads)
    else:
        x = graph.node(
            "MultiHeadAttention", x, *memory, "", "real", domain=MICROSOFT, num_heads=heads
        )
    return graph.linear(x, name + ".out", out.weight, out.bias)


def _read_with_weights(
    graph: Graph, x: str, memory: List[str], heads: int, size: int, copying_heads: int
) -> str:
    """MultiHeadAttention in single steps, which also gives the weights that copy, B x n x S."""
    keys, values = memory
    scaling = graph.weight("scaling", np.array(size**-0.5, np.float32))
    x = graph.node("Mul", graph.reshape(x, 0, 0, heads, size), scaling)
    x = graph.node("Transpose", x, perm=[0, 2, 1, 3])
    scores = graph.node("MatMul", x, graph.node("Transpose", keys, perm=[0, 1, 3, 2]))
    choices = [
        graph.weight(name, np.array(value, np.float32))
        for name, value in (("visible", 0.0), ("hidden", FILLER))
    ]
    hidden = graph.node("Where", graph.node("Cast", "real", to=TYPES["bool"]), *choices)
    hidden = graph.node("Unsqueeze", hidden, graph.numbers(1, 2))
    weights = graph.node("Softmax", graph.node("Add", scores, hidden), axis=-1)
    copying = weights
    if copying_heads < heads:
        bounds = [graph.numbers(number) for number in (0, copying_heads, 1)]
        copying = graph.node("Slice", weights, *bounds)
    graph.node("ReduceMean", copying, graph.numbers(1), keepdims=0, name=COPYING_WEIGHTS)
    x = graph.node("Transpose", graph.node("MatMul", weights, values), perm=[0, 2, 1, 3])
    return graph.reshape(x, 0, 0, heads * size)


def _copy(graph: Graph, copying: CopyAttention, x: str, embedded: str, log_probs: str) -> str:
    """Log-probabilities of the mixture of generating and copying, see `CopyAttention`."""
    both = graph.node("Concat", x, embedded, axis=-1)
    gate = graph.linear(both, "copying.gate", copying.gate.weight, copying.gate.bias)
    words, places = (
        graph.input(f"source_{name}", "int64", OF_SOURCE) for name in ("words", "places")
    )
    attention = COPYING_WEIGHTS
    if copying.next is not None:
        attention = _go_on(graph, copying.next, both, attention)
    nothing = graph.node("Mul", attention, _number(graph, "zero", 0))
    mass = graph.node("ScatterElements", nothing, places, attention, axis=2, reduction="add")
    mass = graph.node("GatherElements", mass, places, axis=2)
    log_odds = graph.node("Sub", graph.node("Log", mass), gate)
    log_generate = graph.node("Neg", graph.node("Softplus", graph.node("Neg", gate)))
    generated = graph.node("GatherElements", log_probs, words, axis=2)
    copied = graph.node("Softplus", graph.node("Sub", log_odds, generated))
    mixed = graph.node("Add", graph.node("Add", generated, log_generate), copied)
    log_probs = graph.node("Add", log_probs, log_generate)
    return graph.node("ScatterElements", log_probs, words, mixed, axis=2)


def _go_on(graph: Graph, gate: nn.Linear, both: str, attention: str) -> str:
    """The attention that can go on copying after the word last written, see `CopyAttention`."""
    least = _number(graph, "least attention", 1e-4)
    before = graph.input("source_before", "int64", OF_SOURCE)
    follows = graph.node("Equal", before, graph.node("Unsqueeze", "tokens", graph.numbers(-1)))
    follows = graph.node("Cast", follows, to=TYPES["float"])
    following = graph.node("Mul", graph.node("Add", attention, least), follows)
    total = graph.node("ReduceSum", following, graph.numbers(-1), keepdims=1)
    some = graph.node("ReduceMax", follows, graph.numbers(-1), keepdims=1)
    share = graph.linear(both, "copying.next", gate.weight, gate.bias)
    share = graph.node("Mul", graph.node("Sigmoid", share), some)
    following = graph.node("Div", following, graph.node("Max", total, least))
    rest = graph.node("Sub", _number(graph, "one", 1), share)
    parts = graph.node("Mul", rest, attention), graph.node("Mul", share, following)
    return graph.node("Add", *parts)


def _number(graph: Graph, name: str, value: float) -> str:
    return graph.weight(name, np.array(value, np.float32))


def _feed_forward(graph: Graph, layer: Any, index: int, x: str, activation: str) -> str:
    ffn, name = _network(layer), f"layers.{index}"
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
    """All experts, and the one that the router chooses: a step has too few rows to sort them."""
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


def _logits(graph: Graph, projection: Any, x: str, count: int) -> str:
    """B x n x count; the last ones have no word."""
    filler = count - projection.weight.size(0)
    weight = nn.functional.pad(projection.weight.detach(), (0, 0, 0, filler))
    bias = nn.functional.pad(_bias(projection), (0, filler), value=FILLER)
    return graph.linear(x, "output_projection", weight, bias)


def _bias(projection: Any) -> torch.Tensor:
    if projection.bias is None:
        return projection.weight.detach().new_zeros(projection.weight.size(0))
    return projection.bias.detach()


def _logits_of_shortlist(graph: Graph, x: str, projection: Any, int8: bool) -> str:
    """B x n x V for the words in the inputs."""
    kind = "uint8" if int8 else "float"
    vectors = graph.input("word_vectors", kind, [projection.weight.size(1), "V"])
    bias = graph.input("word_biases", "float", ["V"])
    if not int8:
        return graph.node("Add", graph.node("MatMul", x, vectors), bias)
    scales = graph.input("word_scales", "float", ["V"])
    zero = graph.weight("word_zero", np.array(ZERO, np.uint8))
    return graph.node("DynamicQuantizeMatMul", x, vectors, scales, zero, bias, domain=MICROSOFT)


def _search(graph: Graph, log_probs: str, group: int, number: str, tokens: str) -> None:
    """From log-probabilities, B x n x V, to the best continuations.

    Args:
        log_probs: with V a multiple of `group`.
        group: tokens in a group.
        number: a value, the number of groups.
        tokens: the name of the value that gets the places of the best tokens among the V.
    """
    graph.input("forced", "int64", ["B", "n", 1])
    graph.node("GatherElements", log_probs, "forced", axis=2, name="forced_scores")
    graph.output("forced_scores", "float", ["B", "n", 1])
    _give_out(graph, log_probs)

    count = graph.input("count", "int64", [1])

    def best(x: str) -> List[str]:
        names = [f"TopK_{len(graph.nodes)}_{i}" for i in range(2)]
        graph.nodes.append(helper.make_node("TopK", [x, count], names, names[0], axis=-1))
        return names

    last = graph.numbers(-1)
    grouped = graph.reshape(log_probs, 0, 0, -1, group)
    heads = graph.node("ReduceMax", grouped, last, keepdims=0)  # B x n x groups
    heads = graph.node("Add", heads, graph.node("Unsqueeze", "totals", last))
    chosen = best(graph.reshape(heads, 0, -1))[1]  # B x k, of n groups
    members = graph.reshape(log_probs, 0, -1, group)
    members = graph.node(
        "GatherND", members, graph.node("Unsqueeze", chosen, last), batch_dims=1
    )  # B x k x group
    parents = graph.node("Div", chosen, number)
    past = graph.node("GatherElements", "totals", parents, axis=1)
    members = graph.node("Add", members, graph.node("Unsqueeze", past, last))
    totals, places = best(graph.reshape(members, 0, -1))
    which = graph.node("Div", places, graph.numbers(group))
    chosen = graph.node("GatherElements", chosen, which, axis=1)
    start = graph.node("Mul", graph.node("Mod", chosen, number), graph.numbers(group))
    graph.node("Add", start, graph.node("Mod", places, graph.numbers(group)), name=tokens)
    graph.node("Div", chosen, number, name="parents")
    graph.node("Identity", totals, name="best_totals")
    graph.output("best_totals", "float", ["B", "k"])
    graph.output("best_tokens", "int64", ["B", "k"])
    graph.output("parents", "int64", ["B", "k"])


def _give_out(graph: Graph, log_probs: str) -> None:
    """Output all log-probabilities if `sampling` is set; otherwise their copy would waste time."""

    def branch(name: str, operator: str, *inputs: str, **attributes: Any) -> onnx.GraphProto:
        node = helper.make_node(operator, inputs, [name], name, **attributes)
        value = helper.make_tensor_value_info(name, TYPES["float"], ["b", "n", "v"])
        return helper.make_graph([node], name, [], [value])

    empty = helper.make_tensor("empty", TYPES["float"], [0, 0, 0], [])
    graph.node(
        "If",
        graph.input("sampling", "bool", []),
        then_branch=branch("given_out", "Identity", log_probs),
        else_branch=branch("kept", "Constant", value=empty),
        name="log_probs",
    )
    graph.output("log_probs", "float", ["B", "n", "V"])
