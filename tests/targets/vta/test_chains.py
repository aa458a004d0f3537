"""Layers that hand each other tensors in one launch: concatenations and reshapes as places, repeated pixels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.targets.vta.networks import Builder
from tests.targets.vta.single_node import check, machine, one_node, seeded
from tilewright.graph.ir import Graph, Quant, Tensor
from tilewright.graph.ops import Concat, Conv2D, FullyConnected, MaxPool2D, Mean, Reshape, Upsample, Window
from tilewright.program.program import Launch, Program
from tilewright.run import run as run_program
from tilewright.targets.vta.compiler.compiler import compile_graph
from tilewright.targets.vta.config import Config

pytestmark = pytest.mark.usefixtures("brief_search")

SAME = Window((3, 3), (1, 1), (1, 1, 1, 1))
SMALL = {"LOG_INP_BUFF_SIZE": "11", "LOG_WGT_BUFF_SIZE": "14", "LOG_ACC_BUFF_SIZE": "13", "LOG_UOP_BUFF_SIZE": "10"}


def powers(graph: Graph) -> Graph:
    """The same network with scales that are powers of two: sums of products are shifted by about 11."""

    def of(tensor: Tensor) -> Tensor:
        exponent = -11 if tensor.data is not None else 0
        return replace(tensor, quant=Quant((2.0**exponent,), (0,))) if tensor.quant else tensor

    return replace(graph, tensors={name: of(tensor) for name, tensor in graph.tensors.items()}, rounding="pow2")


def conv(builder: Builder, x: str, outputs: int, kernel: int = 1) -> str:
    window = SAME if kernel == 3 else Window()
    shape = (outputs, kernel, kernel, builder.tensors[x].shape[3])
    data = builder.rng.integers(-128, 128, shape).astype(np.int8)
    weights = Tensor("w", shape, "int8", Quant((2.0**-11,), (0,)), data)
    return builder.layer(Conv2D("relu", window), x, constants=(weights,), quant=builder.tensors[x].quant)


def joined(builder: Builder, *parts: str) -> str:
    return builder.layer(Concat(3), *parts, quant=builder.tensors[parts[0]].quant)


def launches(program: Program) -> list[tuple[str, ...]]:
    return [step.nodes for step in program.steps if isinstance(step, Launch)]


def run(graph: Graph, config: Config, rng: np.random.Generator) -> Program:
    check(graph, config, rng, on_chip=False)
    return compile_graph(graph, config, graph.rounding)


@pytest.mark.parametrize("keys", [{}, {"LOG_BATCH": "1"}, {"token_depth": "8"}, SMALL], ids=str)
@pytest.mark.parametrize("last", [16, 5])
def test_a_concatenation_is_a_place(last: int, keys: dict[str, str]) -> None:
    """Squeeze and expand, as in SqueezeNet; the channels of the last part fill a tile or do not."""
    for rng in seeded(3):
        builder = Builder(rng)
        x = builder.given((1, *(int(n) for n in rng.integers(2, 14, 2)), 16))
        squeezed = conv(builder, x, 16)
        both = joined(builder, conv(builder, squeezed, 32), conv(builder, squeezed, last, 3))
        pooled = builder.layer(MaxPool2D(Window((2, 2))), both, quant=builder.tensors[both].quant)
        conv(builder, pooled, 20, 3)
        graph = powers(builder.graph())
        graph = replace(graph, outputs=tuple(dict.fromkeys((*graph.outputs, both)))[: int(rng.integers(1, 3))])
        program = run(graph, machine(**keys), rng)
        if not keys:
            assert launches(program) == [tuple(node.name for node in graph.nodes)]


def test_parts_and_wholes_are_read_where_they_lie() -> None:
    """As in DenseNet: each layer reads all before it; the host wants a part, and a layer reads one alone."""
    for rng in seeded(4):
        builder = Builder(rng)
        x = builder.given((1, 5, 6, 16))
        first = conv(builder, x, 16)
        second = conv(builder, first, 32, 3)
        both = joined(builder, first, second)
        third = conv(builder, both, 16, 3)
        all_three = joined(builder, both, third)
        conv(builder, all_three, 7)
        conv(builder, second, 9, 3)
        graph = powers(builder.graph())
        graph = replace(graph, outputs=tuple(dict.fromkeys((*graph.outputs, second, all_three))))
        assert len(launches(run(graph, machine(), rng))) == 1


def test_what_cannot_lie_in_two_places_is_joined_by_the_host() -> None:
    for rng in seeded(2):
        builder = Builder(rng)
        x = builder.given((1, 4, 4, 16))
        a, b = conv(builder, x, 16), conv(builder, x, 16)
        conv(builder, joined(builder, a, b), 16)
        conv(builder, joined(builder, b, a), 16)
        conv(builder, joined(builder, a, a), 16)
        narrow = conv(builder, x, 12)
        conv(builder, joined(builder, narrow, a), 16)
        graph = powers(builder.graph())
        program = run(graph, machine(), rng)
        host = {step.name for step in program.steps if not isinstance(step, Launch)}
        joins = [node.name for node in graph.nodes if isinstance(node.op, Concat)]
        assert host == set(joins[1:])


@pytest.mark.parametrize("keys", [{}, {"LOG_BATCH": "1"}], ids=str)
def test_an_average_a_reshape_and_a_product_are_one_launch(keys: dict[str, str]) -> None:
    for rng in seeded(3):
        builder = Builder(rng)
        x = conv(builder, builder.given((1, 7, 7, 16)), int(rng.integers(3, 50)))
        channels = builder.tensors[x].shape[3]
        mean = builder.layer(Mean((1, 2), True), x, quant=builder.tensors[x].quant)
        flat = builder.layer(Reshape((1, channels)), mean, quant=builder.tensors[x].quant)
        builder.linear(FullyConnected(), flat, (10, channels), 0)
        graph = powers(builder.graph())
        program = run(graph, machine(**keys), rng)
        if not keys:
            assert len(launches(program)) == 1
            result = run_program(program, np.zeros((1, 1, 7, 7, 16), np.int8))
            assert [layer.cycles > 0 for layer in result.layers] == [True, True, False, True]


@pytest.mark.parametrize("keys", [{}, {"stages": "4"}, {"LOG_BATCH": "1"}, SMALL], ids=str)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_repeated_pixels(dtype: str, keys: dict[str, str]) -> None:
    for rng in seeded(5):
        shape = (1, int(rng.integers(1, 14)), int(rng.integers(1, 14)), int(rng.integers(1, 70)))
        factors = (int(rng.integers(1, 4)), int(rng.integers(1, 4)))
        kind = Quant((0.5,), (3,))
        graph = one_node(Upsample(factors), (Tensor("x", shape, dtype, kind),), kind, dtype, "ort")
        check(graph, machine(**keys), rng)


def test_a_detector_neck_is_one_launch() -> None:
    """Upsampled channels beside those of a finer map, as in YOLO."""
    for rng in seeded(3):
        builder = Builder(rng)
        fine = conv(builder, builder.given((1, 8, 6, 16)), 32, 3)
        coarse = conv(
            builder, builder.layer(MaxPool2D(Window((2, 2), (2, 2))), fine, quant=builder.tensors[fine].quant), 48, 3
        )
        wide = builder.layer(Upsample((2, 2)), coarse, quant=builder.tensors[coarse].quant)
        conv(builder, joined(builder, wide, fine), 255)
        graph = powers(builder.graph())
        assert len(launches(run(graph, machine(), rng))) == 1
