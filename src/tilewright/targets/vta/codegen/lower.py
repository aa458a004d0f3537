"""From a graph node to a `Layer` with its weight tiles and the host's correction, or the reason why not."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

import numpy as np

from tilewright.array import Array
from tilewright.errors import TilewrightError
from tilewright.graph.arithmetic import clamp_range
from tilewright.graph.ir import Site
from tilewright.graph.ops import AveragePool2D, Conv2D, DepthwiseConv2D, FullyConnected, Linear, MaxPool2D, Window
from tilewright.graph.ops.linear import centre
from tilewright.targets.vta.codegen import fold as folding
from tilewright.targets.vta.codegen import weights
from tilewright.targets.vta.codegen.layer import Layer, Link
from tilewright.targets.vta.codegen.transfers import LARGEST
from tilewright.targets.vta.config import Config

#: Why the host takes an operator of another kind.
REASONS = {
    "add": "TFLite rescales both operands; stock VTA's ALU has no multiplier",
    "mul": "stock VTA's ALU has no portable multiply",
    "clamp": "TFLite rescales it; stock VTA's ALU has no multiplier",
    "mean": "TFLite rescales the sum; stock VTA's ALU has no multiplier",
    "softmax": "needs exponentials and a division",
    "reshape": "moves no data",
    "pad": "moves data only",
    "concat": "moves data only",
    "quantize": "real numbers, or another scale",
    "dequantize": "real numbers",
}


@dataclass(frozen=True, eq=False)
class Lowered:
    """`tiles` int8 [out tile, k, tap, block, block]; `correction` int32 [row class, column class, channel].

    The classes are of output rows and columns: which taps lie inside the image. The host subtracts the
    correction, zero point times the sum of the weights used; pools have none.
    """

    layer: Layer
    tiles: Array
    correction: Array
    row_class: Array
    column_class: Array


def lower(site: Site, config: Config) -> Lowered | str:
    """The layer of a node, or why VTA does not take it."""
    op = site.node.op
    if not isinstance(op, Linear | AveragePool2D | MaxPool2D):
        return REASONS.get(op.kind, f"VTA has no operation for {op.kind}")
    if config.inp.width != 8 or config.wgt.width != 8:
        return f"the machine's values have {config.inp.width} bits and its weights {config.wgt.width}; the codes 8"
    x = site.input(0)
    if x.dtype != "int8":
        return f"its input is {x.dtype}; VTA multiplies int8"
    if x.data is not None:
        return "its input is constant"
    if not isinstance(op, FullyConnected):
        if x.shape[0] != 1:
            return f"the model has a batch of {x.shape[0]}"
        if max(x.shape[2], site.output.shape[2]) > LARGEST:
            return f"a row of its image is longer than the {LARGEST} tiles of LOAD's x_stride"
    try:
        return _linear(site, op, config) if isinstance(op, Linear) else _pool(site, op, config)
    except TilewrightError as error:
        return error.reason


def _linear(site: Site, op: Linear, config: Config) -> Lowered | str:
    bias = site.optional(2)
    if bias is not None and bias.data is None:
        return "its bias is not constant"
    if site.input(1).dtype != "int8":
        return f"its weights are {site.input(1).dtype}; VTA multiplies int8"
    centred = centre(site.constant(1), site.input(1)).astype(np.int32)
    if centred.min() < weights.CODE_MIN or centred.max() > weights.CODE_MAX:
        return "its weights less their zero point do not fit int8"
    shape = site.input(0).shape
    if isinstance(op, FullyConnected):
        rows = site.input(0).size // centred.shape[1]
        return _matrix(site, centred[:, None, :], rows, config, "rows of the input")
    assert isinstance(op, Conv2D | DepthwiseConv2D)
    channels, window = shape[3], op.window
    if isinstance(op, DepthwiseConv2D):
        outputs, depth = centred.shape[3], 1
        w = centred.reshape(-1, outputs).T[:, :, None]  # (O, T, 1)
        start = np.arange(outputs) // (outputs // channels)
    else:
        outputs, depth = centred.shape[0], centred.shape[3]
        w = centred.reshape(outputs, -1, depth)
        start = np.arange(outputs) // (outputs // (channels // depth)) * depth
    pixels = prod(site.output.shape[1:3])
    if depth == channels:
        kernel, block = prod(window.kernel), config.block
        if kernel == 1 and not any(window.padding):
            pixels_read = "pixels" if window.stride == (1, 1) else "the pixels that its stride reads"
            return _matrix(site, w, pixels, config, pixels_read)
        if channels <= block // 2 and -(-kernel * depth // block) < kernel:
            return _matrix(site, w.reshape(outputs, 1, -1), pixels, config, "patches (im2col)")
    return _spatial(site, w, start, window, config)


def _matrix(site: Site, w: Array, rows: int, config: Config, packing: str) -> Lowered | str:
    """A product of `rows` rows with w (O, 1, K)."""
    planes = weights.planes_of(w, config)
    if isinstance(planes, str):
        return planes
    block = config.block
    fold = folding.rows(w, rows, config)
    width = -(-rows // (config.batch * fold.pixels))
    layer = Layer(
        kind="sum",
        matrix=True,
        size=(1, width),
        out=(1, width),
        window=Window(),
        in_tiles=-(-fold.weights.shape[2] // block),
        out_tiles=-(-fold.weights.shape[0] // block),
        link="dense",
        bands=(),
        shared=False,
        planes=planes,
        clamp=None,
        fold=fold.pixels,
        packing=_packing(packing, fold.pixels, f"{config.batch} tile rows used" if config.batch > 1 else ""),
    )
    start = np.zeros(fold.weights.shape[0], np.int64)
    one = np.zeros(1, np.int64)
    correction = (w.sum(axis=(1, 2)) * site.input(0).zero_point).astype(np.int32)[None, None]
    return Lowered(layer, weights.tiles_of(fold.weights, start, layer, block), correction, one, one)


def _spatial(site: Site, w: Array, start: Array, window: Window, config: Config) -> Lowered | str:
    """A window over the image; output channel o reads w.shape[2] channels from start[o]."""
    size, out = site.input(0).shape[1:3], site.output.shape[1:3]
    classes = [weights.classes_of(size[axis], out[axis], window, axis) for axis in (0, 1)]
    if any(not taps.any() for _, masks in classes for taps in masks):
        return "a window lies wholly in the padding"
    planes = weights.planes_of(w, config)
    if isinstance(planes, str):
        return planes
    fold = folding.columns(w, start, site.input(0).shape[3], window, out[1], config)
    layer = _windowed(site, fold, start, config, "sum", planes)
    (row_class, rows), (column_class, columns) = classes
    per_tap = w.sum(axis=2).reshape(-1, *window.kernel)  # (O, KH, KW)
    correction = np.einsum("akb,ra,cb->rck", per_tap.transpose(1, 0, 2), rows, columns) * site.input(0).zero_point
    start = start if fold.pixels == 1 else np.zeros(fold.weights.shape[0], np.int64)
    tiles = weights.tiles_of(fold.weights, start, layer, config.block)
    return Lowered(layer, tiles, correction.astype(np.int32), row_class, column_class)


def _pool(site: Site, op: AveragePool2D | MaxPool2D, config: Config) -> Lowered | str:
    """Identity weights: sums of codes, or codes side by side for the ALU to compare."""
    size, out, channels = site.input(0).shape[1:3], site.output.shape[1:3], site.input(0).shape[3]
    classes = [weights.classes_of(size[axis], out[axis], op.window, axis) for axis in (0, 1)]
    if any(not taps.any() for _, masks in classes for taps in masks):
        return "a window lies wholly in the padding"
    taps = prod(op.window.kernel)
    maximum = isinstance(op, MaxPool2D)
    planes = 1 if maximum else weights.planes_of(np.ones((1, taps, 1), np.int32), config)
    if isinstance(planes, str):
        return planes
    clamp = None
    if maximum:
        low, high = clamp_range(op.activation, site.output.scale, site.output.zero_point, site.output.dtype)
        clamp = None if (low, high) == (weights.CODE_MIN, weights.CODE_MAX) else (low, high)
    start = np.arange(channels)
    one = folding.Fold(1, np.broadcast_to(np.int32(1), (channels, taps, 1)), op.window)
    layer = _windowed(site, one, start, config, "max" if maximum else "sum", planes, clamp)
    tiles = np.eye(config.block, dtype=np.int8)[None, None, None]
    (row_class, rows), (column_class, columns) = classes
    none = np.zeros((len(rows), len(columns), 1), np.int32)
    return Lowered(layer, tiles, none, row_class, column_class)


def _windowed(
    site: Site,
    fold: folding.Fold,
    start: Array,
    config: Config,
    kind: Literal["sum", "max"],
    planes: int,
    clamp: tuple[int, int] | None = None,
) -> Layer:
    block, pixels, w = config.block, fold.pixels, fold.weights
    (height, width), (out_height, out_width) = site.input(0).shape[1:3], site.output.shape[1:3]
    in_tiles, out_tiles = -(-site.input(0).shape[3] * pixels // block), -(-w.shape[0] // block)
    bands: tuple[tuple[int, int], ...] = ((0, 1),)  # folded: one tile
    if pixels == 1:
        first, last = start // block, (start + w.shape[2] - 1) // block + 1
        edges = np.arange(0, w.shape[0], block)
        low, high = np.minimum.reduceat(first, edges), np.maximum.reduceat(last, edges)
        bands = tuple(zip(low.tolist(), high.tolist(), strict=True))
    link: Link = "banded"
    if all(band == (0, in_tiles) for band in bands):
        link = "dense"
    elif bands == tuple((o, o + 1) for o in range(out_tiles)):
        link = "diagonal"
    return Layer(
        kind=kind,
        matrix=False,
        size=(height, -(-width // pixels)),
        out=(out_height, -(-out_width // pixels)),
        window=fold.window,
        in_tiles=in_tiles,
        out_tiles=out_tiles,
        link=link,
        bands=bands if link == "banded" else (),
        shared=not isinstance(site.node.op, Linear),
        planes=planes,
        clamp=clamp,
        fold=pixels,
        packing=_packing("the image", pixels, f"1 of {config.batch} tile rows used" if config.batch > 1 else ""),
    )


def _packing(what: str, pixels: int, rows: str) -> str:
    return ", ".join(part for part in (what, f"{pixels} pixels side by side" if pixels > 1 else "", rows) if part)
