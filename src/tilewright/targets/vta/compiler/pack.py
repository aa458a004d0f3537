"""Convert tensors to a launch's input segments, and output segments to tensors, at every inference.

Codes are laid out as tiles. Byte planes (accumulators stored one byte at a time) are joined. The second operand of a
matrix product is laid out as weights: its matrices lie side by side as channels, each in its own tiles.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.graph.ir import Graph, Site
from tilewright.graph.ops import AveragePool2D, Conv2D, DepthwiseConv2D, FullyConnected, Linear, MatMul
from tilewright.graph.ops.linear import matrices, merge_samples
from tilewright.graph.reference import value_of
from tilewright.graph.rounding import rounding_mode
from tilewright.program.program import Launch
from tilewright.targets.vta.compiler.layer import columns_of
from tilewright.targets.vta.compiler.lowered import Strip, given_back, held_codes, held_offset, held_zero_point

#: Arrays of the correction that the host subtracts from sums, by row class, column class and channel.
TABLES = ("correction", "row_class", "column_class")
#: The array of the earlier result tiles whose top byte planes the sums contain (see plan.carried).
CARRIED = "carried"
#: The arrays of the channels that the machine reads and computes, if these are not all channels.
READ, COMPUTED = "read", "computed"


def pack(launch: Launch, graph: Graph, values: Mapping[str, Array]) -> dict[str, Array]:
    """Return a launch's input segments by name, uint8 (S samples, bytes): the tensors in `values` laid out as tiles.

    The order is [channel tile][row][column][batch][block], padded with zeros. Raises ProgramError if the launch's
    layout does not fit its segments, or a tensor has no value.
    """
    sizes = {segment["name"]: segment["size"] for segment in launch.meta["segments"]}
    packed = {}
    for index, form in enumerate(launch.meta["layers"]):
        site = graph.site(graph.node(form["node"]))
        inputs = [(name, tensor, "in") for name, tensor in zip(form["inputs"], form["tensors"], strict=True)]
        for name, tensor, end in (*inputs, *((name, tensor, "out") for name, tensor in form.get("residual", ()))):
            if form[f"{end}_tiles"] * form[f"{end}_pixels"] * form["batch"] * form["block"] != sizes[name]:
                reason = f"the size of its input segment '{name}' does not match its layout"
                raise ProgramError(f"launch '{launch.name}'", reason, "compile the network again")
            if not 0 < form["fold"] <= form["block"]:
                reason = f"its layout puts {form['fold']} pixels in a tile, not 1..{form['block']}"
                raise ProgramError(f"launch '{launch.name}'", reason, "compile the network again")
            held = _held(launch, graph, values, tensor)
            channels = launch.arrays.get(f"{READ}.{index}") if end == "in" else None
            held = held if channels is None else held[..., channels]
            rows = _rows(site, held, form["block"]) if end == "in" and form["matrix"] else held
            packed[name] = _tiles(rows, form, end)
        if form["weights"] is not None:
            tiles = _product_weights(site, _held(launch, graph, values, site.input(1).name), form["block"])
            parts = [
                tiles[:, out : out + outs, k : k + sums].reshape(len(tiles), -1)
                for out, outs, k, sums in form["chunks"]
            ]
            packed[form["weights"]] = np.concatenate(parts, axis=1).view(np.uint8)
            if packed[form["weights"]].shape[1] != sizes[form["weights"]]:
                reason = f"the size of its weight segment '{form['weights']}' does not match its layout"
                raise ProgramError(f"launch '{launch.name}'", reason, "compile the network again")
    samples = max((len(data) for data in packed.values()), default=1)
    return {name: np.broadcast_to(data, (samples, data.shape[1])) for name, data in packed.items()}


def _held(launch: Launch, graph: Graph, values: Mapping[str, Array], tensor: str) -> Array:
    """Return a tensor's codes as the machine holds them, int8 (S, *shape) for S samples; a scalar is one channel."""
    value = value_of(graph, values, tensor)
    if value is None:
        raise ProgramError(f"launch '{launch.name}'", f"input '{tensor}' has no value", "compile the network again")
    return held_codes(value if value.ndim > 1 else value[:, None])


