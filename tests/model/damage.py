"""Damaged files."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.model.onnx_nets import onnx

SEED = 20261121


ODD_INTEGERS = (-1, 0, 1, 2, 3, 7, 255, 1 << 15, 1 << 20, 1 << 31, (1 << 63) - 1, -(1 << 63))


OPS = (
    "Conv",
    "Relu",
    "Slice",
    "Gather",
    "Pad",
    "Resize",
    "Tile",
    "Expand",
    "If",
    "Loop",
    "MaxPool",
    "Softmax",
    "Nothing",
)


def bytewise(content: bytes, rng: np.random.Generator) -> bytes:
    """Bytes changed, cut out or repeated."""
    kind = rng.integers(4)
    at = int(rng.integers(len(content)))
    if kind == 0:
        return content[:at]
    if kind == 1:
        span = int(rng.integers(1, 40))
        return content[:at] + content[at + span :]
    if kind == 2:
        span = int(rng.integers(1, 200))
        return content[:at] + content[at : at + span] * 2 + content[at + span :]
    damaged = np.frombuffer(content, np.uint8).copy()
    where = rng.integers(0, len(content), rng.integers(1, 9))
    damaged[where] = rng.integers(0, 256, len(where))
    return damaged.tobytes()


def meaningful(content: bytes, rng: np.random.Generator) -> bytes:
    """A valid file whose sizes, attributes, operators or connections make no sense."""
    model = onnx.ModelProto.FromString(content)
    graph, integer = model.graph, int(ODD_INTEGERS[rng.integers(len(ODD_INTEGERS))])
    for _ in range(int(rng.integers(1, 3))):
        _change(model, graph, rng, integer)
    return bytes(model.SerializeToString())


def _change(model: Any, graph: Any, rng: np.random.Generator, integer: int) -> None:
    """One field of a node, a constant, the input or the outputs changed."""
    node = graph.node[rng.integers(len(graph.node))]
    tensor = graph.initializer[rng.integers(len(graph.initializer))]
    names = [name for each in graph.node for name in (*each.input, *each.output)]
    name = names[rng.integers(len(names))]
    size, dims = len(tensor.raw_data), graph.input[0].type.tensor_type.shape.dim
    changes: list[Callable[[], Any]] = [
        lambda: setattr(node, "op_type", OPS[rng.integers(len(OPS))]),
        lambda: node.input.__setitem__(slice(0, 1), [name]),
        lambda: node.output.__setitem__(slice(0, 1), [name]),
        lambda: node.input.append(name),
        lambda: node.ClearField("input"),
        lambda: tensor.dims.append(integer),
        lambda: tensor.dims.__setitem__(slice(0, 1), [integer]),
        lambda: setattr(tensor, "data_type", int(rng.integers(0, 24))),
        lambda: setattr(tensor, "raw_data", rng.bytes(size)),
        lambda: setattr(tensor, "raw_data", np.full(size // 8, integer, np.int64).tobytes()),
        lambda: setattr(model.opset_import[0], "version", int(rng.integers(0, 40))),
        lambda: setattr(dims[int(rng.integers(len(dims)))], "dim_value", integer),
        lambda: graph.output.append(graph.output[0]),
        *[lambda: _attribute(graph.node, rng, integer)] * 3,
    ]
    changes[rng.integers(len(changes))]()


def _attribute(nodes: Any, rng: np.random.Generator, integer: int) -> None:
    """One attribute changed."""
    every = [attribute for node in nodes for attribute in node.attribute]
    if not every:
        return
    attribute = every[rng.integers(len(every))]
    if attribute.ints:
        attribute.ints[rng.integers(len(attribute.ints))] = integer
    elif rng.random() < 0.3:
        attribute.type = int(rng.integers(0, 15))
    else:
        attribute.i = integer
