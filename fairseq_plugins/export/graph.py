"""A builder of ONNX graphs, node by node."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from torch import Tensor, nn

OPSET = 21
IR_VERSION = 10
MICROSOFT = "com.microsoft"  # onnxruntime's own operators
TYPES = {
    "bool": TensorProto.BOOL,
    "float": TensorProto.FLOAT,
    "int8": TensorProto.INT8,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "uint8": TensorProto.UINT8,
}
Shape = Sequence[int | str]
Array = Tensor | np.ndarray


class Graph:
    """Nodes, weights, inputs and outputs of a graph under construction.

    Values are named by strings; the methods return the names of what they add.
    """

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.inputs: list[onnx.ValueInfoProto] = []
        self.outputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, kind: str, shape: Shape) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, TYPES[kind], shape))
        return name

    def output(self, name: str, kind: str, shape: Shape) -> str:
        """Declare an output; a node must produce the value of this name."""
        self.outputs.append(helper.make_tensor_value_info(name, TYPES[kind], shape))
        return name

    def weight(self, name: str, value: Array) -> str:
        array = value.detach().float().numpy() if isinstance(value, Tensor) else value
        self.weights[name] = array.copy(order="C")
        return name

    def number(self, name: str, value: float) -> str:
        """A constant of type float."""
        return self.weight(name, np.array(value, np.float32))

    def numbers(self, *values: int) -> str:
        """A constant list of integers, such as a shape."""
        return self.weight("_".join(map(str, ("numbers", *values))), np.array(values, np.int64))

    def node(
        self, operator: str, *inputs: str, domain: str = "", name: str = "", **attributes: Any
    ) -> str:
        """Add a node with one output; `name` is the name of both."""
        name = name or f"{operator}_{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(operator, inputs, [name], name, None, domain, **attributes)
        )
        return name

    def outputs_of(self, operator: str, *inputs: str, count: int, **attributes: Any) -> list[str]:
        """Add a node with several outputs."""
        names = [f"{operator}_{len(self.nodes)}_{i}" for i in range(count)]
        self.nodes.append(helper.make_node(operator, inputs, names, names[0], **attributes))
        return names

    def split(self, x: str, parts: int, axis: int) -> list[str]:
        return self.outputs_of("Split", x, count=parts, axis=axis, num_outputs=parts)

    def reshape(self, x: str, *shape: int) -> str:
        """Reshape x: 0 keeps a dimension, and -1 is inferred."""
        return self.node("Reshape", x, self.numbers(*shape))

    def linear(self, x: str, name: str, weight: Tensor, bias: Array | None = None) -> str:
        """``x W^T + b`` with torch's layout of W."""
        x = self.node("MatMul", x, self.weight(name + ".weight", weight.t()), name=name)
        return x if bias is None else self.node("Add", x, self.weight(name + ".bias", bias))

    def layer_norm(self, x: str, name: str, norm: nn.LayerNorm) -> str:
        weight = self.weight(name + ".weight", norm.weight)
        bias = self.weight(name + ".bias", norm.bias)
        return self.node("LayerNormalization", x, weight, bias, epsilon=norm.eps)

    def model(self) -> onnx.ModelProto:
        weights = [numpy_helper.from_array(array, name) for name, array in self.weights.items()]
        graph = helper.make_graph(self.nodes, "graph", self.inputs, self.outputs, weights)
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
