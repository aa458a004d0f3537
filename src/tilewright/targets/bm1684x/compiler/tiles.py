"""How a layer is cut: its channels into groups of slots, rows where one slot's sums are too large for a buffer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import gcd

import numpy as np

from tilewright.array import Array
from tilewright.targets.bm1684x.compiler.layer import Layer, Temp
from tilewright.targets.bm1684x.compiler.stored import plane_bytes
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.values.dtypes import I32

#: Bytes of a lane that one temporary buffer takes at most, where tiles can be that small: a bank.
TEMP_BYTES = 1 << 14
#: Bytes of a lane that the kernels of one tile take at most: transfers as short as that are not waited for long.
KERNEL_BYTES = 1 << 14
#: Bytes of a slot's parameters: 16 words.
WORD_BYTES = 64


@dataclass(frozen=True)
class Tile:
    """Slots s0..s1 and rows r0..r1 of a layer's result; group `number` of its slots."""

    number: int
    s0: int
    s1: int
    r0: int
    r1: int


@dataclass(frozen=True, eq=False)
class Cut:
    """A layer in tiles of `slots` slots and `rows` rows; `most`: slots that a tile has at most (0: as many as fit)."""

    layer: Layer
    config: Config
    most: int = 0

    @cached_property
    def kernel_slot(self) -> int:
        """Bytes of one slot's kernel in a lane."""
        kernel = self.layer.kernel
        if kernel is None:
            return 0
        ic, kh, kw = kernel.values.shape[1:]
        if kernel.depthwise:
            return kh * kw * kernel.dtype.bytes
        group = self.group
        return -(-ic // group) * group * kh * kw * kernel.dtype.bytes

    @property
    def group(self) -> int:
        """Input channels side by side in the kernel of a convolution."""
        assert self.layer.kernel is not None
        size = self.layer.kernel.dtype.bytes
        return 1 if size == 4 else self.config.eu_bytes // size

    @cached_property
    def size(self) -> tuple[int, int]:
        """Slots and rows of a tile."""
        result, slots = self.layer.result, self.layer.result.slots(self.config)
        plane = plane_bytes(result.h * result.w, I32, self.config)
        if plane <= TEMP_BYTES or not self.layer.row_tiles:
            most = max(1, min(TEMP_BYTES // plane, KERNEL_BYTES // max(1, self.kernel_slot), self.most or slots))
            return min(slots, most), result.h
        step = self.config.eu_bytes // gcd(result.w, self.config.eu_bytes)  # rows begin at aligned addresses
        return 1, min(result.h, max(step, TEMP_BYTES // (4 * result.w) // step * step))

    def tiles(self) -> Iterator[Tile]:
        """All tiles; those of one group of slots follow each other."""
        slots, rows = self.size
        for number, s0 in enumerate(range(0, self.layer.result.slots(self.config), slots)):
            for r0 in range(0, self.layer.result.h, rows):
                s1, r1 = s0 + slots, r0 + rows
                yield Tile(number, s0, min(s1, self.layer.result.slots(self.config)), r0, min(r1, self.layer.result.h))

    @cached_property
    def temps(self) -> dict[int, int]:
        """Bytes of a lane that each temporary buffer takes."""
        return {index: max(map(self._temp_bytes, uses)) for index, uses in self.layer.temps().items()}

    def _temp_bytes(self, temp: Temp) -> int:
        slots, rows = self.size
        own = self.layer.shapes[0] if temp.of_input else self.layer.result
        elements = own.h * own.w if temp.of_input else rows * own.w
        return slots * plane_bytes(elements, temp.dtype, self.config)

    @cached_property
    def blocks(self) -> list[Array]:
        """The constants of each group of slots: uint8 (lanes, bytes), bytes a multiple of the alignment."""
        if self.layer.kernel is None and not self.layer.words:
            return []
        slots, count = self.size[0], self.layer.result.slots(self.config)
        return [self._block(s0, min(s0 + slots, count)) for s0 in range(0, count, slots)]

    def _block(self, s0: int, s1: int) -> Array:
        lanes, unit = self.config.lanes, self.config.eu_bytes
        parts = []
        for part, size in self._parts(s0, s1):
            lane = part.reshape(s1 - s0, lanes, -1).transpose(1, 0, 2).reshape(lanes, -1)
            parts.append(np.pad(lane, ((0, 0), (0, max(0, size - lane.shape[1])))))
        block = np.concatenate(parts, axis=1)
        return np.pad(block, ((0, 0), (0, -block.shape[1] % unit)))

    def _parts(self, s0: int, s1: int) -> Iterator[tuple[Array, int]]:
        """Parameters, bias and kernel of channels: bytes (channels of whole slots, ...), and how many a lane needs."""
        layer, channels = self.layer, slice(s0 * self.config.lanes, s1 * self.config.lanes)
        if layer.words:
            words = np.zeros((len(layer.words[0]), WORD_BYTES // 4), np.uint32)
            words[:, : len(layer.words)] = layer.word_bits()
            yield self._padded(words[channels], s1 - s0), 0
        if layer.bias is not None:
            bias = self._padded(layer.bias[channels], s1 - s0)
            yield bias, self._bias_bytes(s1 - s0)
        if layer.kernel is not None and layer.kernel.depthwise:
            yield self._padded(layer.kernel.values[0][channels], s1 - s0), 0
        elif layer.kernel is not None:
            _, ic, kh, kw = layer.kernel.values.shape
            spare = -ic % self.group
            values = np.pad(layer.kernel.values[channels], ((0, 0), (0, spare), (0, 0), (0, 0)))
            grouped = values.reshape(len(values), -1, self.group, kh, kw).transpose(0, 1, 3, 4, 2)
            yield self._padded(grouped, s1 - s0), 0

    def _padded(self, values: Array, slots: int) -> Array:
        """Bytes of each channel, zeros for those beyond the last."""
        raw = np.ascontiguousarray(values).view(np.uint8).reshape(len(values), -1)
        return np.pad(raw, ((0, slots * self.config.lanes - len(raw)), (0, 0)))

    def offsets(self, slots: int) -> tuple[int, int, int]:
        """Where parameters, bias (or nothing) and kernel of so many slots begin in a block."""
        words = WORD_BYTES * slots if self.layer.words else 0
        return 0, words, words + self._bias_bytes(slots)

    def _bias_bytes(self, slots: int) -> int:
        """So many that a kernel behind them is aligned."""
        size = 0 if self.layer.bias is None else self.layer.bias.itemsize * slots
        return -(-size // self.config.eu_bytes) * self.config.eu_bytes
