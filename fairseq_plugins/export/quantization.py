"""8-bit weights by onnxruntime's own quantisation."""

import logging
from pathlib import Path
from typing import List

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

LEAST = 4096  # numbers in a matrix that is worth it


def quantize(model: onnx.ModelProto, scratch: Path) -> onnx.ModelProto:
    """Products by 8-bit matrices, dynamic: inputs get one scale a call, weights one an output.

    Embeddings are stored in 8 bits with a scale a row, and looked up in them; what is left of large
    matrices (MSCFFN's subspaces) is stored so, and computed with in float32.

    Args:
        model: in float32; not changed.
        scratch: an empty folder for the quantiser's files.
    """
    path = scratch / "quantized.onnx"
    source = onnx.ModelProto()
    source.CopyFrom(model)
    # sizes noted by torch's exporter, which onnx takes for errors where it infers others
    del source.graph.value_info[:]
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        quantize_dynamic(
            source,
            path,
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            # signed, symmetric: what processors with 8-bit instructions are fastest with
            weight_type=QuantType.QInt8,
            nodes_to_exclude=_without_matrix(model.graph),
            extra_options={
                "WeightSymmetric": True,
                "MatMulConstBOnly": True,
                # of what onnxruntime's own operators give, which onnx does not know
                "DefaultTensorType": onnx.TensorProto.FLOAT,
            },
        )
    finally:
        logging.disable(level)
    quantized = onnx.load(path)
    _store_in_8_bits(quantized.graph)
    return quantized


def _without_matrix(graph: onnx.GraphProto) -> List[str]:
    """Products by something else than a constant matrix."""
    matrices = {weight.name for weight in graph.initializer if len(weight.dims) == 2}
    return [n.name for n in graph.node if n.op_type == "MatMul" and n.input[1] not in matrices]


def _store_in_8_bits(graph: onnx.GraphProto) -> None:
    """Write large float32 weights as 8-bit numbers with a scale for each first index."""
    large = {
        weight.name: weight
        for weight in graph.initializer
        if weight.data_type == onnx.TensorProto.FLOAT
        and len(weight.dims) > 1
        and np.prod(weight.dims) >= LEAST
    }
    nodes: List[onnx.NodeProto] = []
    for name, weight in large.items():
        values = numpy_helper.to_array(weight)
        scale = np.abs(values).max(axis=tuple(range(1, values.ndim)), keepdims=True) / 127
        scale = np.maximum(scale, np.float32(1e-30))
        numbers = np.clip(np.rint(values / scale), -127, 127).astype(np.int8)
        graph.initializer.remove(weight)
        for part, array in (("int8", numbers), ("scale", scale)):
            graph.initializer.append(numpy_helper.from_array(array, f"{name}.{part}"))
        nodes += _restored(f"{name}.int8", f"{name}.scale", name)
    for node in graph.node:
        if node.op_type == "Gather" and node.input[0] in large:
            # rows are looked up before they are made floating point
            (table, rows), out = list(node.input), node.output[0]
            for part in ("int8", "scale"):
                nodes.append(
                    helper.make_node("Gather", [f"{table}.{part}", rows], [f"{out}.{part}"])
                )
            nodes += _restored(f"{out}.int8", f"{out}.scale", out)
        else:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)


def _restored(numbers: str, scale: str, name: str) -> List[onnx.NodeProto]:
    return [
        helper.make_node("Cast", [numbers], [f"{name}.cast"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", [f"{name}.cast", scale], [name]),
    ]
