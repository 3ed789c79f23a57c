"""Logits and the selection of the best continuations, in a decoder step's ONNX graph."""

import math
from typing import Any

import onnx
from onnx import helper
from torch import nn

from .architecture import bias_of
from .graph import TYPES, Graph

GROUP = 64  # maximum tokens in a group, see `decoder.build`
FILLER = -math.inf  # logit of tokens that fill the last group


def grouping(vocabulary: int) -> tuple[int, int]:
    """The size and the number of groups of tokens, see `build`."""
    group = max(1, min(GROUP, vocabulary // GROUP))
    return group, math.ceil(vocabulary / group)


def add_logits(graph: Graph, projection: Any, x: str, count: int) -> str:
    """B x n x count; the last ones may stand for no word."""
    filler = count - projection.weight.size(0)
    weight = nn.functional.pad(projection.weight.detach(), (0, 0, 0, filler))
    bias = nn.functional.pad(bias_of(projection), (0, filler), value=FILLER)
    return graph.linear(x, "output_projection", weight, bias)


def add_search(graph: Graph, log_probs: str, group: int, groups: int) -> None:
    """From log-probabilities, B x n x V, to the best continuations.

    Args:
        log_probs: with V a multiple of `group`.
        group: tokens in a group.
        groups: their number.
    """
    number = graph.numbers(groups)
    graph.input("forced", "int64", ["B", "n", 1])
    graph.node("GatherElements", log_probs, "forced", axis=2, name="forced_scores")
    graph.output("forced_scores", "float", ["B", "n", 1])
    _output_log_probs(graph, log_probs)

    count = graph.input("count", "int64", [1])

    def best(x: str) -> list[str]:
        return graph.outputs_of("TopK", x, count, count=2, axis=-1)

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
    graph.node("Add", start, graph.node("Mod", places, graph.numbers(group)), name="best_tokens")
    graph.node("Div", chosen, number, name="parents")
    graph.node("Identity", totals, name="best_totals")
    graph.output("best_totals", "float", ["B", "k"])
    graph.output("best_tokens", "int64", ["B", "k"])
    graph.output("parents", "int64", ["B", "k"])


def _output_log_probs(graph: Graph, log_probs: str) -> None:
    """Output all log-probabilities if `sampling` is set; otherwise skip this slow copy."""

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
