"""Convolutions of few channels of the network's input, on phases of it (phases.py)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tilewright.targets.bm1684x.compiler.layer import Layer, WeightValues
from tilewright.targets.bm1684x.compiler.phases import Phases
from tilewright.targets.bm1684x.compiler.stored import Stored
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.timing.estimate import ESTIMATE, PIXELS
from tilewright.targets.bm1684x.values.window import Window


def fold(layer: Layer, config: Config) -> Layer:
    """The layer on phases of its input, with as many taps folded as make it fastest; itself where none do."""
    kernel, window, (x, *others) = layer.kernel, layer.window, layer.shapes
    if (
        kernel is None
        or kernel.depthwise
        or window is None
        or others
        or window.dilation != (1, 1)
        or x.c > config.lanes
    ):
        return layer
    best, found = _cost(layer, x.c * x.h * x.w, config), layer
    for down in (False, True):
        for across in (False, True):
            made = _folded(layer, kernel, window, x, down, across)
            if made.shapes[0].c <= config.lanes and made.shapes[0].w < 1 << 16:
                cost = _cost(made, made.shapes[0].c * made.shapes[0].h * made.shapes[0].w, config)
                if cost < best:
                    best, found = cost, made
    return found


def _cost(layer: Layer, elements: int, config: Config) -> float:
    """Cycles of the slower engine: transfers into local memory, or products."""
    assert layer.kernel is not None
    oc, ic, kh, kw = layer.kernel.values.shape
    size = layer.kernel.dtype.bytes
    group = 1 if size == 4 else config.eu_bytes // size
    pixels = -(-layer.result.h * layer.result.w // PIXELS[size])
    products = -(-oc // config.lanes) * pixels * kh * kw * -(-ic // group)
    return max(products, elements * size / ESTIMATE.read_rate)


def _folded(layer: Layer, kernel: WeightValues, window: Window, x: Stored, down: bool, across: bool) -> Layer:
    (sh, sw), (kh, kw), result = window.stride, window.kernel, layer.result
    taps, steps = -(-kh // sh), -(-kw // sw)  # of the phases
    rows, columns = result.h + taps - 1, result.w + steps - 1
    values = np.pad(kernel.values, ((0, 0), (0, 0), (0, taps * sh - kh), (0, steps * sw - kw)))
    oc, c = values.shape[:2]
    values = (
        values.reshape(oc, c, taps, sh, steps, sw).transpose(0, 3, 5, 1, 2, 4).reshape(oc, sh * sw * c, taps, steps)
    )
    fold_rows, fold_columns = (taps if down else 1), (steps if across else 1)
    left = (taps // fold_rows, steps // fold_columns)
    split = values.reshape(oc, -1, fold_rows, left[0], fold_columns, left[1]).transpose(0, 2, 4, 1, 3, 5)
    values = np.ascontiguousarray(split.reshape(oc, -1, *left))
    offsets = [i * columns + j for i in range(fold_rows) for j in range(fold_columns)]
    phases = Phases(x.c, x.h, x.w, sh, sw, window.pads[0], window.pads[2], rows, columns, tuple(offsets))
    shape = replace(x, c=phases.channels * len(offsets), h=result.h + left[0] - 1, w=columns, phases=phases)
    note = f"its input lies by phase, {len(offsets)} of {taps * steps} taps as channels"
    plain = Window(left)
    operations = tuple(
        replace(operate, attributes={**operate.attributes, "window": plain})
        if "window" in operate.attributes
        else operate
        for operate in layer.operations
    )
    kernel = WeightValues(values, kernel.dtype)
    return replace(layer, shapes=(shape,), kernel=kernel, window=plain, operations=operations, note=note)
