"""Work that the compiler leaves out of layers that the host requantises: clears, constant channels, empty lanes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.mlperf import model_path
from tests.targets.vta.single_node import codes, machine, one_node, plan, seeded
from tilewright.array import Array
from tilewright.errors import UnsupportedError
from tilewright.graph import reference
from tilewright.graph.ir import Graph, Node, Quant, Site, Tensor
from tilewright.graph.ops import AveragePool2D, Conv2D, DepthwiseConv2D, Op, Window
from tilewright.graph.rounding import rounding_mode
from tilewright.model import load
from tilewright.program.placement import Placement
from tilewright.run import run
from tilewright.targets.vta.compiler.compiler import compile_graph
from tilewright.targets.vta.compiler.constant import ranges
from tilewright.targets.vta.compiler.lowered import Width, width_of
from tilewright.targets.vta.compiler.plan import Plan, carried
from tilewright.targets.vta.compiler.strips import forms


def test_the_width_of_sums() -> None:
    config = machine()
    assert width_of(-128, 127, config) == Width(1, False)
    assert width_of(-(1 << 15) + 128, (1 << 15) - 128, config) == Width(2, True)
    assert width_of(-(1 << 15), 0, config) == Width(2, False), "no room for an earlier top byte"
    assert width_of(0, (1 << 15) - 127, config) == Width(2, False)
    with pytest.raises(UnsupportedError, match="17 bits"):
        width_of(0, 1 << 15, machine(LOG_ACC_WIDTH="4", LOG_ACC_BUFF_SIZE="16"))


def test_tiles_carry_the_byte_that_the_same_accumulator_held_before(shared: Path) -> None:
    graph = load(model_path(shared, "ic"))
    site = graph.site(graph.node("conv2d_8"))
    found = plan(site, machine())
    assert isinstance(found, Plan)
    held: dict[tuple[int, int], int] = {}
    expected = {}
    for turn, group in enumerate(found.groups()):
        at = 0
        for out in range(group.outs.first, group.outs.first + group.outs.size):
            for y in range(group.rows.start, group.rows.start + group.rows.extent):
                for x in range(group.columns.start, group.columns.start + group.columns.extent):
                    tile = (out * found.layer.out[0] + y) * found.layer.out[1] + x
                    expected[tile] = held.get((turn % found.slots.acc, at), -1)
                    held[turn % found.slots.acc, at] = tile
                    at += 1
    assert carried(found).tolist() == [expected[tile] for tile in range(len(expected))]
    assert max(expected.values()) >= 0


def network(rng: np.random.Generator) -> Graph:
    """Two 1x1 convolutions with a padded depthwise one between them, each with many constant channels."""
    tensors = {"x": Tensor("x", (1, 6, 7, 20), "int8", Quant((0.05,), (-128,)))}
    nodes = []
    shapes = ((24, 1, 1, 20), (1, 3, 3, 24), (10, 1, 1, 24))
    ops: tuple[Op, ...] = (
        Conv2D(activation="relu"),
        DepthwiseConv2D(activation="relu", window=Window((3, 3), padding=(1, 1, 1, 1))),
        Conv2D(),
    )
    before = "x"
    for index, (shape, op) in enumerate(zip(shapes, ops, strict=True)):
        outputs = shape[0] if index != 1 else shape[3]
        scales = tuple(np.where(rng.random(outputs) < 0.5, 1e-9, 0.01).tolist())
        w = rng.integers(-128, 128, shape).astype(np.int8)
        b = rng.integers(-3000, 3000, outputs).astype(np.int32)
        b[rng.random(outputs) < 0.3] = -(1 << 24)
        axis = 3 if index == 1 else 0
        after = f"y{index}"
        inputs = (
            tensors[before],
            Tensor(f"w{index}", shape, "int8", Quant(scales, (0,) * outputs, axis), w),
            Tensor(f"b{index}", (outputs,), "int32", None, b),
        )
        zero = int(rng.integers(-128, 128)) if index != 1 else -100
        node = Node(f"n{index}", op, tuple(tensor.name for tensor in inputs), (after,))
        out = Tensor(after, (), "int8", Quant((0.2,), (zero,)))
        (made,) = op.shapes(Site(node, inputs, (out,)))
        tensors |= {tensor.name: tensor for tensor in inputs}
        tensors[after] = Tensor(after, made, "int8", out.quant)
        nodes.append(node)
        before = after
    return Graph("constant", tensors, tuple(nodes), ("x",), (before,), "tflm").validate()


def computed(graph: Graph, given: Array, rounding: str) -> dict[str, Array]:
    """The codes of all nodes by name, by the integer reference."""
    values: dict[str, Array] = {}
    reference.run(graph, given, rounding, lambda site, found: values.update({site.output.name: found[0]}))
    return values


@pytest.mark.parametrize("rounding", ["tflm", "litert", "xnnpack"])
def test_constant_channels(rounding: str) -> None:
    left_out = 0
    for rng in seeded(3):
        graph = network(rng)
        program = compile_graph(graph, machine(), rounding)
        extremes = np.stack([np.full((1, 6, 7, 20), code, np.int8) for code in (-128, 127)])
        given = np.concatenate([extremes, codes(rng, graph.tensors["x"], 6)])
        result = run(program, given)
        assert result.matches_reference
        assert not result.findings
        values = computed(graph, given, rounding)
        for name, bounds in ranges(graph, rounding_mode(rounding)).items():
            low, high = (end(values[name].reshape(-1, len(bounds.low)), axis=0) for end in (np.min, np.max))
            assert (bounds.low <= low).all()
            assert (high <= bounds.high).all()
        for launch in program.launches:
            shape = graph.site(graph.node(launch.nodes[0])).output.shape
            left_out += shape[-1] - len(launch.arrays.get("computed.0", range(shape[-1])))
    assert left_out > 25


def test_strips_compute_the_same_sums() -> None:
    """The products of laid-out strips and their weight tiles, against a convolution in loops."""
    tried = 0
    for rng in seeded(40):
        size, kernel = tuple(rng.integers(1, 20, 2).tolist()), tuple(rng.integers(1, 5, 2).tolist())
        window = Window(
            kernel,
            tuple(rng.integers(1, 4, 2).tolist()),
            tuple(rng.integers(0, 3, 4).tolist()),
            tuple(rng.integers(1, 3, 2).tolist()),
        )
        alone = rng.random() < 0.5
        channels = int(rng.integers(1, 40)) if alone else int(rng.integers(1, 5))
        outputs = channels if alone else int(rng.integers(1, 17))
        padded = [extent + sum(window.padding[2 * axis : 2 * axis + 2]) for axis, extent in enumerate(size)]
        if any(extent < need for extent, need in zip(padded, window.extent, strict=True)):
            continue
        x = rng.integers(-128, 128, (2, *size, channels)).astype(np.int8)
        shape = (1, *kernel, channels) if alone else (outputs, *kernel, channels)
        scale = Quant((0.1,), (0,))
        constant = Tensor("w", shape, "int8", scale, rng.integers(-128, 128, shape).astype(np.int8))
        op = DepthwiseConv2D(window=window) if alone else Conv2D(window=window)
        graph = one_node(op, (Tensor("x", (1, *size, channels), "int8", scale), constant), scale, "int8", "tflm")
        site = graph.site(graph.nodes[0])
        assert constant.data is not None
        w = constant.data.reshape(-1, channels).T[:, :, None] if alone else constant.data.reshape(outputs, -1, channels)
        expected = op.accumulate(site, x[:, None], constant.data)[:, 0]
        start = np.arange(outputs) if alone else np.zeros(outputs, np.int64)
        for form in forms(site, w.astype(np.int32), start, window, Width(3, True), machine(), split=True):
            layer, tiles, strip = form.layer, form.tiles, form.strip
            assert tiles is not None and strip
            tried += 1
            rows, strips = layer.size
            read = strip.arrange(Placement.of((*size, channels)), layer.in_tiles, strips, 16)
            laid_out = read.arrange(x).reshape(2, rows, strips, -1, 16).transpose(0, 3, 1, 2, 4).astype(np.int64)
            total = np.zeros((2, layer.out_tiles, *layer.out, 16), np.int64)
            for y, tap in np.ndindex(layer.out[0], kernel[0]):
                row = y * window.stride[0] - window.padding[0] + tap * window.dilation[0]
                if 0 <= row < rows:
                    products = np.einsum("stnl,tol->stno", laid_out[:, :, row], tiles[:, 0, tap].astype(np.int64))
                    total[:, :, y] += products
            image = Placement.of(site.output.shape[1:])
            written = strip.of_results.arrange(image, layer.out_tiles, layer.out[1], 16)
            stored = total.transpose(0, 2, 3, 1, 4).reshape(2, *written.slots)
            np.testing.assert_array_equal(written.collect(stored), expected)
    assert tried > 100


def test_depthwise_layers_take_strips_where_they_are_faster(shared: Path) -> None:
    program = compile_graph(load(model_path(shared, "kws")), machine(), "tflm")
    plans = {launch.name: launch.meta["layers"][0]["plan"] for launch in program.launches}
    for index in (1, 3, 5, 7):
        assert "strips of 5 pixels x 3 channels" in plans[f"depthwise_conv2d_{index}"]
    assert "row by row" in plans["average_pool_2d_9"]


def test_pools_over_the_whole_image() -> None:
    for rng in seeded(8):
        height, width, channels = (int(rng.integers(*span)) for span in ((2, 9), (1, 9), (1, 80)))
        scale = Quant((0.1,), (int(rng.integers(-128, 128)),))
        x = Tensor("x", (1, height, width, channels), "int8", scale)
        graph = one_node(AveragePool2D(window=Window((height, width))), (x,), scale, "int8", "tflm")
        program = compile_graph(graph, machine(), "tflm")
        result = run(program, codes(rng, x, 3))
        assert result.matches_reference
        assert not result.findings


def test_independent_layers_share_a_launch(shared: Path) -> None:
    """The projection of a residual block stores more per micro-op, so it comes before the convolution."""
    program = compile_graph(load(model_path(shared, "ic")), machine(), "tflm")
    nodes = [launch.nodes for launch in program.launches]
    assert ("conv2d_6", "conv2d_5") in nodes
    assert ("conv2d_10", "conv2d_9") in nodes
    assert ("conv2d_4",) in nodes, "conv2d_5 reads what the host makes of its sums"
