"""What enters and leaves a launch: codes as tiles, byte planes as accumulators. Runs at every inference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.graph.ir import Graph, Site
from tilewright.graph.ops import Add, AveragePool2D, Conv2D, DepthwiseConv2D, FullyConnected, Linear
from tilewright.graph.ops.linear import merge_samples
from tilewright.graph.reference import value_of
from tilewright.graph.rounding import rounding_mode
from tilewright.program.program import Launch
from tilewright.targets.vta.codegen import codes

#: What the host subtracts from sums: by row class, column class and channel.
TABLES = ("correction", "row_class", "column_class")


def pack(launch: Launch, graph: Graph, values: Mapping[str, Array]) -> dict[str, Array]:
    """What the host gives: uint8 (S, size) by segment; tiles [channel tile][row][column][batch][block], 0 beyond."""
    sizes = {segment["name"]: segment["size"] for segment in launch.meta["segments"]}
    packed = {}
    for form in launch.meta["layers"]:
        site = graph.site(graph.node(form["node"]))
        for name, tensor in zip(form["inputs"], form["tensors"], strict=True):
            if form["in_tiles"] * form["in_pixels"] * form["batch"] * form["block"] != sizes[name]:
                raise ProgramError(
                    f"launch '{launch.name}'", "its layout does not fit its input segment", "compile it again"
                )
            if not 0 < form["fold"] <= form["block"]:
                raise ProgramError(f"launch '{launch.name}'", "its layout has no legal fold", "compile it again")
            value = value_of(graph, values, tensor)
            if value is None:
                raise ProgramError(
                    f"launch '{launch.name}'", f"reads '{tensor}', which has no value", "compile it again"
                )
            packed[name] = _tiles(site, codes.held(value), form)
    return packed


def _tiles(site: Site, held: Array, form: Mapping[str, Any]) -> Array:
    """Codes int8 (S, *shape) as tiles, uint8 (S, size)."""
    samples, batch, block = held.shape[0], form["batch"], form["block"]
    in_tiles, pixels = form["in_tiles"], form["in_pixels"]
    if form["matrix"]:
        rows = _folded(_rows(site, held), form["fold"])
        tiles = np.zeros((samples, in_tiles, pixels * batch, block), np.int8)
    else:
        rows = _folded(held.reshape(-1, *held.shape[3:]), form["fold"]).reshape(samples, pixels, -1)
        tiles = np.zeros((samples, in_tiles, pixels, batch, block), np.int8)[:, :, :, 0]
    whole = rows.shape[2] // block
    count = rows.shape[1]
    if whole:
        full = rows[:, :, : whole * block].reshape(samples, count, whole, block)
        tiles[:, :whole, :count] = full.transpose(0, 2, 1, 3)
    if rows.shape[2] % block:
        tiles[:, whole, :count, : rows.shape[2] % block] = rows[:, :, whole * block :]
    base = tiles if tiles.base is None else tiles.base
    return base.reshape(samples, -1).view(np.uint8)


def _rows(site: Site, held: Array) -> Array:
    """The rows of a matrix layer, int8 (S, M, K): what each output pixel reads; padding is the zero point."""
    op = site.node.op
    samples = held.shape[0]
    if isinstance(op, FullyConnected):
        return held.reshape(samples, -1, site.input(1).shape[1])
    if isinstance(op, Add):
        return held.reshape(samples, -1, held.shape[-1])
    if not isinstance(op, Conv2D | DepthwiseConv2D):
        raise ProgramError(f"op '{site.node.name}'", f"a {op.kind} is not laid out as a matrix", "compile it again")
    window = op.window
    views = window.view(window.pad(merge_samples(held), codes.zero_point(site.input(0))))
    return np.ascontiguousarray(views).reshape(samples, -1, int(np.prod(views.shape[3:])))


def _folded(pixels: Array, fold: int) -> Array:
    """(N, W, C) as (N, ceil(W / fold), fold * C), zeros behind the last pixel."""
    count, width, channels = pixels.shape
    if width % fold:
        pixels = np.pad(pixels, ((0, 0), (0, -width % fold), (0, 0)))
    return pixels.reshape(count, -(-width // fold), fold * channels)


def unpack(launch: Launch, graph: Graph, outputs: Mapping[str, Array], rounding: str) -> dict[str, Array]:
    """The codes of each node's result that is wanted, {name: (S, *shape)}, from their segments."""
    found = {}
    for index, form in enumerate(launch.meta["layers"]):
        if form["result"] is not None:
            site = graph.site(graph.node(form["node"]))
            tables = {name: launch.arrays.get(f"{name}.{index}") for name in TABLES}
            found[site.output.name] = _result(site, form, outputs[form["result"]], tables, rounding)
    return found


def _result(
    site: Site, form: Mapping[str, Any], data: Array, tables: Mapping[str, Array | None], rounding: str
) -> Array:
    """Codes from a result's byte planes, lowest first: what they are, or sums that the host finishes."""
    op = site.node.op
    samples, batch, block, planes = data.shape[0], form["batch"], form["block"], form["planes"]
    stored = data.reshape(samples, planes, form["out_tiles"], form["out_pixels"], batch, block)
    stored = stored.reshape(samples, planes, form["out_tiles"], -1, block) if form["matrix"] else stored[:, :, :, :, 0]
    channels, fold = site.output.shape[-1], form["fold"]
    width = site.output.size // channels if form["matrix"] else site.output.shape[2]
    pixels = site.output.size // channels // width * -(-width // fold)
    acc = stored[:, planes - 1].view(np.int8)
    if planes > 1:
        acc = acc.astype(np.int32)
    for plane in range(planes - 2, -1, -1):
        acc <<= 8
        acc |= stored[:, plane]
    # [channel tile][pixel][block] to channels last.
    acc = acc[:, :, :pixels].transpose(0, 2, 1, 3).reshape(samples, pixels, -1)[:, :, : fold * channels]
    if fold > 1:
        acc = acc.reshape(-1, -(-width // fold) * fold, channels)[:, :width]
    acc = acc.reshape(samples, *site.output.shape)
    if form["codes"]:
        return codes.given_back(acc.astype(np.int8), site.output)
    acc = acc.astype(np.int32, copy=False)
    if isinstance(op, Linear):
        correction, rows, columns = (tables[name] for name in TABLES)
        if correction is None or rows is None or columns is None:
            raise ProgramError(f"op '{site.node.name}'", "lacks the tables that finish its sums", "compile it again")
        if correction.any():
            one_class = correction.shape[:2] == (1, 1)
            acc = acc - (correction[0, 0] if one_class else correction[rows[:, None], columns])
        return op.finish(site, acc, rounding_mode(rounding))
    if not isinstance(op, AveragePool2D):
        raise ProgramError(f"op '{site.node.name}'", f"is a {op.kind}, which leaves no sums", "compile it again")
    return op.finish(site, acc + codes.offset(site.input(0)) * op.counts(site))[0]
