"""A layer's tile as commands on local memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from tilewright.targets.bm1684x.compiler.layer import Bias, Input, Output, PerChannel, Ref, Temp, Weights
from tilewright.targets.bm1684x.compiler.stored import Stored
from tilewright.targets.bm1684x.compiler.tiles import WORD_BYTES, Cut, Tile
from tilewright.targets.bm1684x.config import LOCAL_BASE, Config
from tilewright.targets.bm1684x.isa.command import Command, Constant
from tilewright.targets.bm1684x.isa.operations import OPERATIONS
from tilewright.targets.bm1684x.layouts.operand import Operand
from tilewright.targets.bm1684x.layouts.spread import ConvWeights
from tilewright.targets.bm1684x.layouts.tensor import Tensor


@dataclass(frozen=True)
class Places:
    """Lane offsets of one sample's tile: inputs, the result, temporary buffers, the block of constants."""

    inputs: tuple[int, ...]
    result: int
    temps: Mapping[int, int]
    block: int


def commands(cut: Cut, tile: Tile, places: Places) -> list[Command]:
    """The operations of a layer on one tile."""
    emit = _Tile(cut, tile, places)
    found = []
    for operate in cut.layer.operations:
        spread = not operate.operation.endswith("requant")  # these take parameters of a channel as they lie
        operands = {name: emit.operand(ref, spread) for name, ref in operate.operands.items()}
        result = emit.operand(operate.result)
        assert not isinstance(result, Constant)
        attributes = emit.attributes(operate.attributes)
        found.append(Command(OPERATIONS[operate.operation], operands, {"y": result}, attributes))
    return found


def sample(stored: Stored, offset: int, config: Config) -> Tensor:
    """All of one sample of a tensor in local memory."""
    return Tensor.local(0, offset, (1, stored.c, stored.h, stored.w), stored.dtype, config)


class _Tile:
    def __init__(self, cut: Cut, tile: Tile, places: Places) -> None:
        self._cut, self._tile, self._places = cut, tile, places
        self._config, self._layer = cut.config, cut.layer
        result = self._layer.result
        first = tile.s0 * self._config.lanes
        self._channels = min(tile.s1 * self._config.lanes, result.c) - first
        self._shape = (1, self._channels, tile.r1 - tile.r0, result.w)
        self._whole_rows = tile.r1 - tile.r0 == result.h

    def operand(self, ref: Ref, spread: bool = False) -> Operand | Constant:
        slots = self._tile.s1 - self._tile.s0
        words, bias, kernel = self._cut.offsets(slots)
        block, config = self._places.block, self._config
        if isinstance(ref, Constant):
            return ref
        if isinstance(ref, Temp):
            own = self._layer.shapes[0]
            shape = (1, self._channels, own.h, own.w) if ref.of_input else self._shape
            return Tensor.local(0, self._places.temps[ref.index], shape, ref.dtype, config)
        if isinstance(ref, Output):
            return self._part(self._layer.result, self._places.result)
        if isinstance(ref, Input):
            stored, offset = self._layer.shapes[ref.index], self._places.inputs[ref.index]
            if ref.whole:
                return self._rows(stored, offset)
            if self._layer.window is not None:
                place = offset + self._tile.s0 * stored.plane(config)
                return Tensor.local(0, place, (1, self._channels, stored.h, stored.w), stored.dtype, config)
            return self._part(stored, offset)
        if isinstance(ref, PerChannel):
            place = block + words + 4 * ref.index
            if not spread:
                return Tensor.local(0, place, (1, self._channels, 1, 1), ref.dtype, config)
            return Tensor.free(0, place, self._shape, (0, WORD_BYTES // 4, 0, 0), ref.dtype, config)
        if isinstance(ref, Bias):
            return Tensor.local(0, block + bias, (1, self._channels, 1, 1), ref.dtype, config, "compact")
        assert isinstance(ref, Weights) and self._layer.kernel is not None
        _, ic, kh, kw = self._layer.kernel.values.shape
        dtype = self._layer.kernel.dtype
        if self._layer.kernel.depthwise:
            return Tensor.local(0, block + kernel, (1, self._channels, kh, kw), dtype, config, "compact")
        return ConvWeights(LOCAL_BASE + block + kernel, (self._channels, ic, kh, kw), dtype, config)

    def attributes(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """With the window of the tile's rows."""
        if "window" not in given or self._whole_rows:
            return dict(given)
        window = given["window"]
        low, high = self._reach()
        h = self._layer.shapes[0].h
        pads = (max(0, -low), max(0, high - h), *window.pads[2:])
        return {**given, "window": replace(window, pads=pads)}

    def _reach(self) -> tuple[int, int]:
        """The rows of the input that the tile's windows see, padding included."""
        window = self._layer.window
        assert window is not None
        low = self._tile.r0 * window.stride[0] - window.pads[0]
        last = (self._tile.r1 - 1) * window.stride[0] - window.pads[0]
        return low, last + (window.kernel[0] - 1) * window.dilation[0] + 1

    def _rows(self, stored: Stored, offset: int) -> Tensor:
        """All channels of what the tile's windows see."""
        if self._whole_rows and not stored.phases:
            return sample(stored, offset, self._config)
        low, high = self._reach()
        first, end = max(0, low), min(stored.h, high)
        plane = stored.plane(self._config) // stored.dtype.bytes if stored.slots(self._config) > 1 else 0
        window = self._layer.window
        width = self._layer.result.w + window.kernel[1] - 1 if window and stored.phases else stored.w
        shape, stride = (1, stored.c, end - first, width), (0, plane, stored.w, 1)
        place = offset + first * stored.w * stored.dtype.bytes
        return Tensor.free(0, place, shape, stride, stored.dtype, self._config)

    def _part(self, stored: Stored, offset: int) -> Tensor:
        """The tile's own channels and rows of a tensor of the result's shape."""
        place = offset + self._tile.s0 * stored.plane(self._config)
        place += self._tile.r0 * stored.w * stored.dtype.bytes
        return Tensor.local(0, place, self._shape, stored.dtype, self._config)
