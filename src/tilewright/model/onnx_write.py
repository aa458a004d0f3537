"""Writes an analysed ONNX network as a model again: without If nodes, and with constants computed."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.graph.ort import MICROSOFT, ValueType, package
from tilewright.model import onnx_file
from tilewright.model.onnx_file import RawNode
from tilewright.model.onnx_values import resolve
from tilewright.model.shapes import Shapes

_IR_VERSION = 8


def without_branches(path: Path, shapes: Shapes | None = None, until: Collection[str] = ()) -> Any:
    """Return the model of an `.onnx` file with each If replaced by nodes (see onnx_control), as a ModelProto.

    Its inputs have the shapes of the file, and those in `shapes` where it leaves extents open. Raises the errors of
    onnx_file.read and onnx_values.resolve.
    """
    raw = onnx_file.read(path, shapes, until)
    known = resolve(raw)
    onnx = package("onnx")
    helper = onnx.helper
    used = {name for node in known.nodes for name in node.inputs} | set(known.outputs)
    constants = [
        onnx.numpy_helper.from_array(np.ascontiguousarray(value).reshape(value.shape), name)
        for name, value in known.constants.items()
        if name in used
    ]

    def declared(name: str, kind: ValueType) -> Any:
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(kind.dtype)), kind.shape)

    graph = helper.make_graph(
        [_node(node) for node in known.nodes],
        path.stem,
        [declared(name, kind) for name, kind in raw.inputs.items()],
        [declared(name, known.types[name]) for name in known.outputs],
        constants,
    )
    domains = sorted({node.domain for node in known.nodes} - {""})
    opsets = [helper.make_opsetid("", known.opset), *(helper.make_opsetid(name, 1) for name in domains)]
    assert set(domains) <= {MICROSOFT}
    return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)


def _node(node: RawNode) -> Any:
    onnx = package("onnx")
    made = onnx.helper.make_node(node.op_type, node.inputs, node.outputs, name=node.name, domain=node.domain)
    for key, value in node.attributes.items():
        if value != []:  # an empty list has no type, and is the default of all lists
            made.attribute.append(onnx.helper.make_attribute(key, value))
    for key, array in node.tensors.items():
        made.attribute.append(onnx.helper.make_attribute(key, onnx.numpy_helper.from_array(array)))
    return made
