"""Convolutions and products: sums of products with constant weights."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Site
from tilewright.graph.ops import Conv2D, DepthwiseConv2D, FullyConnected, Linear, Window
from tilewright.graph.ops.linear import centre
from tilewright.targets.vta.compiler import parameters
from tilewright.targets.vta.compiler.layer import Layer
from tilewright.targets.vta.compiler.lowered import (
    CODE_MAX,
    CODE_MIN,
    Context,
    Lowered,
    classes_of,
    folded_columns,
    folded_rows,
    held_zero_point,
    packing,
    planes_of,
    tiles_of,
    windowed,
)


def linear(site: Site, op: Linear, context: Context) -> Lowered | str:
    """The layer of a sum of products, or why VTA does not take it."""
    config = context.config
    bias = site.optional(2)
    if bias is not None and bias.data is None:
        return f"the bias '{bias.name}' is computed; it must be constant"
    if site.input(1).dtype != "int8":
        return f"its weights are {site.input(1).dtype}; VTA multiplies int8"
    centred = centre(site.constant(1), site.input(1)).astype(np.int32)
    if centred.min() < CODE_MIN or centred.max() > CODE_MAX:
        return "its weights less their zero point do not fit int8"
    shape = site.input(0).shape
    if isinstance(op, FullyConnected):
        rows = site.input(0).size // centred.shape[1]
        return _matrix(site, centred[:, None, :], rows, context, "rows of the input")
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
        if kernel == 1 and not any(window.padding) and (window.stride == (1, 1) or not context.single):
            what = "pixels" if window.stride == (1, 1) else "the pixels that its stride reads"
            return _matrix(site, w, pixels, context, what)
        if channels <= block // 2 and -(-kernel * depth // block) < kernel and not context.single:
            return _matrix(site, w.reshape(outputs, 1, -1), pixels, context, "patches (im2col)")
    return _spatial(site, w, start, window, context)


def _matrix(site: Site, w: Array, rows: int, context: Context, what: str) -> Lowered | str:
    """A product of `rows` rows with w (O, 1, K)."""
    config = context.config
    planes = planes_of(w, config)
    if isinstance(planes, str):
        return planes
    block = config.block
    fold = folded_rows(w, rows, config, context.single)
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
        packing=packing(what, fold.pixels, f"{config.batch} tile rows used" if config.batch > 1 else ""),
    )
    start = np.zeros(fold.weights.shape[0], np.int64)
    one = np.zeros(1, np.int64)
    correction = (w.sum(axis=(1, 2)) * held_zero_point(site.input(0))).astype(np.int32)[None, None]
    lowered = Lowered(layer, tiles_of(fold.weights, start, layer, block), correction, one, one)
    return _finished(site, lowered, context)


def _spatial(site: Site, w: Array, start: Array, window: Window, context: Context) -> Lowered | str:
    """A window over the image; output channel o reads w.shape[2] channels from start[o]."""
    config = context.config
    size, out = site.input(0).shape[1:3], site.output.shape[1:3]
    classes = [classes_of(size[axis], out[axis], window, axis) for axis in (0, 1)]
    if any(not taps.any() for _, masks in classes for taps in masks):
        return f"padding={list(window.padding)} is not supported: a window lies wholly in it"
    planes = planes_of(w, config)
    if isinstance(planes, str):
        return planes
    fold = folded_columns(w, start, site.input(0).shape[3], window, out[1], config, context.single)
    layer = windowed(site, fold, start, config, planes)
    (row_class, rows), (column_class, columns) = classes
    per_tap = w.sum(axis=2).reshape(-1, *window.kernel)  # (O, KH, KW)
    correction = np.einsum("akb,ra,cb->rck", per_tap.transpose(1, 0, 2), rows, columns)
    correction = correction * held_zero_point(site.input(0))
    start = start if fold.pixels == 1 else np.zeros(fold.weights.shape[0], np.int64)
    tiles = tiles_of(fold.weights, start, layer, config.block)
    return _finished(site, Lowered(layer, tiles, correction.astype(np.int32), row_class, column_class), context)


def _finished(site: Site, lowered: Lowered, context: Context) -> Lowered:
    """The same layer with its requantisation, where the machine does that."""
    op, layer = site.node.op, lowered.layer
    assert isinstance(op, Linear)
    columns = np.zeros(layer.out[1] * layer.fold, np.int64) if layer.matrix else lowered.column_class
    if context.rounding.elementwise == "pow2":
        made = parameters.of_product_shift(site, op.activation, lowered.correction, layer, context.config)
    else:
        made = parameters.of_linear(
            site, op, lowered.correction, lowered.row_class, columns, layer.fold, context.config, context.rounding
        )
    if made is None or not context.codes:
        return lowered
    return replace(lowered, layer=replace(layer, planes=1, codes=made.codes), parameters=made.tiles)
