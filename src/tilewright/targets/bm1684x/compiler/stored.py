"""How a tensor of the graph is stored: as channels, rows and columns, and as which type; an input perhaps by phase.

The cube multiplies 64 channels of a pixel at a time; an image has 3. So for a convolution of few channels the host lays
the network's input out, padded, by phase: pixel (y * sh + py, x * sw + px) of channel c is element (y, x) of channel
(py, px, c), and a convolution of stride (sh, sw) becomes one of stride 1 with fewer taps. Then the DMA engine loads it
once for each tap to be folded, each time shifted by it, into other lanes: taps become channels too.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Tensor
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.values.dtypes import I8, U8, DType
from tilewright.targets.bm1684x.values.floats import as_stored, narrow


@dataclass(frozen=True)
class Phases:
    """An image (c, h, w) in DDR as (sh * sw * c, rows, columns) with `top` and `left` padding; loaded at `offsets`."""

    c: int
    h: int
    w: int
    sh: int
    sw: int
    top: int
    left: int
    rows: int
    columns: int
    offsets: tuple[int, ...]

    @property
    def channels(self) -> int:
        return self.sh * self.sw * self.c

    @property
    def elements(self) -> int:
        """With what a shifted load reads behind the last row."""
        return self.channels * self.rows * self.columns + max(self.offsets) + 1 & ~1

    def spread(self, image: Array, fill: int) -> Array:
        """(S, c, h, w) as (S, elements); `fill` is the padding."""
        samples = len(image)
        area = np.full((samples, self.c, self.rows * self.sh, self.columns * self.sw), fill, image.dtype)
        inside = area[:, :, self.top : self.top + self.h, self.left : self.left + self.w]
        inside[...] = image[:, :, : inside.shape[2], : inside.shape[3]]
        split = area.reshape(samples, self.c, self.rows, self.sh, self.columns, self.sw)
        laid = split.transpose(0, 3, 5, 1, 2, 4).reshape(samples, -1)
        return np.pad(laid, ((0, 0), (0, self.elements - laid.shape[1])))


@dataclass(frozen=True)
class Stored:
    """(c, h, w) elements of a sample: codes of the graph plus `add`, whose zero point is `zero`.

    Codes whose zero point is their lowest one (what a ReLU gives) are stored unsigned from 0 on: then clamping is
    the type's own, nothing is added behind a rounding, and padding is 0. Others are stored signed.
    """

    c: int
    h: int
    w: int
    dtype: DType
    add: int = 0
    zero: int = 0
    phases: Phases | None = None  # of an input that lies in DDR otherwise than in local memory

    @classmethod
    def of(cls, tensor: Tensor) -> Stored:
        """An 8-bit tensor. Its last axis is the channels, the axes before it are pixels."""
        *before, c = tensor.shape or (1,)
        image = len(before) == 3 and before[0] == 1
        h, w = (before[1], before[2]) if image else (1, prod(before))
        lowest = int(np.iinfo(tensor.dtype).min)
        dtype, add = (U8, -lowest) if tensor.zero_point == lowest else (I8, -lowest - 128)
        return cls(c, h, w, dtype, add, tensor.zero_point + add)

    @classmethod
    def real(cls, shape: tuple[int, ...], dtype: DType) -> Stored:
        """A float32 tensor (1, c), or (1, c, h, w) as ONNX has it, rounded to a float type."""
        c, h, w = (*shape[1:], 1, 1)[:3]
        return cls(c, h, w, dtype)

    @property
    def nbytes(self) -> int:
        """Of a sample in DDR."""
        elements = self.phases.elements if self.phases else self.c * self.h * self.w
        return elements * self.dtype.bytes

    def slots(self, config: Config) -> int:
        return -(-self.c // config.lanes)

    def plane(self, config: Config) -> int:
        """Bytes of one channel in local memory."""
        return plane_bytes(self.h * self.w, self.dtype, config)

    def lane_bytes(self, config: Config) -> int:
        """Of a sample in each lane of local memory."""
        return self.slots(config) * self.plane(config)

    def pack(self, values: Array) -> Array:
        """Values of the graph (S, ...) as they are stored in DDR: (S, elements)."""
        c, h, w = (self.phases.c, self.phases.h, self.phases.w) if self.phases else (self.c, self.h, self.w)
        if self.dtype.is_float:
            stored = narrow(values.reshape(len(values), c, h, w), self.dtype)
        else:
            codes = values.reshape(len(values), h, w, c).transpose(0, 3, 1, 2)
            stored = (codes.astype(np.int16) + self.add).astype(self.dtype.storage)
        return self.phases.spread(stored, self.zero) if self.phases else stored.reshape(len(values), -1)

    def unpack(self, stored: Array, tensor: Tensor) -> Array:
        """Elements (S, c * h * w) as values of the graph, (S, *shape)."""
        shape = (len(stored), *tensor.shape)
        if self.dtype.is_float:
            return as_stored(stored, self.dtype).reshape(shape)
        codes = (stored.astype(np.int16) - self.add).astype(tensor.dtype).reshape(-1, self.c, self.h, self.w)
        return np.ascontiguousarray(codes.transpose(0, 2, 3, 1)).reshape(shape)


def plane_bytes(elements: int, dtype: DType, config: Config) -> int:
    """One channel in the aligned layout."""
    return -(-elements * dtype.bytes // config.eu_bytes) * config.eu_bytes
