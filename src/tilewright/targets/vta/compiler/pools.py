"""Pools, averages, repeated pixels: identity weights bring codes, or sums times a factor, into accumulators."""

from __future__ import annotations

from dataclasses import replace
from math import prod

import numpy as np

from tilewright.graph.ir import Site
from tilewright.graph.ops import AveragePool2D, MaxPool2D, Mean, RealAveragePool2D, Upsample, Window
from tilewright.graph.rounding import clamp_range, mean_factor
from tilewright.targets.vta.compiler import parameters
from tilewright.targets.vta.compiler.lowered import (
    CODE_MAX,
    CODE_MIN,
    Context,
    Fold,
    Lowered,
    classes_of,
    held_offset,
    planes_of,
    windowed,
)


def maximum(site: Site, op: MaxPool2D, context: Context) -> Lowered | str:
    """Codes side by side, for the ALU to compare."""
    lowered = _pooled(site, op.window, context, None)
    if isinstance(lowered, str):
        return lowered
    out = site.output
    bounds = clamp_range(op.activation, out.scale, out.zero_point, out.dtype)
    low, high = (bound - held_offset(out) for bound in bounds)
    clamp = None if (low, high) == (CODE_MIN, CODE_MAX) else (low, high)
    return replace(lowered, layer=replace(lowered.layer, kind="max", planes=1, clamp=clamp))


def sums(site: Site, op: AveragePool2D, context: Context) -> Lowered | str:
    """Sums of codes, which the host divides."""
    return _pooled(site, op.window, context, 1)


def average(site: Site, op: Mean | RealAveragePool2D, context: Context) -> Lowered | str:
    """A mean that the machine finishes: sums, then one requantisation."""
    shape, rounding = site.input(0).shape, context.rounding
    shifts = rounding.elementwise == "pow2"
    if isinstance(op, Mean):
        if len(shape) != 4 or set(op.axes) != {1, 2}:
            return f"axes={list(op.axes)} of {list(shape)} is not supported; a mean over rows and columns is"
        window = Window((shape[1], shape[2]))
    elif not shifts:
        return "onnxruntime averages real numbers, added in float32 one after the other"
    elif any(op.window.padding) and not op.count_padding:
        return f"padding={list(op.window.padding)} is not supported for a mean: windows at the border hold fewer values"
    else:
        window = op.window
    if not context.codes:
        return "its parameters do not fit the memory that the machine has for them"
    count = prod(window.kernel)
    lowered = _pooled(site, window, context, mean_factor(count)[0] if shifts else 1)
    if isinstance(lowered, str):
        return lowered
    made = parameters.of_average(site, count, lowered.layer, context.config, rounding)
    if isinstance(made, str):
        return made
    return replace(lowered, layer=replace(lowered.layer, planes=1, codes=made.codes), parameters=made.tiles)


def upsample(site: Site, op: Upsample, context: Context) -> Lowered | str:
    """Each pixel in several places."""
    lowered = _pooled(site, Window(), context, None)
    if isinstance(lowered, str):
        return lowered
    out = site.output.shape[1], site.output.shape[2]
    return replace(lowered, layer=replace(lowered.layer, kind="repeat", out=out, repeat=op.factors))


def _pooled(site: Site, window: Window, context: Context, factor: int | None) -> Lowered | str:
    """A window over each channel: sums of codes times `factor`; None: no sums."""
    config, shape = context.config, site.input(0).shape
    out = window.output_size(site.node.name, *shape[1:3])
    classes = [classes_of(shape[1 + axis], out[axis], window, axis) for axis in (0, 1)]
    if any(not taps.any() for _, masks in classes for taps in masks):
        return f"padding={list(window.padding)} is not supported: a window lies wholly in it"
    taps, channels = prod(window.kernel), shape[3]
    planes = planes_of(np.full((1, taps, 1), factor, np.int32), config) if factor else 1
    if isinstance(planes, str):
        return planes
    one = Fold(1, np.broadcast_to(np.int32(1), (channels, taps, 1)), window)
    layer = windowed(site, one, np.arange(channels), config, planes, out=out)
    tiles = (np.eye(config.block, dtype=np.int8) * np.int8(factor or 1))[None, None, None]
    (row_class, rows), (column_class, columns) = classes
    none = np.zeros((len(rows), len(columns), 1), np.int32)
    return Lowered(layer, tiles, none, row_class, column_class)
