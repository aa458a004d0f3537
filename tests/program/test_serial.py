"""Graphs as JSON values and arrays: exactly there and back, and nothing else accepted."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.mlperf import FILES, model_path, samples
from tests.program.samples import EXAMPLE, assert_same, sample_program, small
from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.fields import decode
from tilewright.graph import ops, reference
from tilewright.graph.ir import Graph, Quant, Tensor
from tilewright.graph.rounding import Shift
from tilewright.model import load
from tilewright.program.program import Launch, Program
from tilewright.program.serial import (
    Data,
    encode,
    graph_to_data,
    program_from_data,
    program_to_data,
)


def graph_from_data(data: Data, arrays: Mapping[str, Array]) -> Graph:
    """The graph of a program without steps."""
    around = {"target": "vta", "config": {}, "digest": "", "rounding": "tflm", "steps": []}
    graph = program_from_data(around | {"graph": data}, arrays).graph
    assert graph is not None
    return graph


def through_json(graph: Graph) -> Graph:
    data, arrays = graph_to_data(graph)
    return graph_from_data(json.loads(json.dumps(data, allow_nan=False)), arrays)


@pytest.mark.parametrize("key", FILES)
def test_the_mlperf_models_come_back_exactly(shared: Path, key: str) -> None:
    graph, inputs = load(model_path(shared, key)), samples(shared, key)["inputs"][:4]
    again = through_json(graph)
    assert_same(graph, again)
    before, after = reference.run(graph, inputs), reference.run(again, inputs)
    assert all(np.array_equal(before[name], after[name]) for name in graph.outputs)


def test_the_digits_example_comes_back_exactly() -> None:
    graph = load(EXAMPLE / "digits.tflite")
    again = through_json(graph)
    assert_same(graph, again)
    with np.load(EXAMPLE / "samples.npz") as stored:
        inputs = stored["inputs"]
    before, after = reference.run(graph, inputs), reference.run(again, inputs)
    assert all(np.array_equal(before[name], after[name]) for name in graph.outputs)


@given(st.floats(2.0**-140, 2.0**100, width=32), st.integers(-128, 127), st.text(min_size=1))
def test_scales_and_names_come_back_exactly(scale: float, zero_point: int, name: str) -> None:
    quant = Quant((scale, scale / 3), (zero_point, 0), 1)
    tensor = Tensor(name, (1, 2), "int8", quant)
    assert_same(graph := Graph(name, {name: tensor}, (), (name,), (name,)), through_json(graph))


EVERY_OP = [
    ops.Conv2D("relu", ops.Window((3, 2), (2, 1), (0, 1, 2, 3), (1, 2))),
    ops.DepthwiseConv2D(window=ops.Window((1, 7))),
    ops.FullyConnected("relu6", True),
    ops.AveragePool2D(ops.Window((2, 2)), "relu"),
    ops.MaxPool2D(ops.Window((2, 2), (2, 2))),
    ops.Mean((1, 2), True),
    ops.Add("relu"),
    ops.Mul(),
    ops.Clamp("relu_n1_to_1"),
    ops.Reshape((1, -1)),
    ops.Pad(((0, 0), (1, 2)), -128),
    ops.Pad(((3, 4),), None),
    ops.Concat(-1, "relu"),
    ops.MatMul(),
    ops.Softmax(0.1),
    ops.Quantize(),
    ops.Dequantize(),
    ops.Transpose((0, 3, 1, 2)),
    ops.Upsample((2, 3)),
    ops.RealAveragePool2D(ops.Window((2, 2)), True),
    ops.OnnxOp("Clip", "", 13, (("axis", "-1"), ("mode", '"linear"'))),
    ops.IntegerAdd(),
    ops.RequantShift(Shift(64, 0, 255)),
    ops.Conv2D("none", ops.Window((1, 1)), shift=Shift(3, -8, 7)),
    ops.TransposeConv2D("relu", ops.Window((3, 2), (2, 1)), size=(5, 4)),
    ops.Sub("relu6"),
    ops.LeakyRelu(0.125),
    ops.HardSwish(),
    ops.Logistic(),
    ops.Tanh(),
    ops.Lstm(True, 1.5, 0.25, -3),
    ops.Slice((1, 2), (1, 2), (1, -1), (2,)),
    ops.Split(1, (2, 3), True),
    ops.Pack(1),
    ops.ResizeNearest((0, 0, 1), (1,)),
    ops.Product((0, 2), True),
    ops.Tile((1, 3)),
]


def test_every_operator_comes_back_exactly() -> None:
    assert {op.kind for op in EVERY_OP} == set(ops.KINDS)
    for op in EVERY_OP:
        assert decode(type(op), json.loads(json.dumps(encode(op, "op"))), "op") == op


def test_what_json_cannot_hold_is_named() -> None:
    for value in (float("nan"), {1: 2}, {"a": [np.int64(1)]}, b"x", {3}):
        with pytest.raises(ProgramError, match=r"^meta\S*: is .*which a program cannot hold"):
            encode(value, "meta")
    tensor = Tensor("half", (1,), "float16", None, np.zeros(1, np.float16))
    with pytest.raises(ProgramError, match="tensor 'half': is an array of float16"):
        graph_to_data(Graph("g", {"half": tensor}, (), (), ("half",)))


@pytest.mark.parametrize(
    ("hint", "value", "reason"),
    [
        (int, True, "is true, not an integer"),
        (int, 1.0, "is 1.0, not an integer"),
        (bool, 1, "is 1, not true or false"),
        (float, "1", 'is "1", not a number'),
        (float, float("inf"), "is Infinity, not a number"),
        (float, 10**400, r"is 10+\.\.\., not a number"),
        (tuple[int, int], [1], r"is \[1\], not a list"),
        (tuple[int, ...], [1, "x" * 99], r'v\[1\]: is "x{50,60}\.\.\., not an integer'),
        (tuple[tuple[int, int], ...], [[1, 2], 3], r"v\[1\]: is 3, not a list"),
        (Literal["a", "b"], "c", 'is "c"; choose one of a, b'),
        (int | None, "x", 'is "x", not an integer'),
        (ops.Window, {"kernel": [1, 1]}, "lacks 'dilation'"),
        (ops.Window, [], r"is \[\], not an object"),
    ],
)
def test_a_value_of_the_wrong_type_is_named(hint: Any, value: Any, reason: str) -> None:
    with pytest.raises(ProgramError, match=reason):
        decode(hint, value, "v")


def test_a_program_comes_back_exactly() -> None:
    program = sample_program()
    data, arrays = program_to_data(program)
    again = program_from_data(json.loads(json.dumps(data)), arrays)
    assert program.graph and again.graph
    assert_same(program.graph, again.graph)
    names = ("target", "config", "digest", "rounding")
    assert [getattr(program, name) for name in names] == [getattr(again, name) for name in names]
    assert program.steps[1:] == again.steps[1:]
    (before,), (after,) = program.launches, again.launches
    assert (before.name, before.nodes, before.meta) == (after.name, after.nodes, after.meta)
    assert before.arrays.keys() == after.arrays.keys()
    assert all(before.arrays[name] is after.arrays[name] for name in before.arrays)


def test_a_program_without_a_graph_comes_back() -> None:
    bare = Program("vta", {}, "", "tflm", None, (Launch("stream", (), {}, {"code": np.zeros(16, np.uint8)}),))
    again = program_from_data(*program_to_data(bare))
    assert again.graph is None
    assert program_to_data(again)[0] == program_to_data(bare)[0]


def test_the_order_of_mappings_does_not_matter() -> None:
    program = sample_program()
    assert program.graph
    turned = replace(program.graph, tensors=dict(list(program.graph.tensors.items())[::-1]))
    other = replace(program, graph=turned, config=dict(list(program.config.items())[::-1]))
    assert json.dumps(program_to_data(other)[0]) == json.dumps(program_to_data(program)[0])


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value inside JSON data."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def damaged(data: Data, path: tuple[Any, ...], value: Any) -> Data:
    """A copy with another value at `path` (Ellipsis: with nothing there)."""
    copy = deepcopy(data)
    inner = copy
    for key in path[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return copy


VALUES: tuple[Any, ...] = (
    ...,
    None,
    True,
    -1,
    0,
    3,
    10**30,
    1e300,
    "",
    "x",
    "conv",
    [],
    [0],
    [[1, 2]],
    {},
    {"host": 1},
)


def test_any_one_wrong_value_is_refused_or_makes_a_valid_program() -> None:
    data, arrays = small()
    tried = refused = 0
    for path in list(places(data)):
        for value in VALUES:
            tried += 1
            try:
                program = program_from_data(damaged(data, path, value), arrays)
            except ProgramError as error:
                refused += 1
                assert "\n" not in str(error)
                assert len(str(error)) < 500
            else:
                assert program.graph is None or program.graph.validate()
    assert tried > 2000
    assert refused > 0.8 * tried


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("graph", "nodes", 0, "kind"), "conv9d", r"graph\.nodes\[0\]: has the unknown kind 'conv9d'"),
        (("graph", "nodes", 0, "outputs"), [], r"graph\.nodes\[0\]: has no outputs"),
        (("graph", "nodes", 0, "attributes", "window", "kernel"), ..., r"attributes\.window: lacks 'kernel'"),
        (("graph", "nodes", 0, "attributes", "extra"), 1, r'attributes: has "extra", which is unknown'),
        (
            ("graph", "nodes", 0, "inputs", 0),
            "nowhere",
            "op 'conv': reads tensor 'nowhere' before anything has written it",
        ),
        (("graph", "nodes", 1, "name"), "conv", "graph .*: has two nodes with the same name"),
        (("graph", "nodes", 0, "attributes", "window", "stride"), [2, 2], "op 'conv': output 'y' is declared"),
        (("graph", "tensors", 0, "dtype"), "object", r'graph\.tensors\[0\]: has the unknown dtype "object"'),
        (("graph", "tensors", 0, "name"), "m", "graph.tensors: has two tensors with the same name"),
        (("graph", "tensors", 0, "data"), "graph/9999", 'refers to the array "graph/9999", which is missing'),
        (("graph", "nodes", 0, "outputs"), ["y", "p"], "is declared with 2 outputs; its operator has 1"),
        (("graph", "tensors", 0, "data"), None, "graph 'small': output or state 'f' is never written"),
        (("steps", 0, "launch", "arrays"), {}, "program: holds the array 'step/0000/0000', which is not used"),
        (("graph", "tensors", 0, "quant", "scale"), [0.0], "tensor 'f': has a quantisation scale"),
        (("graph", "outputs", 0), "", "graph .*: input, output or state '' is not a tensor of the graph"),
        (("steps", 0, "launch", "nodes", 0), "nowhere", r'steps\[0\]: refers to the node "nowhere"'),
        (("steps", 0, "launch", "arrays", "code"), "graph/0000", '"graph/0000", which is missing or used twice'),
        (("steps", 1), {"cloud": {}}, r"steps\[1\]: is .*, neither a launch nor a host step"),
    ],
)
def test_what_is_wrong_is_named(path: tuple[Any, ...], value: Any, reason: str) -> None:
    data, arrays = small()
    with pytest.raises(ProgramError, match=reason):
        program_from_data(damaged(data, path, value), arrays)


def test_arrays_that_do_not_fit_are_refused() -> None:
    data, arrays = graph_to_data(load(EXAMPLE / "digits.tflite"))
    key = min(arrays)
    for wrong in (arrays[key][:-1], arrays[key].astype(np.int64), np.zeros((0,))):
        with pytest.raises(ProgramError, match="is declared"):
            graph_from_data(data, arrays | {key: wrong})
    with pytest.raises(ProgramError, match="missing"):
        graph_from_data(data, {})
    with pytest.raises(ProgramError, match="holds the array 'more'"):
        graph_from_data(data, arrays | {"more": np.zeros(1)})
