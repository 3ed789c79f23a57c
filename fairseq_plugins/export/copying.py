"""Copying from the source, in a decoder step's ONNX graph: see `CopyAttention`."""

from torch import nn

from fairseq_plugins.layers.copying import CopyAttention
from fairseq_plugins.search.onnx_backend.folder import ATTENTION, GATE, UNKNOWN

from .graph import TYPES, Graph

COPYING_WEIGHTS = "copying.weights"  # a value of the graph: the attention that copies, B x n x S
TOKENS = "tokens"  # an input of the graph
OF_SOURCE = ["B", "n", "S"]


def add_known(graph: Graph, vocabulary: int) -> str:
    """The last tokens as they are embedded: <unk> for those from V on, which the source has."""
    known = graph.node("Less", TOKENS, graph.numbers(vocabulary))
    return graph.node("Where", known, TOKENS, graph.numbers(UNKNOWN))


def add_copying(graph: Graph, copying: CopyAttention, x: str, embedded: str, log_probs: str) -> str:
    """Log-probabilities of the mixture of generating and copying, see `CopyAttention`."""
    both = graph.node("Concat", x, embedded, axis=-1)
    gate = graph.linear(both, "copying.gate", copying.gate.weight)
    bias = graph.weight("copying.gate.bias", copying.gate.bias)
    gate = graph.output(graph.node("Add", gate, bias, name=GATE), "float", ["B", "n", 1])
    words, places = (
        graph.input(f"source_{name}", "int64", OF_SOURCE) for name in ("words", "places")
    )
    attention = COPYING_WEIGHTS
    if copying.next is not None:
        attention = _go_on(graph, copying.next, both, attention)
    graph.node("Identity", attention, name=ATTENTION)
    graph.output(ATTENTION, "float", OF_SOURCE)
    nothing = graph.node("Mul", attention, graph.number("zero", 0))
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
    """The attention that can continue copying after the last written word, see `CopyAttention`."""
    least = graph.number("least attention", 1e-4)
    before = graph.input("source_before", "int64", OF_SOURCE)
    follows = graph.node("Equal", before, graph.node("Unsqueeze", TOKENS, graph.numbers(-1)))
    follows = graph.node("Cast", follows, to=TYPES["float"])
    following = graph.node("Mul", graph.node("Add", attention, least), follows)
    total = graph.node("ReduceSum", following, graph.numbers(-1), keepdims=1)
    any_follows = graph.node("ReduceMax", follows, graph.numbers(-1), keepdims=1)
    share = graph.linear(both, "copying.next", gate.weight, gate.bias)
    share = graph.node("Mul", graph.node("Sigmoid", share), any_follows)
    following = graph.node("Div", following, graph.node("Max", total, least))
    rest = graph.node("Sub", graph.number("one", 1), share)
    parts = graph.node("Mul", rest, attention), graph.node("Mul", share, following)
    return graph.node("Add", *parts)
