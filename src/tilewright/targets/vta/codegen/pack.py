"""What enters and leaves a launch: codes as tiles, byte planes as accumulators. Runs at every inference."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.graph.ir import Graph, Node, Site
from tilewright.graph.ops import AveragePool2D, Conv2D, DepthwiseConv2D, FullyConnected, Linear
from tilewright.graph.ops.linear import merge_samples
from tilewright.graph.reference import value_of
from tilewright.graph.rounding import rounding_mode
from tilewright.program.program import Launch


def pack(launch: Launch, graph: Graph, values: Mapping[str, Array]) -> dict[str, Array]:
    """The input segment "x", uint8 (S, size): tiles [channel tile][row][column][batch][block], padded with 0."""
    site = graph.site(node_of(launch, graph))
    form = launch.meta["layout"]
    codes = value_of(graph, values, site.input(0).name)
    assert codes is not None
    samples, batch, block = codes.shape[0], form["batch"], form["block"]
    in_tiles, pixels = form["in_tiles"], form["in_pixels"]
    (size,) = (segment["size"] for segment in launch.meta["segments"] if segment["name"] == "x")
    if in_tiles * pixels * batch * block != size or not 0 < form["fold"] <= block:
        raise ProgramError(f"launch '{launch.name}'", "its layout does not fit its input segment", "compile it again")
    if form["matrix"]:
        rows = _folded(_rows(site, codes), form["fold"])
        tiles = np.zeros((samples, in_tiles, pixels * batch, block), np.int8)
    else:
        rows = _folded(codes.reshape(-1, *codes.shape[3:]), form["fold"]).reshape(samples, pixels, -1)
        tiles = np.zeros((samples, in_tiles, pixels, batch, block), np.int8)[:, :, :, 0]
    whole = rows.shape[2] // block
    count = rows.shape[1]
    if whole:
        full = rows[:, :, : whole * block].reshape(samples, count, whole, block)
        tiles[:, :whole, :count] = full.transpose(0, 2, 1, 3)
    if rows.shape[2] % block:
        tiles[:, whole, :count, : rows.shape[2] % block] = rows[:, :, whole * block :]
    base = tiles if tiles.base is None else tiles.base
    return {"x": base.reshape(samples, -1).view(np.uint8)}


def _rows(site: Site, codes: Array) -> Array:
    """The rows of a matrix layer, int8 (S, M, K): what each output pixel reads; padding is the zero point."""
    op = site.node.op
    samples = codes.shape[0]
    if isinstance(op, FullyConnected):
        return codes.reshape(samples, -1, site.input(1).shape[1])
    if not isinstance(op, Conv2D | DepthwiseConv2D):
        raise ProgramError(f"op '{site.node.name}'", f"a {op.kind} is not laid out as a matrix", "compile it again")
    window = op.window
    views = window.view(window.pad(merge_samples(codes), site.input(0).zero_point))
    return np.ascontiguousarray(views).reshape(samples, -1, int(np.prod(views.shape[3:])))


def _folded(pixels: Array, fold: int) -> Array:
    """(N, W, C) as (N, ceil(W / fold), fold * C), zeros behind the last pixel."""
    count, width, channels = pixels.shape
    if width % fold:
        pixels = np.pad(pixels, ((0, 0), (0, -width % fold), (0, 0)))
    return pixels.reshape(count, -(-width // fold), fold * channels)


def unpack(launch: Launch, graph: Graph, outputs: Mapping[str, Array], rounding: str) -> dict[str, Array]:
    """The node's output codes {name: (S, *shape)} from the segment "acc": byte planes, lowest first."""
    site = graph.site(node_of(launch, graph))
    op, form = site.node.op, launch.meta["layout"]
    data = outputs["acc"]
    samples, batch, block, planes = data.shape[0], form["batch"], form["block"], form["planes"]
    stored = data.reshape(samples, planes, form["out_tiles"], form["out_pixels"], batch, block)
    stored = stored.reshape(samples, planes, form["out_tiles"], -1, block) if form["matrix"] else stored[:, :, :, :, 0]
    channels, fold = site.output.shape[-1], form["fold"]
    width = site.output.size // channels if form["matrix"] else site.output.shape[2]
    pixels = site.output.size // channels // width * -(-width // fold)
    acc = stored[:, planes - 1].view(np.int8).astype(np.int32)
    for plane in range(planes - 2, -1, -1):
        acc <<= 8
        acc |= stored[:, plane]
    # [channel tile][pixel][block] to channels last.
    acc = acc[:, :, :pixels].transpose(0, 2, 1, 3).reshape(samples, pixels, -1)[:, :, : fold * channels]
    if fold > 1:
        acc = acc.reshape(-1, -(-width // fold) * fold, channels)[:, :width]
    acc = acc.reshape(samples, *site.output.shape)
    if isinstance(op, Linear):
        correction = launch.arrays["correction"]
        if correction.any():
            if correction.shape[:2] == (1, 1):
                acc = acc - correction[0, 0]
            else:
                rows, columns = launch.arrays["row_class"], launch.arrays["column_class"]
                acc = acc - correction[rows[:, None], columns]
        return {site.output.name: op.finish(site, acc, rounding_mode(rounding))}
    if isinstance(op, AveragePool2D):
        return {site.output.name: op.finish(site, acc)[0]}
    return {site.output.name: acc.astype(site.output.dtype)}


def node_of(launch: Launch, graph: Graph) -> Node:
    """The one node that a launch computes."""
    (name,) = launch.nodes
    return graph.node(name)
