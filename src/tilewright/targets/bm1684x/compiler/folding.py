"""Fold taps of convolutions into channels, either on the machine or while the input of a network is loaded.

The cube multiplies 64 channels of a pixel at a time, so a convolution of 16 channels leaves three quarters of the cube
idle. To use the whole cube, the compiler makes one copy of the input per tap, shifted by the tap. The copies become
channels of one gathered tensor, so the convolution of this tensor has fewer taps. Copy commands cannot move values to
other lanes. The preceding layer therefore computes its channels several times (replicas), in lanes that would otherwise
be idle.

For an input of a network, `fold` lets the DMA engine make the shifted copies from an input stored by phase
(layouts/samples.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import product
from math import prod

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.compiler.layer import TEMP_BYTES, Gather, Input, Layer, WeightValues
from tilewright.targets.bm1684x.compiler.plan import copy
from tilewright.targets.bm1684x.config import DDR_BASE, Config
from tilewright.targets.bm1684x.layouts.samples import Phases, SampleFormat
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.timing import estimate
from tilewright.targets.bm1684x.values.dtypes import I8, I32
from tilewright.targets.bm1684x.values.window import Window

#: A fold must save at least this fraction of a layer's cycles, because its replicas take time as well.
WORTH = 0.2


def gathered(layers: Sequence[Layer], leaving: Collection[str], config: Config) -> list[Layer]:
    """Return `layers`, changed so that convolutions read gathered tensors where this is faster."""
    maker = {layer.output: layer for layer in layers}
    kept = {*leaving, *(name for layer in layers if layer.axis for name in (*layer.inputs, layer.output))}
    replicas: dict[str, int] = {}
    changed: list[Layer] = []
    for layer in layers:
        # A layer can only change if all tensors between it and the preceding convolution can have replicas.
        gather = _best(layer, config)
        sources = _sources(layer.inputs[0], maker, kept) if gather else None
        if gather is None or sources is None:
            changed.append(layer)
            continue
        replicas |= {name: max(replicas.get(name, 1), gather.replicas) for name in sources}
        assert layer.kernel is not None
        kernel = WeightValues(gather.kernel(layer.kernel.values), layer.kernel.dtype)
        count = f"{len(gather.taps)} of {prod(gather.window.kernel)}"
        note = f"{count} taps are folded into channels, from {gather.replicas} replicas of its input"
        shapes = (gather.form,)
        window = gather.left
        changed.append(replace(layer, shapes=shapes, window=window, kernel=kernel, gather=gather, note=note))
    spaced = {name: (count, _spacing(maker[name].result.c, config)) for name, count in replicas.items()}
    return [_replicated(layer, spaced) for layer in changed]


def _spacing(channels: int, config: Config) -> int:
    # The distance of replicas in lanes is a power of two, so that it divides the number of lanes.
    return min(config.lanes, 1 << (channels - 1).bit_length())


def _best(layer: Layer, config: Config) -> Gather | None:
    kernel = layer.kernel
    window = layer.window
    x = layer.shapes[0]
    if kernel is None or kernel.depthwise or kernel.dtype is not I8 or window is None or x.phases or x.c > config.lanes:
        return None
    if window.inserted != (0, 0):
        return None
    spacing = _spacing(x.c, config)
    # All replicas together must fit into one slot, so that computing them takes no additional cycles.
    most = config.lanes // spacing
    choices = []
    for rows, columns in ((True, False), (False, True), (True, True)):
        count = prod(size for size, folded in zip(window.kernel, (rows, columns), strict=True) if folded)
        gather = Gather(x, window, rows, columns, spacing, min(most, count))
        choices.append((_cycles(layer, gather, config), gather))
    cycles, best = min(choices, key=lambda choice: choice[0])
    return best if best.replicas > 1 and cycles < _products(layer, kernel.values.shape, config) * (1 - WORTH) else None


def _cycles(layer: Layer, gather: Gather, config: Config) -> int:
    assert layer.kernel is not None
    form = gather.form
    oc = layer.kernel.values.shape[0]
    stride = gather.window.stride[1] if gather.columns else 1  # a copy takes as many passes as its stride
    copies = len(gather.taps) * (-(-form.h * form.w // config.eu_bytes) * stride + 2)
    return copies + _products(layer, (oc, form.c, *gather.left.kernel), config)


def _products(layer: Layer, kernel: Sequence[int], config: Config) -> int:
    assert layer.kernel is not None
    return estimate.conv_cycles(kernel, layer.result.h * layer.result.w, layer.kernel.dtype.bytes, config)


def _sources(name: str, maker: Mapping[str, Layer], kept: Collection[str]) -> set[str] | None:
    sources: set[str] = set()
    pending = [name]
    while pending:
        tensor = pending.pop()
        if tensor in sources:
            continue
        if tensor not in maker or tensor in kept:
            return None
        # A convolution can compute its output channels several times. All other layers work channel by channel, so
        # their inputs must have replicas too.
        sources.add(tensor)
        layer = maker[tensor]
        if layer.kernel is None or layer.kernel.depthwise:
            refs = (ref for operation in layer.operations for ref in operation.operands.values())
            if any(isinstance(ref, Input) and ref.whole for ref in refs):
                return None
            pending += layer.inputs
    return sources


def _replicated(layer: Layer, spaced: Mapping[str, tuple[int, int]]) -> Layer:
    if layer.output not in spaced:
        return layer
    count, spacing = spaced[layer.output]
    c = layer.result.c

    def repeated(values: Array, axis: int = 0) -> Array:
        room = [(0, 0)] * values.ndim
        room[axis] = (0, spacing - c)
        once = np.pad(values, room)
        return np.concatenate([once] * count, axis)

    kernel = layer.kernel
    bias = layer.bias
    if kernel is not None:
        # output channels: axis 0, or axis 1 of a depthwise kernel
        kernel = replace(kernel, values=repeated(kernel.values, int(kernel.depthwise)))
    whole = kernel is not None and not kernel.depthwise
    wide = replace(layer.result, c=count * spacing)
    return replace(
        layer,
        result=wide,
        shapes=layer.shapes if whole else tuple(replace(shape, c=wide.c) for shape in layer.shapes),
        words=tuple(repeated(word) for word in layer.words),
        bias=None if bias is None else repeated(bias),
        kernel=kernel,
    )


def fold(layer: Layer, config: Config) -> Layer:
    """Return the fastest variant of a layer: the layer itself, or a variant whose input is stored by phase.

    A variant folds the rows of taps into channels, the columns of taps, both, or no taps.
    """
    kernel = layer.kernel
    window = layer.window
    x, *others = layer.shapes
    if kernel is None or kernel.depthwise or window is None or others:
        return layer
    if window.dilation != (1, 1) or x.c > config.lanes:
        return layer
    variants = (_folded(layer, kernel, window, x, *axes) for axes in product((False, True), repeat=2))
    possible = (way for way in variants if way.shapes[0].c <= config.lanes and way.shapes[0].w < 1 << 16)
    return min((layer, *possible), key=lambda variant: _cost(variant, config))


def _cost(layer: Layer, config: Config) -> float:
    assert layer.kernel is not None
    x = layer.shapes[0]
    result = layer.result
    products = _products(layer, layer.kernel.values.shape, config)
    channels, loads = (x.phases.channels, len(x.phases.offsets)) if x.phases else (x.c, 1)
    image = Tensor.ddr(DDR_BASE, (1, channels, x.h, x.w), x.dtype, config)
    # The whole image may not fit into local memory, so the load is estimated as a copy within DDR.
    load = loads * estimate.cycles(copy(image, image), config)
    # Loading and multiplying overlap between the samples of a batch, or between the tiles of a sample.
    parts = max(config.batch, -(-result.h * result.w * I32.bytes // TEMP_BYTES))
    return max(load, products) + min(load, products) / parts


def _folded(layer: Layer, kernel: WeightValues, window: Window, x: SampleFormat, down: bool, across: bool) -> Layer:
    sh, sw = window.stride
    kh, kw = window.kernel
    result = layer.result
    # Kernel and image are split into the same phases: tap (i * sh + py, j * sw + px) reads only pixels of phase (py,
    # px). Zeros extend the kernel to a multiple of the stride.
    taps = -(-kh // sh)
    steps = -(-kw // sw)  # in each phase, the kernel has `taps` rows and `steps` columns
    # the rows and columns of a phase that the windows read
    rows, columns = result.h + taps - 1, result.w + steps - 1
    values = np.pad(kernel.values, ((0, 0), (0, 0), (0, taps * sh - kh), (0, steps * sw - kw)))
    oc, c = values.shape[:2]
    by_phase = values.reshape(oc, c, taps, sh, steps, sw).transpose(0, 3, 5, 1, 2, 4)
    fold_rows, fold_columns = (taps if down else 1), (steps if across else 1)
    left = (taps // fold_rows, steps // fold_columns)
    # The folded rows and columns of taps become channels, and `left` is the size of the remaining kernel.
    split = by_phase.reshape(oc, -1, fold_rows, left[0], fold_columns, left[1]).transpose(0, 2, 4, 1, 3, 5)
    values = np.ascontiguousarray(split.reshape(oc, -1, *left))
    offsets = [i * columns + j for i in range(fold_rows) for j in range(fold_columns)]
    phases = Phases(x.c, x.h, x.w, sh, sw, window.pads[0], window.pads[2], rows, columns, tuple(offsets))
    shape = replace(x, c=phases.channels * len(offsets), h=result.h + left[0] - 1, w=columns, phases=phases)
    note = f"its input is stored by phase; {len(offsets)} of {taps * steps} taps are folded into channels"
    kernel = WeightValues(values, kernel.dtype)
    return replace(layer, window=Window(left), shapes=(shape,), kernel=kernel, note=note)
