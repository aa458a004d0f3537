"""Cut a layer into tiles, and turn a tile into commands on local memory.

A slot holds one channel in each lane. A tile is a group of whole slots, or some rows of a single slot if the sums of a
whole slot exceed a temporary buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.compiler import layer as ir
from tilewright.targets.bm1684x.config import LOCAL_BASE, Config
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.operations import OPERATIONS
from tilewright.targets.bm1684x.layouts.layout import Shape, aligned
from tilewright.targets.bm1684x.layouts.samples import SampleFormat, plane_bytes
from tilewright.targets.bm1684x.layouts.tensor import ConvWeights, Operand, Tensor, packed
from tilewright.targets.bm1684x.values.dtypes import I32
from tilewright.targets.bm1684x.values.window import Window

#: The largest size of a tile's kernels, in bytes per lane. The limit keeps transfers short: a tile waits for its
#: kernels.
KERNEL_BYTES = 1 << 14
#: The size of the parameters of one slot, in bytes: 16 words.
WORD_BYTES = 64


@dataclass(frozen=True, eq=False)
class Tiling:
    """A layer cut into tiles of at most `most` slots (0: as many slots as fit)."""

    layer: ir.Layer
    config: Config
    most: int = 0

    @cached_property
    def kernel_slot(self) -> int:
        """The size of the weights for one slot of the result, in bytes per lane (0: the layer has no kernel)."""
        kernel = self.layer.kernel
        if kernel is None:
            return 0
        ic, kh, kw = kernel.values.shape[1:]
        if kernel.depthwise:
            return kh * kw * kernel.dtype.bytes
        group = self.config.cube_group(kernel.dtype.bytes)
        return -(-ic // group) * group * kh * kw * kernel.dtype.bytes

    @cached_property
    def size(self) -> tuple[int, int]:
        """The number of slots and rows of a tile. The last tiles may be smaller."""
        result = self.layer.result
        slots = self.layer.result.slots(self.config)
        plane = plane_bytes(result.h * result.w, I32, self.config)
        if plane <= ir.TEMP_BYTES or not self.layer.row_tiles:
            most = max(1, min(ir.TEMP_BYTES // plane, KERNEL_BYTES // max(1, self.kernel_slot), self.most or slots))
            return min(slots, most), result.h
        # The tile has as many rows as fit into a temporary buffer, rounded down to a multiple of `step`. Every `step`
        # rows fill whole 64-byte lines.
        step = self.config.eu_bytes // gcd(result.w, self.config.eu_bytes)  # tiles begin at aligned addresses
        return 1, min(result.h, max(step, ir.TEMP_BYTES // (4 * result.w) // step * step))

    def tiles(self) -> Iterator[Tile]:
        """Yield all tiles, one group of slots after the other."""
        slots, rows = self.size
        result = self.layer.result
        count = result.slots(self.config)
        for number, s0 in enumerate(range(0, count, slots)):
            for r0 in range(0, result.h, rows):
                yield Tile(self, number, s0, min(s0 + slots, count), r0, min(r0 + rows, result.h))

    def rows_read(self, form: SampleFormat) -> list[int]:
        """Return where to divide the transfer of an input, so that each tile waits only for the rows that it reads.

        `form` is the format of the input. The cuts are row numbers that ascend from 0 to the number of rows. Each piece
        begins at an aligned address.
        """
        rows = self.size[1]
        result = self.layer.result
        window = self.layer.window
        step = self.config.eu_bytes // gcd(form.w * form.dtype.bytes, self.config.eu_bytes)
        # For each tile, the end of the result rows that it and all earlier tiles compute.
        ends = (min(r0 + rows, result.h) for r0 in range(0, result.h, rows))
        read = [window.rows(0, end)[1] if window else end for end in ends]
        return sorted({0, *(min(form.h, -(-end // step) * step) for end in read[:-1]), form.h})

    @cached_property
    def temps(self) -> dict[int, int]:
        """The size of each temporary buffer in bytes of a lane, by the buffer's index.

        Channels are rounded up to multiples of `eu_bytes` elements. Otherwise the estimate would treat a command's
        buffers as overlapping, and double its time (timing/estimate.py).
        """
        sizes: dict[int, int] = {}
        slots, rows = self.size
        for operation in self.layer.operations:
            if isinstance(temp := operation.result, ir.Temp):
                elements = prod(temp.size or (rows, self.layer.result.w))
                eu = self.config.eu_bytes
                size = slots * plane_bytes(-(-elements // eu) * eu, temp.dtype, self.config)
                sizes[temp.index] = max(sizes.get(temp.index, 0), size)
        return sizes

    @cached_property
    def blocks(self) -> list[Array]:
        """The block of constants of each group of slots: uint8 (lanes, n), where n is a multiple of `eu_bytes`.

        A block has the parameters of all its slots, then the biases, then the kernels (see `offsets`).
        """
        if self.layer.kernel is None and not self.layer.words:
            return []
        slots = self.size[0]
        count = self.layer.result.slots(self.config)
        return [self._block(s0, min(s0 + slots, count)) for s0 in range(0, count, slots)]

    def _block(self, s0: int, s1: int) -> Array:
        lanes = self.config.lanes
        slots = s1 - s0
        eu = self.config.eu_bytes
        parts: list[tuple[int, Array]] = []
        for offset, rows in zip(self.offsets(slots), self._rows, strict=True):
            if rows is not None:
                channels = rows[s0 * lanes : s1 * lanes]
                parts.append((offset, np.ascontiguousarray(channels).view(np.uint8).reshape(len(channels), -1)))
        # Channel c lies in lane c mod lanes, slot c div lanes, so every `lanes` consecutive rows fill one slot.
        offset, last = parts[-1]
        block = np.zeros((lanes, -(-(offset + slots * last.shape[1]) // eu) * eu), np.uint8)
        for offset, raw in parts:
            size = raw.shape[1]
            for slot, first in enumerate(range(0, len(raw), lanes)):  # zeros after the last channel
                channels = raw[first : first + lanes]
                block[: len(channels), offset + slot * size : offset + (slot + 1) * size] = channels
        return block

    @cached_property
    def _rows(self) -> tuple[Array | None, ...]:
        layer = self.layer
        words = None
        rows = None
        if layer.words:
            words = np.zeros((len(layer.words[0]), WORD_BYTES // 4), np.uint32)
            words[:, : len(layer.words)] = np.stack([word.view(np.uint32) for word in layer.words], axis=1)
        if layer.kernel is not None:
            values = layer.kernel.values
            dtype = layer.kernel.dtype
            rows = values[0] if layer.kernel.depthwise else packed(values, dtype, self.config)[0]
        return words, layer.bias, rows

    def offsets(self, slots: int) -> tuple[int, int, int]:
        """Return the byte offsets of parameters, bias and kernel in the block of a tile with `slots` slots."""
        words = WORD_BYTES * slots if self.layer.words else 0
        bias = 0 if self.layer.bias is None else self.layer.bias.itemsize * slots
        return 0, words, words + -(-bias // self.config.eu_bytes) * self.config.eu_bytes


class LaneOffsets(NamedTuple):
    """The byte offsets, in a lane, of a tile's inputs, result, temporary buffers and block of constants."""

    inputs: Sequence[int]
    result: int
    temps: Mapping[int, int]
    block: int


