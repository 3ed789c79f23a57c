"""8-bit weights, for onnxruntime's products of 8-bit matrices."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data

LEAST = 4096  # elements; smaller matrices stay in float32
FILE = "embeddings.bin"


def quantize(graphs: Iterable[onnx.ModelProto], folder: Path) -> None:
    """Quantise graphs in place.

    Products with large matrices are in 8 bits: their inputs get one scale per call, weights one
    scale per output. Embeddings are stored and looked up in 8 bits with one scale per row. Other
    large weights (MSCFFN's subspaces) are stored the same way, but computed in float32.

    An output layer that shares its weights with embeddings refers to the same rows, in the file
    `FILE` of the folder. Its graph transposes them once, at loading.

    Args:
        graphs: in float32.
        folder: where the graphs will be saved.
    """
    rows: list[TensorProto] = []  # the weights that graphs look rows up in
    columns: list[tuple[onnx.GraphProto, TensorProto]] = []
    for model in graphs:
        looked_up, factors = _quantize(model.graph)
        rows += looked_up
        columns += [(model.graph, weight) for weight in factors]
    for graph, factor in columns:
        table = np.ascontiguousarray(numpy_helper.to_array(factor).T)
        same = [weight for weight in rows if _is_part(weight, table)]
        if not same:
            continue
        (folder / FILE).write_bytes(table.tobytes())
        transposed = factor.name + ".rows"
        node = helper.make_node("Transpose", [transposed], [factor.name], perm=[1, 0])
        graph.node.insert(0, node)
        factor.CopyFrom(numpy_helper.from_array(table, transposed))
        for weight in (factor, *same):
            set_external_data(weight, FILE, offset=0, length=int(np.prod(weight.dims)))
            weight.ClearField("raw_data")
        break


def _is_part(weight: TensorProto, table: np.ndarray) -> bool:
    """Whether these are the first rows of the table."""
    rows = numpy_helper.to_array(weight)
    return len(rows) <= len(table) and np.array_equal(rows, table[: len(rows)])


def _quantize(graph: onnx.GraphProto) -> tuple[list[TensorProto], list[TensorProto]]:
    """Quantise a graph; returns the 8-bit weights of its lookups and of its products."""
    large = {
        weight.name: weight
        for weight in graph.initializer
        if weight.data_type == TensorProto.FLOAT
        and len(weight.dims) > 1
        and np.prod(weight.dims) >= LEAST
    }
    factors = {
        node.input[1]
        for node in graph.node
        if node.op_type == "MatMul" and len(getattr(large.get(node.input[1]), "dims", ())) == 2
    }
    stored = {
        name: _store(graph, weight, axis=1 if name in factors else 0)
        for name, weight in large.items()
    }
    nodes: list[onnx.NodeProto] = []
    looked_up: dict[str, TensorProto] = {}
    inputs: set[str] = set()  # those in 8 bits
    multiplied: set[str] = set()
    for name in [name for name in large if name not in factors]:
        nodes += _restored(f"{name}.int8", f"{name}.scale", name)
    for node in graph.node:
        out = node.output[0]
        if node.op_type == "Gather" and node.input[0] in large:
            # look up rows first, and convert only these to floating point
            table, which = node.input
            looked_up[table] = stored[table]
            for part in ("int8", "scale"):
                nodes.append(
                    helper.make_node("Gather", [f"{table}.{part}", which], [f"{out}.{part}"])
                )
            nodes += _restored(f"{out}.int8", f"{out}.scale", out)
        elif node.op_type == "MatMul" and node.input[1] in factors:
            x, weight = node.input
            parts = [f"{x}.input.{part}" for part in ("int8", "scale", "zero")]
            if x not in inputs:
                nodes.append(helper.make_node("DynamicQuantizeLinear", [x], parts))
                inputs.add(x)
            own = weight
            if weight in multiplied:  # onnxruntime cannot convert a weight of two products
                own = f"{out}.weight"
                values = numpy_helper.to_array(stored[weight])
                zero = np.zeros(values.shape[1], np.int8)
                for part, array in (("int8", values), ("zero", zero)):
                    graph.initializer.append(numpy_helper.from_array(array, f"{own}.{part}"))
            multiplied.add(weight)
            factors_in = [parts[0], f"{own}.int8", parts[2], f"{own}.zero"]
            nodes += [
                helper.make_node("MatMulInteger", factors_in, [f"{out}.int8"]),
                helper.make_node("Mul", [parts[1], f"{weight}.scale"], [f"{out}.scale"]),
                *_restored(f"{out}.int8", f"{out}.scale", out),
            ]
        else:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    return list(looked_up.values()), [stored[name] for name in factors]


def _store(graph: onnx.GraphProto, weight: TensorProto, axis: int) -> TensorProto:
    """Replace a weight by numbers from -127 to 127 and one scale per index of this axis."""
    values, name = numpy_helper.to_array(weight), weight.name
    graph.initializer.remove(weight)
    others = tuple(each for each in range(values.ndim) if each != axis)
    scale = np.abs(values).max(axis=others, keepdims=True) / np.float32(127)
    scale = np.maximum(scale, np.float32(1e-30))
    numbers = np.clip(np.rint(values / scale), -127, 127).astype(np.int8)
    parts = {"int8": numbers, "scale": scale}
    if axis == 1:  # of a product
        parts = {"int8": numbers, "scale": scale[0], "zero": np.zeros(numbers.shape[1], np.int8)}
    for part, array in parts.items():
        graph.initializer.append(numpy_helper.from_array(array, f"{name}.{part}"))
    return next(each for each in graph.initializer if each.name == f"{name}.int8")


def _restored(numbers: str, scale: str, name: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Cast", [numbers], [f"{name}.cast"], to=TensorProto.FLOAT),
        helper.make_node("Mul", [f"{name}.cast", scale], [name]),
    ]
