"""Fold taps of convolutions into channels, on the machine.

The cube multiplies 64 channels of a pixel at a time. A convolution of 16 channels with 3x3 taps therefore multiplies
mostly by nothing. Here copies of its input, each shifted by one tap, become further channels of a gathered tensor, and
the convolution has fewer taps. A command cannot move values to other lanes, so the layer before computes its channels
several times (replicas): its further output channels are in lanes that would be empty.

(linear.fold does the same for inputs of a network, whose shifted copies the DMA engine makes.)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.compiler.layer import Input, Layer, Stored, WeightValues
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.operations import OPERATIONS
from tilewright.targets.bm1684x.layouts.tensor import Tensor
from tilewright.targets.bm1684x.timing.estimate import PIXELS
from tilewright.targets.bm1684x.values.dtypes import I8
from tilewright.targets.bm1684x.values.window import Window

#: A fold must save this part of a layer's cycles: the replicas take longer to load.
WORTH = 0.2


@dataclass(frozen=True)
class Gather:
    """How the input of a convolution is gathered: as `taps` copies of (h, w), each of `spacing` channels.

    `source` is the input, of which `replicas` copies are there, also `spacing` channels apart. `window` is the window
    of the convolution in the graph. `rows` and `columns` say along which axes its taps are folded.
    """

    source: Stored
    window: Window
    rows: bool
    columns: bool
    spacing: int
    replicas: int

    @property
    def taps(self) -> list[tuple[int, int]]:
        """The folded taps: the row and column of each in the kernel."""
        kh, kw = self.window.kernel
        return list(product(range(kh if self.rows else 1), range(kw if self.columns else 1)))

    @property
    def left(self) -> Window:
        """The window of the convolution that reads the gathered tensor."""
        own, (top, bottom, left, right) = self.window, self.window.pads
        pads = (*((0, 0) if self.rows else (top, bottom)), *((0, 0) if self.columns else (left, right)))
        kernel, stride, dilation = (
            (1 if self.rows else pair[0], 1 if self.columns else pair[1])
            for pair in (own.kernel, own.stride, own.dilation)
        )
        return Window(kernel, pads, stride, dilation)

    @property
    def stored(self) -> Stored:
        """How the gathered tensor is stored."""
        out = self.window.out(self.source.h, self.source.w)
        h, w = out[0] if self.rows else self.source.h, out[1] if self.columns else self.source.w
        return replace(self.source, c=len(self.taps) * self.spacing, h=h, w=w)

    def kernel(self, values: Array) -> Array:
        """Return the kernel (oc, ic, kh, kw) for the gathered tensor. Channels that are only spacing get zeros."""
        oc, ic, _, _ = values.shape
        (kh, kw), (lh, lw) = self.window.kernel, self.left.kernel
        split = values.reshape(oc, ic, kh // lh, lh, kw // lw, lw)
        spaced = np.pad(split, ((0, 0), (0, self.spacing - ic), *((0, 0),) * 4))
        return np.ascontiguousarray(spaced.transpose(0, 2, 4, 1, 3, 5).reshape(oc, -1, lh, lw))

    def commands(self, source: int, gathered: int, config: Config) -> Iterator[Command]:
        """Yield the commands that gather the input. `source` and `gathered` are byte offsets in a lane."""
        stored = self.stored
        x = Tensor.local(0, source, _shape(self.source, self.replicas * self.spacing), stored.dtype, config)
        y = Tensor.local(0, gathered, _shape(stored, stored.c), stored.dtype, config)
        zero = Constant.of(stored.zero, stored.dtype)
        for number, tap in enumerate(self.taps):
            own = y[:, number * self.spacing : (number + 1) * self.spacing]
            replica = number % self.replicas * self.spacing
            (r0, r1, first_row), (c0, c1, first_column) = (
                self._inside(axis, tap[axis], folded) for axis, folded in ((0, self.rows), (1, self.columns))
            )
            down, across = (self.window.stride[0] if self.rows else 1, self.window.stride[1] if self.columns else 1)
            if r0 < r1 and c0 < c1:
                there = x[:, replica : replica + self.spacing, first_row:, first_column:]
                stride = there.stride._replace(h=there.stride.h * down, w=across)
                there = replace(there, shape=there.shape._replace(h=r1 - r0, w=c1 - c0), stride=stride)
                yield Command(OPERATIONS["copy"], {"a": there}, {"y": own[:, :, r0:r1, c0:c1]})
            else:
                r0 = r1 = 0
            for rows, columns in (
                (slice(0, r0), slice(0, stored.w)),
                (slice(r1, stored.h), slice(0, stored.w)),
                (slice(r0, r1), slice(0, c0)),
                (slice(r0, r1), slice(c1, stored.w)),
            ):
                if rows.start < rows.stop and columns.start < columns.stop:
                    yield Command(OPERATIONS["copy"], {"a": zero}, {"y": own[:, :, rows, columns]})

    def _inside(self, axis: int, tap: int, folded: bool) -> tuple[int, int, int]:
        """Return the range of gathered rows (or columns) that a tap reads from the input, and where it begins there."""
        size, extent = ((self.source.h, self.stored.h), (self.source.w, self.stored.w))[axis]
        if not folded:
            return 0, extent, 0
        step, begin = self.window.stride[axis], tap * self.window.dilation[axis] - self.window.pads[2 * axis]
        first = max(0, -(begin // step))  # the first with begin + first * step >= 0
        end = min(extent, -(-(size - begin) // step))
        return first, max(first, end), begin + first * step


def _shape(stored: Stored, channels: int) -> tuple[int, int, int, int]:
    return 1, channels, stored.h, stored.w


def gathered(layers: Sequence[Layer], leaving: Collection[str], config: Config) -> list[Layer]:
    """Return `layers`, in which convolutions read gathered tensors where that is faster."""
    maker = {layer.output: layer for layer in layers}
    kept = {*leaving, *(name for layer in layers if layer.axis for name in (*layer.inputs, layer.output))}
    replicas: dict[str, int] = {}
    found: list[Layer] = []
    for layer in layers:
        gather = _best(layer, config)
        sources = _sources(layer.inputs[0], maker, kept) if gather else None
        if gather is None or sources is None:
            found.append(layer)
            continue
        replicas |= {name: max(replicas.get(name, 1), gather.replicas) for name in sources}
        assert layer.kernel is not None
        kernel = WeightValues(gather.kernel(layer.kernel.values), layer.kernel.dtype)
        count = f"{len(gather.taps)} of {prod(gather.window.kernel)}"
        note = f"{count} taps are folded into channels, from {gather.replicas} replicas of its input"
        shapes, window = (gather.stored,), gather.left
        found.append(replace(layer, shapes=shapes, window=window, kernel=kernel, gather=gather, note=note))
    spaced = {name: (count, _spacing(maker[name].result.c, config)) for name, count in replicas.items()}
    return [_replicated(layer, spaced) for layer in found]


def _spacing(channels: int, config: Config) -> int:
    """Return how many lanes apart replicas of a tensor begin: a divisor of the number of lanes."""
    return min(config.lanes, 1 << (channels - 1).bit_length())


def _best(layer: Layer, config: Config) -> Gather | None:
    """Return how to gather the input of a layer in the fewest cycles, or None if the layer is faster as it is."""
    kernel, window, x = layer.kernel, layer.window, layer.shapes[0]
    if kernel is None or kernel.depthwise or kernel.dtype is not I8 or window is None or x.phases or x.c > config.lanes:
        return None
    if window.inserted != (0, 0):
        return None
    spacing = _spacing(x.c, config)
    most = config.lanes // spacing
    choices = []
    for rows, columns in ((True, False), (False, True), (True, True)):
        count = prod(size for size, folded in zip(window.kernel, (rows, columns), strict=True) if folded)
        gather = Gather(x, window, rows, columns, spacing, min(most, count))
        choices.append((_cycles(layer, gather, config), gather))
    cycles, best = min(choices, key=lambda choice: choice[0])
    return best if best.replicas > 1 and cycles < _products(layer, kernel.values.shape, config) * (1 - WORTH) else None


def _cycles(layer: Layer, gather: Gather, config: Config) -> int:
    """Return the cycles of gathering the input and of the products that are left."""
    assert layer.kernel is not None
    stored, oc = gather.stored, layer.kernel.values.shape[0]
    stride = gather.window.stride[1] if gather.columns else 1
    copies = len(gather.taps) * (-(-stored.h * stored.w // config.eu_bytes) * stride + 2)
    return copies + _products(layer, (oc, stored.c, *gather.left.kernel), config)


def _products(layer: Layer, kernel: Sequence[int], config: Config) -> int:
    oc, ic, kh, kw = kernel
    pixels = -(-layer.result.h * layer.result.w // PIXELS[1])
    return -(-oc // config.lanes) * pixels * kh * kw * -(-ic // config.cube_group(1))


def _sources(name: str, maker: Mapping[str, Layer], kept: Collection[str]) -> set[str] | None:
    """Return the tensors that need replicas if the tensor `name` does; None if one of them cannot have any.

    A convolution makes replicas of its own. Other layers work channel by channel, on replicas of their inputs.
    """
    found: set[str] = set()
    left = [name]
    while left:
        own = left.pop()
        if own in found:
            continue
        if own not in maker or own in kept:
            return None
        found.add(own)
        layer = maker[own]
        if layer.kernel is None or layer.kernel.depthwise:
            if any(isinstance(ref, Input) and ref.whole for each in layer.operations for ref in each.operands.values()):
                return None
            left += layer.inputs
    return found


def _replicated(layer: Layer, spaced: Mapping[str, tuple[int, int]]) -> Layer:
    """Return a layer with replicas of its channels: as many, and as far apart, as `spaced` says by name of a result."""
    if layer.output not in spaced:
        return layer
    count, spacing = spaced[layer.output]
    c = layer.result.c

    def repeated(values: Array, axis: int = 0) -> Array:
        """Return `count` copies of values per channel, zeros between them."""
        room = [(0, 0)] * values.ndim
        room[axis] = (0, spacing - c)
        once = np.pad(values, room)
        return np.concatenate([once] * count, axis)

    kernel, bias = layer.kernel, layer.bias
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