@dataclass(frozen=True, eq=False)
class Tile:
    """The slots [s0, s1) and the rows [r0, r1) of a result. `number` is the number of the group of slots."""

    cut: Tiling
    number: int
    s0: int
    s1: int
    r0: int
    r1: int

    @property
    def _config(self) -> Config:
        return self.cut.config

    @property
    def _layer(self) -> ir.Layer:
        return self.cut.layer

    @cached_property
    def _shape(self) -> tuple[int, int, int, int]:
        first, end = (slot * self._config.lanes for slot in (self.s0, self.s1))
        return 1, min(end, self._layer.result.c) - first, self.r1 - self.r0, self._layer.result.w

    @property
    def _whole_rows(self) -> bool:
        return self.r1 - self.r0 == self._layer.result.h

    def commands(self, places: LaneOffsets) -> Iterator[Command]:
        for operation in self._layer.operations:
            # A requantisation reads one table entry per channel. All other operations read a tensor of their own shape,
            # in which strides of 0 repeat the channel's value.
            spread = not operation.name.endswith("requant")
            operands = {name: self._operand(ref, places, spread) for name, ref in operation.operands.items()}
            result = self._operand(operation.result, places)
            assert not isinstance(result, Constant)
            attributes: dict[str, Any] = {"window": self._window} if operation.name.endswith("2d") else {}
            yield Command(OPERATIONS[operation.name], operands, {"y": result}, {**attributes, **operation.attributes})

    def _operand(self, ref: ir.Ref, places: LaneOffsets, spread: bool = False) -> Operand | Constant:
        config = self._config
        shape = self._shape
        channels = self._shape[1]
        if isinstance(ref, Constant):
            return ref
        if isinstance(ref, ir.Temp):
            return Tensor.local(0, places.temps[ref.index], (1, channels, *(ref.size or shape[2:])), ref.dtype, config)
        if isinstance(ref, ir.Output):
            return self._part(self._layer.result, places.result)
        if isinstance(ref, ir.Input):
            form = self._layer.shapes[ref.index]
            offset = places.inputs[ref.index]
            if ref.whole:
                return self._rows(form, offset)
            # A tile of an element-wise layer reads exactly the elements that it writes. A tile of a layer with a window
            # reads whole planes.
            if self._layer.window is None:
                return self._part(form, offset)
            place = offset + self.s0 * form.plane(config)
            return Tensor.local(0, place, (1, channels, form.h, form.w), form.dtype, config)
        words, bias, kernel = (places.block + offset for offset in self.cut.offsets(self.s1 - self.s0))
        if isinstance(ref, ir.PerChannel):
            place = words + 4 * ref.index
            if spread:
                return Tensor.free(0, place, shape, (0, WORD_BYTES // 4, 0, 0), ref.dtype, config)
            per_channel = Shape(1, channels, 1, 1)  # one word of each table entry
            return Tensor.free(0, place, per_channel, aligned(per_channel, ref.dtype, 0, config), ref.dtype, config)
        if isinstance(ref, ir.Bias):
            return Tensor.local(0, bias, (1, channels, 1, 1), ref.dtype, config, "compact")
        weights = self._layer.kernel
        assert isinstance(ref, ir.Weights) and weights is not None
        _, ic, kh, kw = weights.values.shape
        if weights.depthwise:
            return Tensor.local(0, kernel, (1, channels, kh, kw), weights.dtype, config, "compact")
        return ConvWeights(LOCAL_BASE + kernel, (channels, ic, kh, kw), weights.dtype, config)

    @property
    def _window(self) -> Window | None:
        window = self._layer.window
        return window.cut(self.r0, self.r1, self._layer.shapes[0].h) if window and not self._whole_rows else window

    def _rows(self, form: SampleFormat, offset: int) -> Tensor:
        if self._whole_rows and not form.phases:
            return form.local(offset, self._config)
        window = self._layer.window
        assert window is not None
        low, high = window.rows(self.r0, self.r1)
        first = max(0, low)
        end = min(form.h, high)
        # The tensor has only some rows, but its channels are still a whole plane apart.
        plane = form.plane(self._config) // form.dtype.bytes if form.slots(self._config) > 1 else 0
        width = self._layer.result.w + window.kernel[1] - 1 if form.phases else form.w
        shape, stride = (1, form.c, end - first, width), (0, plane, form.w, 1)
        place = offset + first * form.w * form.dtype.bytes
        return Tensor.free(0, place, shape, stride, form.dtype, self._config)

    def _part(self, form: SampleFormat, offset: int) -> Tensor:
        place = offset + self.s0 * form.plane(self._config) + self.r0 * form.w * form.dtype.bytes
        return Tensor.local(0, place, self._shape, form.dtype, self._config)
