"""8-bit weights with onnxruntime's quantisation."""

import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

from fairseq_plugins.system.quiet import only_errors

LEAST = 4096  # elements; smaller matrices stay in float32


def quantize(model: onnx.ModelProto) -> onnx.ModelProto:
    """Dynamic quantisation of products with 8-bit matrices.

    Inputs get one scale per call, weights one scale per output. Embeddings are stored and looked up
    in 8 bits with one scale per row. Other large weights (MSCFFN's subspaces) are stored the same
    way, but computed in float32.

    Args:
        model: in float32; not changed.

    Returns:
        the quantised model.
    """
    source = onnx.ModelProto()
    source.CopyFrom(model)
    # torch's exporter stores shapes; onnx raises an error if it infers different ones
    del source.graph.value_info[:]
    with tempfile.TemporaryDirectory() as scratch, only_errors():
        path = Path(scratch) / "quantized.onnx"
        quantize_dynamic(
            source,
            path,
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            # signed and symmetric, the fastest with 8-bit instructions
            weight_type=QuantType.QInt8,
            nodes_to_exclude=_without_large_matrix(model.graph),
            extra_options={
                "WeightSymmetric": True,
                "MatMulConstBOnly": True,
                # the output type of onnxruntime's own operators, which onnx does not know
                "DefaultTensorType": onnx.TensorProto.FLOAT,
            },
        )
        quantized = onnx.load(path)
    _store_in_8_bits(quantized.graph)
    return quantized


def _without_large_matrix(graph: onnx.GraphProto) -> list[str]:
    """The names of products whose second factor is not a large constant matrix."""
    matrices = {
        weight.name
        for weight in graph.initializer
        if len(weight.dims) == 2 and np.prod(weight.dims) >= LEAST
    }
    return [n.name for n in graph.node if n.op_type == "MatMul" and n.input[1] not in matrices]


def _store_in_8_bits(graph: onnx.GraphProto) -> None:
    """Write large float32 weights as 8-bit numbers, with one scale per first index."""
    large = {
        weight.name: weight
        for weight in graph.initializer
        if weight.data_type == onnx.TensorProto.FLOAT
        and len(weight.dims) > 1
        and np.prod(weight.dims) >= LEAST
    }
    nodes: list[onnx.NodeProto] = []
    for name, weight in large.items():
        numbers, scale = _to_8_bits(numpy_helper.to_array(weight))
        graph.initializer.remove(weight)
        for part, array in (("int8", numbers), ("scale", scale)):
            graph.initializer.append(numpy_helper.from_array(array, f"{name}.{part}"))
        nodes += _restored(f"{name}.int8", f"{name}.scale", name)
    for node in graph.node:
        if node.op_type == "Gather" and node.input[0] in large:
            # look up rows first, and convert only these to floating point
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


def _to_8_bits(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Numbers from -127 to 127, and one scale per first index."""
    scale = np.abs(values).max(axis=tuple(range(1, values.ndim)), keepdims=True) / 127
    scale = np.maximum(scale, np.float32(1e-30))
    return np.clip(np.rint(values / scale), -127, 127).astype(np.int8), scale


def _restored(numbers: str, scale: str, name: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Cast", [numbers], [f"{name}.cast"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Mul", [f"{name}.cast", scale], [name]),
    ]
