"""Fold taps of convolutions into channels, on the machine or while loading the input of a network.

The cube multiplies 64 channels of a pixel at a time, so a convolution of 16 channels leaves three quarters of the cube
idle. To use the whole cube, the compiler copies the input once per tap, shifted by the tap. The copies become further
channels of a gathered tensor, and the convolution has fewer taps. A command cannot move values to other lanes. For this
reason, the preceding layer computes its channels several times (replicas), in lanes that would otherwise be empty.

`fold` does the same for inputs of a network, which are stored by phase (layouts/samples.py): the DMA engine makes the
shifted copies.
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

#: The smallest fraction of a layer's cycles that a fold must save, because loading the replicas takes time.
WORTH = 0.2


def gathered(layers: Sequence[Layer], leaving: Collection[str], config: Config) -> list[Layer]:
    """Return `layers`, in which convolutions read gathered tensors where that is faster."""
    maker = {layer.output: layer for layer in layers}
    kept = {*leaving, *(name for layer in layers if layer.axis for name in (*layer.inputs, layer.output))}
    replicas: dict[str, int] = {}
    changed: list[Layer] = []
    for layer in layers:
        # A layer is changed only if all tensors on the path back to a convolution can have replicas.
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
    """Return the distance in lanes between replicas of a tensor.

    The distance is a power of two, and therefore divides the number of lanes.
    """
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
    # All replicas together fill the lanes at most once, so that computing the replicas takes no additional cycles.
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
    stride = gather.window.stride[1] if gather.columns else 1  # passes of a copy with this stride
    copies = len(gather.taps) * (-(-form.h * form.w // config.eu_bytes) * stride + 2)
    return copies + _products(layer, (oc, form.c, *gather.left.kernel), config)


def _products(layer: Layer, kernel: Sequence[int], config: Config) -> int:
    assert layer.kernel is not None
    return estimate.conv_cycles(kernel, layer.result.h * layer.result.w, layer.kernel.dtype.bytes, config)


def _sources(name: str, maker: Mapping[str, Layer], kept: Collection[str]) -> set[str] | None:
    """Return the tensors that need replicas if `name` does, or None if one of them cannot have replicas.

    A convolution can compute its output channels several times. Other layers work channel by channel: their inputs need
    replicas too.
    """
    sources: set[str] = set()
    pending = [name]
    while pending:
        tensor = pending.pop()
        if tensor in sources:
            continue
        if tensor not in maker or tensor in kept:
            return None
        sources.add(tensor)
        layer = maker[tensor]
        if layer.kernel is None or layer.kernel.depthwise:
            refs = (ref for operation in layer.operations for ref in operation.operands.values())
            if any(isinstance(ref, Input) and ref.whole for ref in refs):
                return None
            pending += layer.inputs
    return sources


def _replicated(layer: Layer, spaced: Mapping[str, tuple[int, int]]) -> Layer:
    """Return a layer, with replicas of its channels where `spaced` asks for them.

    `spaced` maps the name of a layer's result to the number of replicas and their distance in lanes.
    """
    if layer.output not in spaced:
        return layer
    count, spacing = spaced[layer.output]
    c = layer.result.c

    def repeated(values: Array, axis: int = 0) -> Array:
        """Return `count` copies of values per channel along `axis`, with zeros between them."""
        room = [(0, 0)] * values.ndim
        room[axis] = (0, spacing - c)
        once = np.pad(values, room)
        return np.concatenate([once] * count, axis)

    kernel = layer.kernel
    bias = layer.bias
    if kernel is not None:
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
    """Return the fastest variant of a layer: the layer itself, or one with an input by phase (layouts/samples.py).

    The variants fold the rows of taps, the columns of taps, both or neither into channels.
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
    """Return the estimated cycles of loading a layer's input and of its multiplications.

    Between the samples of a batch, loading and multiplying overlap. Within a sample they overlap partly if the layer
    has tiles.
    """
    assert layer.kernel is not None
    x = layer.shapes[0]
    result = layer.result
    products = _products(layer, layer.kernel.values.shape, config)
    channels, loads = (x.phases.channels, len(x.phases.offsets)) if x.phases else (x.c, 1)
    image = Tensor.ddr(DDR_BASE, (1, channels, x.h, x.w), x.dtype, config)
    # the load is estimated as a copy within DDR, because the whole image may not fit into local memory
    load = loads * estimate.cycles(copy(image, image), config)
    parts = max(config.batch, -(-result.h * result.w * I32.bytes // TEMP_BYTES))
    return max(load, products) + min(load, products) / parts


def _folded(layer: Layer, kernel: WeightValues, window: Window, x: SampleFormat, down: bool, across: bool) -> Layer:
    sh, sw = window.stride
    kh, kw = window.kernel
    result = layer.result
    # Kernel and image are split in the same way: tap (i * sh + py, j * sw + px) meets only pixels of phase (py, px).
    # The kernel is padded with zeros to whole phases.
    taps = -(-kh // sh)
    steps = -(-kw // sw)  # `taps` rows and `steps` columns of the kernel per phase
    rows, columns = result.h + taps - 1, result.w + steps - 1
    values = np.pad(kernel.values, ((0, 0), (0, 0), (0, taps * sh - kh), (0, steps * sw - kw)))
    oc, c = values.shape[:2]
    by_phase = values.reshape(oc, c, taps, sh, steps, sw).transpose(0, 3, 5, 1, 2, 4)
    fold_rows, fold_columns = (taps if down else 1), (steps if across else 1)
    left = (taps // fold_rows, steps // fold_columns)
    # Folded rows and columns of taps become channels; `left` is the remaining kernel.
    split = by_phase.reshape(oc, -1, fold_rows, left[0], fold_columns, left[1]).transpose(0, 2, 4, 1, 3, 5)
    values = np.ascontiguousarray(split.reshape(oc, -1, *left))
    offsets = [i * columns + j for i in range(fold_rows) for j in range(fold_columns)]
    phases = Phases(x.c, x.h, x.w, sh, sw, window.pads[0], window.pads[2], rows, columns, tuple(offsets))
    shape = replace(x, c=phases.channels * len(offsets), h=result.h + left[0] - 1, w=columns, phases=phases)
    note = f"its input is stored by phase; {len(offsets)} of {taps * steps} taps are folded into channels"
    kernel = WeightValues(values, kernel.dtype)
    return replace(layer, window=Window(left), shapes=(shape,), kernel=kernel, note=note)
