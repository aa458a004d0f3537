"""Programs to save and to load."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from tilewright.graph import ops
from tilewright.graph.ir import Graph, Node, Quant, Tensor
from tilewright.model import load
from tilewright.program.program import HostStep, Launch, Program
from tilewright.program.serial import (
    Arrays,
    Data,
    program_to_data,
)

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits"


def assert_same(a: Graph, b: Graph) -> None:
    assert (a.name, a.nodes, a.inputs, a.outputs, a.rounding) == (b.name, b.nodes, b.inputs, b.outputs, b.rounding)
    assert a.tensors.keys() == b.tensors.keys()
    for name, tensor in a.tensors.items():
        other = b.tensors[name]
        assert replace(tensor, data=None).__dict__ == replace(other, data=None).__dict__
        assert (tensor.data is None) == (other.data is None)
        if tensor.data is not None and other.data is not None:
            assert tensor.data.dtype == other.data.dtype
            np.testing.assert_array_equal(tensor.data, other.data)


def sample_program(graph: Graph | None = None) -> Program:
    """A program that uses every part of the format; small enough to damage many times."""
    if graph is None:
        graph = load(EXAMPLE / "digits.tflite")
    first, *rest = (node.name for node in graph.nodes)
    meta = {"layout": [1, 2.5, None, True, "text"], "deep": {"b": {}, "a": []}}
    arrays = {"code": np.arange(32, dtype=np.uint8).reshape(2, 16), "scalar": np.array(-1.5), "none": np.zeros((0, 3))}
    launch = Launch("first", (first,), meta, arrays)
    config = {"LOG_BLOCK": 4, "clock_mhz": 100.0, "name": "small"}
    return Program("vta", config, "0" * 64, "tflm", graph, (launch, *(HostStep(n, "no such unit") for n in rest)))


def small() -> tuple[Data, Arrays]:
    """A network with every field of the format in few values."""
    one, two = Quant((0.5,), (0,)), Quant((0.25, 0.5), (0, 0))
    tensors = (
        Tensor("x", (1, 4, 4, 1), "int8", one),
        Tensor("w", (2, 3, 3, 1), "int8", two, np.ones((2, 3, 3, 1), np.int8)),
        Tensor("y", (1, 2, 2, 2), "int8", one),
        Tensor("m", (1, 2), "int8", one),
        Tensor("f", (2,), "int8", one, np.ones(2, np.int8)),
        Tensor("z", (1, 2), "int8", Quant((1 / 256,), (-128,))),
        Tensor("p", (1, 4), "int8", one),
    )
    nodes = (
        Node("conv", ops.Conv2D("relu", ops.Window((3, 3))), ("x", "w", ""), ("y",)),
        Node("mean", ops.Mean((1, 2)), ("y",), ("m",)),
        Node("softmax", ops.Softmax(), ("m",), ("z",)),
        Node("pad", ops.Pad(((0, 0), (1, 1)), 3), ("m",), ("p",)),
    )
    graph = Graph("small", {t.name: t for t in tensors}, nodes, ("x",), ("z", "p", "f"))
    return program_to_data(sample_program(graph.validate()))
