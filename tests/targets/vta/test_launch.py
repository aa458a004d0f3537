"""Where the tensors of a launch lie in DRAM, against plain loops over elements that follow the layouts' definitions."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np
import pytest

from tests.targets.vta.random_graphs import CONFIGS, graph_of, random_graph
from tilewright.graph.ir import Quant, Site, Tensor
from tilewright.graph.ops import AveragePool2D, Conv2D, DepthwiseConv2D, FullyConnected, Window
from tilewright.program.placement import NOWHERE, Placement
from tilewright.program.program import Launch
from tilewright.targets.vta.compiler.compiler import compile_graph
from tilewright.targets.vta.launch.layouts import NodeLayout

pytestmark = pytest.mark.usefixtures("brief_search")

Lanes = Iterator[tuple[int, int, int, int]]


def position(form: dict[str, Any], tile: int, row: int, lane: int, pixels: int) -> int:
    """The byte of a lane in tile `tile`, whose matrix row (or pixel) has this number."""
    size = form["batch"] * form["block"]
    if form["matrix"]:
        return tile * pixels * size + row * form["block"] + lane
    return (tile * pixels + row) * size + lane


def of_pixels(form: dict[str, Any], rows: int, width: int, channels: int, pixels: int) -> Lanes:
    """(row, column, channel, byte) of an image, or of a matrix with one row, in whose tiles `fold` pixels lie."""
    fold, block = form["fold"], form["block"]
    wide = -(-width // fold)
    for y, x, c in np.ndindex(rows, width, channels):
        tile, lane = divmod(x % fold * channels + c, block)
        yield y, x, c, position(form, tile, y * wide + x // fold, lane, pixels)


def of_strips(form: dict[str, Any], shape: tuple[int, ...], pixels: int, result: bool) -> Lanes:
    reads, writes, per_input, per_output, first, step = form["strip"]
    rows, width, channels = shape
    strips = pixels // rows
    length, per = (writes, per_output) if result else (reads, per_input)
    for s, y, at, c in np.ndindex(strips, rows, length, channels):
        x = s * writes + at if result else first + s * step + at
        if 0 <= x < width:
            yield y, x, c, position(form, c // per, y * strips + s, at * per + c % per, pixels)


def of_patches(form: dict[str, Any], site: Site, shape: tuple[int, ...]) -> Lanes:
    op = site.node.op
    assert isinstance(op, Conv2D | DepthwiseConv2D)
    window, block, fold = op.window, form["block"], form["fold"]
    rows, width, channels = shape
    out = site.output.shape[1:3]
    depth = prod(window.kernel) * channels
    for oy, ox, ky, kx, c in np.ndindex(*out, *window.kernel, channels):
        y = oy * window.stride[0] + ky * window.dilation[0] - window.padding[0]
        x = ox * window.stride[1] + kx * window.dilation[1] - window.padding[2]
        if 0 <= y < rows and 0 <= x < width:
            row = oy * out[1] + ox
            tile, lane = divmod(row % fold * depth + (ky * window.kernel[1] + kx) * channels + c, block)
            yield y, x, c, position(form, tile, row // fold, lane, form["in_pixels"])


def inputs_of(form: dict[str, Any], site: Site, shape: tuple[int, ...]) -> tuple[str, tuple[int, ...], Lanes]:
    """The kind of layout of an input, its shape as rows, columns and channels, and where its elements lie."""
    op, pixels = site.node.op, form["in_pixels"]
    channels, count = shape[-1], prod(shape[:-1])
    image = shape[-3:]
    if form["strip"]:
        return "strips", image, of_strips(form, image, pixels, result=False)
    if form["turned"]:
        rows, width, _ = image
        tiles = pixels // width
        each = (
            (
                y,
                x,
                c,
                ((y * tiles + c // form["block"]) * width + x) * form["batch"] * form["block"] + c % form["block"],
            )
            for y, x, c in np.ndindex(*image)
        )
        return "turned", image, each
    if form["matrix"] and isinstance(op, FullyConnected):
        depth = site.input(1).shape[1]
        rows = prod(shape) // depth
        return "rows", (1, rows, depth), of_pixels(form, 1, rows, depth, pixels)
    if form["matrix"] and isinstance(op, Conv2D | DepthwiseConv2D):
        return "patches", image, of_patches(form, site, image)
    if form["matrix"]:
        return "rows", (1, count, channels), of_pixels(form, 1, count, channels, pixels)
    kind = "folded" if form["fold"] > 1 else "image"
    return kind, image, of_pixels(form, image[0], image[1], channels, pixels)


def results_of(form: dict[str, Any], shape: tuple[int, ...]) -> tuple[tuple[int, ...], Lanes]:
    pixels, channels = form["out_pixels"], shape[-1]
    if form["strip"]:
        return shape[-3:], of_strips(form, shape[-3:], pixels, result=True)
    if form["matrix"]:
        count = prod(shape[:-1])
        return (1, count, channels), of_pixels(form, 1, count, channels, pixels)
    if form["turned"]:
        pixels = form["out_tiles"]
    return shape[-3:], of_pixels(form, shape[-3], shape[-2], channels, pixels)


def assert_placed(place: Placement, shape: tuple[int, ...], lanes: Lanes) -> None:
    expected = np.full(prod(place.slots), NOWHERE)
    for y, x, c, byte in lanes:
        assert expected[byte] == NOWHERE
        expected[byte] = np.ravel_multi_index((y, x, c), shape)
    np.testing.assert_array_equal(place.element, expected)


def launches(name: str, seeds: range) -> Iterator[tuple[Launch, Site]]:
    for seed in seeds:
        print("config", name, "seed", seed)
        graph = random_graph(np.random.default_rng([seed, *name.encode()]))
        for launch in compile_graph(graph, CONFIGS[name], "tflm").launches:
            yield launch, graph.site(graph.nodes[0])


def pooled(name: str) -> tuple[Launch, Site]:
    """A pool over the whole image, which takes image rows as channel tiles."""
    quantised = Quant((0.1,), (0,))
    x = Tensor("x", (1, 25, 5, 64), "int8", quantised)
    graph = graph_of(AveragePool2D(Window((25, 5))), x, [], Tensor("y", (), "int8", quantised))
    (launch,) = compile_graph(graph, CONFIGS[name], "tflm").launches
    return launch, graph.site(graph.nodes[0])


def test_every_layout_is_that_of_its_definition() -> None:
    kinds = set()
    for name in ("pynq", "batch2", "batch4b8", "block32"):
        for launch, site in (*launches(name, range(14)), pooled(name)):
            (form,) = launch.meta["layers"]
            (layout,) = NodeLayout.all_of(launch)
            assert layout.to_json() == form
            shape = site.input(0).shape
            kind, seen, lanes = inputs_of(form, site, shape)
            kinds.add(kind)
            place = layout.of_input(site, shape, None)
            assert place.nbytes == layout.input_bytes()
            assert_placed(place, seen, lanes)
            result = layout.of_result(site, None)
            assert result.nbytes == layout.planes * layout.input_bytes(result_like=True)
            assert result.planes == (0 if form["codes"] else form["planes"])
            assert_placed(result, *results_of(form, site.output.shape))
            residual = layout.of_result(site, None, site.output.shape)
            np.testing.assert_array_equal(residual.element, result.element)
            assert residual.nbytes == layout.input_bytes(result_like=True)
    assert kinds == {"image", "folded", "strips", "turned", "rows", "patches"}


def test_the_padding_of_patches_is_the_zero_point_and_of_tiles_zero() -> None:
    tried = 0
    for launch, site in launches("pynq", range(60)):
        (layout,) = NodeLayout.all_of(launch)
        op = site.node.op
        if not (layout.matrix and isinstance(op, Conv2D) and any(op.window.padding)):
            continue
        tried += 1
        held = np.full((1, *site.input(0).shape), 77, np.int8)
        slots = layout.of_input(site, site.input(0).shape, None).pack(held).view(np.int8)[0]
        depth = prod(op.window.kernel) * site.input(0).shape[3] * layout.fold
        filled = np.arange(len(slots)).reshape(layout.in_tiles, -1, layout.block)
        lane = np.arange(layout.in_tiles)[:, None, None] * layout.block + np.arange(layout.block)
        inside = np.broadcast_to(lane < depth, filled.shape).reshape(-1)
        assert set(slots[inside]) <= {77, site.input(0).zero_point, 0}
        assert site.input(0).zero_point in slots[inside]
        assert (slots[~inside] == 0).all()
    assert tried


@pytest.mark.parametrize("name", ["pynq", "batch2"])
def test_channels_that_the_machine_leaves_out_have_no_place(name: str) -> None:
    rng = np.random.default_rng(3)
    for launch, site in launches(name, range(8)):
        (layout,) = NodeLayout.all_of(launch)
        channels = site.output.shape[-1]
        some = np.sort(rng.permutation(channels)[: -(-channels // 2)])
        if layout.strip or layout.fold > 1:
            continue
        whole, part = layout.of_result(site, None), layout.of_result(site, some)
        left_out = np.setdiff1d(np.arange(channels), some)
        assert (part.slot[..., left_out] == NOWHERE).all()
        np.testing.assert_array_equal(part.slot[..., some], whole.slot[..., : len(some)])
        values = rng.integers(-128, 128, (2, *part.slots)).astype(np.int8)
        assert (part.collect(values)[..., left_out] == 0).all()
