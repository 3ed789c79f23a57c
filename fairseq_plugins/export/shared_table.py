"""One copy of shared embeddings in 8 bits for the encoder, the decoder and its output layer."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.external_data_helper import set_external_data

from fairseq_plugins.search.onnx_backend.folder import DECODER

FILE = "embeddings.bin"
PROJECTION = "output_projection.weight_quantized"
ROWS = PROJECTION + ".rows"


def share_table(folder: Path, graphs: Sequence[str]) -> None:
    """Move the embeddings out of the 8-bit graphs into one file beside them, `FILE`.

    With shared embeddings, the graphs hold the same numbers up to rounding: as rows for the lookup
    and as columns for the output layer. The file has the rows of the output layer; its graph
    transposes them once, at loading. Nothing changes if the decoder does not share its
    embeddings with the output layer.

    Args:
        graphs: the file names of the graphs. The decoder's must exist.
    """
    table = _rows_of_projection(onnx.load(folder / DECODER).graph)
    if table is None:
        return
    if not (folder / FILE).exists():
        (folder / FILE).write_bytes(np.ascontiguousarray(table).tobytes())
    for name in graphs:
        model = onnx.load(folder / name, load_external_data=False)
        nodes = [node for weight in model.graph.initializer for node in _refer(weight, table)]
        nodes += model.graph.node
        del model.graph.node[:]
        model.graph.node.extend(nodes)
        onnx.save(model, folder / name)


def _rows_of_projection(graph: onnx.GraphProto) -> np.ndarray | None:
    """The rows of the output layer, V x d, if the decoder also looks embeddings up in them."""
    matrices = {weight.name: weight for weight in graph.initializer}
    if ROWS in matrices:  # already shared
        return numpy_helper.to_array(matrices[ROWS])
    if PROJECTION not in matrices:
        return None
    table = numpy_helper.to_array(matrices[PROJECTION]).T
    return table if any(_is_part(_rows(weight), table) for weight in matrices.values()) else None


def _rows(weight: TensorProto) -> np.ndarray | None:
    """The numbers of an 8-bit matrix that the graph itself holds."""
    external = weight.data_location == TensorProto.EXTERNAL
    if external or weight.data_type != TensorProto.INT8 or len(weight.dims) != 2:
        return None
    return numpy_helper.to_array(weight)


def _is_part(rows: np.ndarray | None, table: np.ndarray) -> bool:
    """Whether these are the first rows of the table, up to rounding."""
    if rows is None or rows.shape[1] != table.shape[1] or len(rows) > len(table):
        return False
    differences = rows.astype(np.int16) - table[: len(rows)]
    return bool(np.abs(differences).max() <= 1)


def _refer(weight: TensorProto, table: np.ndarray) -> list[onnx.NodeProto]:
    """Let a weight refer to the file if it is part of the table.

    Returns:
        The nodes that the graph needs then.
    """
    nodes = []
    if weight.name == PROJECTION:
        nodes.append(helper.make_node("Transpose", [ROWS], [PROJECTION], perm=[1, 0]))
        weight.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(table), ROWS))
    if _is_part(_rows(weight), table):
        set_external_data(weight, FILE, offset=0, length=int(np.prod(weight.dims)))
        weight.ClearField("raw_data")
    return nodes