def _tiles(held: Array, form: Mapping[str, Any], end: str) -> Array:
    """Return the codes `held`, int8 (S, ..., channels), laid out as tiles, uint8 (S, bytes).

    `form`: the layer in `meta`; `end`: whether its input ("in") or its result ("out") has the same layout.
    """
    samples, batch, block = held.shape[0], form["batch"], form["block"]
    count, pixels = form[f"{end}_tiles"], form[f"{end}_pixels"]
    if form["strip"] and end == "in":
        tiles = np.zeros((samples, count, pixels, batch, block), np.int8)
        held = merge_samples(held)
        laid_out = Strip(*form["strip"]).laid_out(held, count, pixels // held.shape[1], block)
        tiles[:, :, :, 0] = laid_out.reshape(samples, count, pixels, block)
        return tiles.reshape(samples, -1).view(np.uint8)
    turned = form["turned"] and end == "in"
    if turned:  # from [row][channel tile][column]
        count, pixels = pixels // held.shape[3], count * held.shape[3]
    if form["matrix"]:
        rows = _folded(held.reshape(samples, -1, held.shape[-1]), form["fold"])
        tiles = np.zeros((samples, count, pixels * batch, block), np.int8)
    else:
        rows = _folded(held.reshape(-1, *held.shape[-2:]), form["fold"]).reshape(samples, pixels, -1)
        tiles = np.zeros((samples, count, pixels, batch, block), np.int8)[:, :, :, 0]
    whole = rows.shape[2] // block
    count = rows.shape[1]
    if whole:
        full = rows[:, :, : whole * block].reshape(samples, count, whole, block)
        tiles[:, :whole, :count] = full.transpose(0, 2, 1, 3)
    if rows.shape[2] % block:
        tiles[:, whole, :count, : rows.shape[2] % block] = rows[:, :, whole * block :]
    base = tiles if tiles.base is None else tiles.base
    if turned:
        base = base.reshape(samples, tiles.shape[1], *held.shape[2:4], -1).swapaxes(1, 2)
    return base.reshape(samples, -1).view(np.uint8)


def _rows(site: Site, held: Array, block: int) -> Array:
    """Return the input rows of a matrix layer, int8 (S, M, K): one row per output pixel; padding is the zero point."""
    op = site.node.op
    samples = held.shape[0]
    if isinstance(op, FullyConnected):
        every = held.shape[-1] == site.input(0).shape[-1]
        return held.reshape(samples, -1, site.input(1).shape[1] if every else held.shape[-1])
    if isinstance(op, MatMul):
        return _product_rows(site, held, block)
    if not isinstance(op, Conv2D | DepthwiseConv2D):
        return held.reshape(samples, -1, held.shape[-1])
    window = op.window
    views = window.view(window.pad(merge_samples(held), held_zero_point(site.input(0))))
    return np.ascontiguousarray(views).reshape(samples, -1, int(np.prod(views.shape[3:])))


def _folded(pixels: Array, fold: int) -> Array:
    """Return pixels (N, W, C) folded to (N, ceil(W / fold), fold * C), with zeros after the last pixel."""
    count, width, channels = pixels.shape
    if width % fold:
        pixels = np.pad(pixels, ((0, 0), (0, -width % fold), (0, 0)))
    return pixels.reshape(count, -(-width // fold), fold * channels)


def unpack(
    launch: Launch, graph: Graph, values: Mapping[str, Array], outputs: Mapping[str, Array], rounding: str
) -> dict[str, Array]:
    """Return the result tensors of a launch as codes, {name: (S samples, *shape)}, from its output segments.

    `values`: the tensors that `pack` was given. Raises ProgramError if the launch lacks correction tables.
    """
    found = {}
    for index, form in enumerate(launch.meta["layers"]):
        if form["result"] is not None:
            site = graph.site(graph.node(form["node"]))
            size = form["planes"] * form["out_tiles"] * form["out_pixels"] * form["batch"] * form["block"]
            data = outputs[form["result"]][:, form["first"] * form["batch"] * form["block"] :][:, :size]
            known = launch.arrays
            acc = gathered(site, form, data, known.get(f"{CARRIED}.{index}"), known.get(f"{COMPUTED}.{index}"))
            if form["codes"]:
                found[site.output.name] = given_back(acc.astype(np.int8), site.output)
            elif isinstance(site.node.op, MatMul):
                held = [_held(launch, graph, values, site.input(operand).name) for operand in (0, 1)]
                acc = acc.astype(np.int32, copy=False) + _product_correction(site, *held)
                found[site.output.name] = site.node.op.finish(site, acc, rounding_mode(rounding))
            else:
                tables = {name: launch.arrays.get(f"{name}.{index}") for name in TABLES}
                op, residual = site.node.op, None
                if isinstance(op, Linear) and op.residual(site):
                    residual = value_of(graph, values, site.node.inputs[3])
                found[site.output.name] = _finished(site, acc.astype(np.int32, copy=False), tables, rounding, residual)
    return found


def gathered(site: Site, form: Mapping[str, Any], data: Array, carried: Array | None, computed: Array | None) -> Array:
    """Return the accumulators (S, *out_shape), joined from the byte planes of a result (lowest byte first).

    `carried` int32 [tiles]: for each tile, the one whose top byte plane to subtract (-1: none); None if for no tile.
    `computed` int64: the channels in the result; None if all. The accumulators of the others are 0.
    """
    samples, batch, block, planes = data.shape[0], form["batch"], form["block"], form["planes"]
    tiles, positions = form["out_tiles"], form["out_pixels"]
    if form["turned"]:  # each row is a channel tile
        tiles, positions = positions, tiles
    stored = data.reshape(samples, planes, tiles, positions, batch, block)
    stored = stored.reshape(samples, planes, tiles, -1, block) if form["matrix"] else stored[:, :, :, :, 0]
    shape, fold = site.output.shape, form["fold"]
    *pixel_axes, outputs = site.output.image
    channels, size = outputs if computed is None else len(computed), prod(pixel_axes)
    width = size if form["matrix"] else columns_of(shape)
    pixels = size // width * -(-width // fold)
    acc = stored[:, planes - 1].view(np.int8)
    if planes > 1:
        acc = acc.astype(np.int32)
    for plane in range(planes - 2, -1, -1):
        acc <<= 8
        acc |= stored[:, plane]
    if carried is not None:
        top = stored[:, planes - 1].view(np.int8).reshape(samples, len(carried), -1)
        acc -= np.where(carried[:, None] >= 0, top[:, carried], 0).reshape(acc.shape)
    if isinstance(site.node.op, MatMul):
        rows = site.output.shape[-2]
        return _product_result(site, acc[:, :, :rows].transpose(0, 2, 1, 3).reshape(samples, rows, -1), block)
    if form["strip"]:
        strips = form["out_pixels"] // shape[1]
        acc = acc.reshape(samples, form["out_tiles"], shape[1], strips, block)
        acc = Strip(*form["strip"]).gathered(acc, (shape[1], shape[2], channels))
        return _spread(acc.reshape(samples, *shape[:-1], channels), shape, computed)
    # [channel tile][pixel][block] to channels last.
    acc = acc[:, :, :pixels].transpose(0, 2, 1, 3).reshape(samples, pixels, -1)[:, :, : fold * channels]
    if fold > 1:
        acc = acc.reshape(-1, -(-width // fold) * fold, channels)[:, :width]
    return _spread(acc.reshape(samples, *shape[:-1], channels), shape, computed)


def _spread(acc: Array, shape: tuple[int, ...], computed: Array | None) -> Array:
    """Return the accumulators of the channels `computed` as (S, *shape), with 0 for other channels."""
    if computed is None:
        return acc.reshape(len(acc), *shape)
    every = np.zeros((len(acc), *shape), acc.dtype)
    every[..., computed] = acc
    return every


def _finished(
    site: Site, acc: Array, tables: Mapping[str, Array | None], rounding: str, residual: Array | None
) -> Array:
    """Requantise the sums `acc`, int32 (S, *out_shape), on the host, with the codes `residual`; return the codes."""
    op = site.node.op
    if isinstance(op, Linear):
        correction, rows, columns = (tables[name] for name in TABLES)
        if correction is None or rows is None or columns is None:
            raise ProgramError(f"op '{site.node.name}'", "correction tables are missing", "compile the network again")
        if correction.any():
            acc = acc - correction_at(correction, rows, columns)
        return op.finish(site, acc, rounding_mode(rounding), residual)
    if not isinstance(op, AveragePool2D):
        raise ProgramError(f"op '{site.node.name}'", f"the host cannot finish a {op.kind}", "compile the network again")
    return op.finish(site, acc + held_offset(site.input(0)) * op.counts(site))[0]


def correction_at(correction: Array, rows: Array, columns: Array) -> Array:
    """Return what zero points add to the sums: int32, which broadcasts to (S, *out_shape). See TABLES."""
    return correction[0, 0] if correction.shape[:2] == (1, 1) else correction[rows[:, None], columns]


def _product_rows(site: Site, held: Array, block: int) -> Array:
    """Return a MatMul's first operand, int8 (S, *shape), as rows: int8 (S, M, matrices * K padded to whole tiles)."""
    count, rows, depth, _ = matrices(site)
    parts = np.pad(held.reshape(-1, count, rows, depth), ((0, 0),) * 3 + ((0, -depth % block),))
    return np.ascontiguousarray(parts.swapaxes(1, 2)).reshape(len(parts), rows, -1)


def _product_weights(site: Site, held: Array, block: int) -> Array:
    """Return a MatMul's second operand laid out as weight tiles: int8 [S, output tile, k, block, block]."""
    count, _, depth, columns = matrices(site)
    parts = np.pad(
        held.reshape(-1, count, depth, columns), ((0, 0), (0, 0), (0, -depth % block), (0, -columns % block))
    )
    tiles = parts.reshape(len(parts), count, parts.shape[2] // block, block, parts.shape[3] // block, block)
    return tiles.transpose(0, 1, 4, 2, 5, 3).reshape(len(parts), -1, parts.shape[2] // block, block, block)


def _product_result(site: Site, acc: Array, block: int) -> Array:
    """Return MatMul sums (S, M, matrices * N padded to whole tiles) in the shape of its output, (S, *out_shape)."""
    count, rows, _, columns = matrices(site)
    parts = acc.reshape(len(acc), rows, count, -(-columns // block) * block)[..., :columns]
    return parts.swapaxes(1, 2).reshape(len(acc), *site.output.shape)


def _product_correction(site: Site, left: Array, right: Array) -> Array:
    """Return what to add to MatMul sums because of zero points: int32 (S, *out_shape), or broadcastable to that."""
    za, zb = (held_zero_point(site.input(index)) for index in (0, 1))
    depth = left.shape[-1]
    rows, columns = left.sum(-1, dtype=np.int32)[..., None], right.sum(-2, dtype=np.int32)[..., None, :]
    total: Array = depth * za * zb - zb * rows - za * columns
    return total
