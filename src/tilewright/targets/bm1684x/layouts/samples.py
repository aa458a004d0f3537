"""How the tensors of a network are stored, in DDR and in local memory.

A tensor of the graph is stored as (channels, rows, columns) of one element type. The input of a network may instead be
stored by phase, because the cube multiplies 64 channels of a pixel at a time, but an image has only 3 channels. For a
convolution of few channels, the host pads the input and splits it into phases (space-to-depth): pixel (y * sh + py, x *
sw + px) of channel c becomes element (y, x) of channel (py, px, c). A convolution of stride (sh, sw) then has stride 1
and fewer taps. The DMA engine can also fold taps into channels: for each folded tap, it loads the input, shifted by
this tap, into additional lanes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from tilewright.array import Array
from tilewright.graph.ir import Tensor
from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.layouts.tensor import Tensor as Addressed
from tilewright.targets.bm1684x.values.dtypes import I8, U8, DType
from tilewright.targets.bm1684x.values.floats import as_stored, narrow


@dataclass(frozen=True)
class Phases:
    """An image (c, h, w) stored in DDR by phase (space-to-depth, see above), as (sh * sw * c, rows, columns).

    (sh, sw) is the stride of the convolution. The image is first padded by `top` and `left`. For each of `offsets` (in
    elements), the DMA engine loads the image from this offset on into a new group of channels.
    """

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
        """The number of elements in DDR, including final padding, which the load from the largest offset reads."""
        return self.channels * self.rows * self.columns + max(self.offsets) + 1 & ~1

    def places(self, c: Array, h: Array, w: Array) -> Array:
        """Return the position in DDR of each element (c, h, w) of the image, or -1 if the element is not stored."""
        row, y = np.divmod(h + self.top, self.sh)
        column, x = np.divmod(w + self.left, self.sw)
        channel = (y * self.sw + x) * self.c + c
        return np.where(
            (row < self.rows) & (column < self.columns), (channel * self.rows + row) * self.columns + column, -1
        )


@dataclass(frozen=True)
class SampleFormat:
    """The storage format of one sample of a tensor: (c, h, w) elements, each a code (quantised value) plus `add`.

    `zero` is the zero point of the stored codes. If the zero point is the lowest code, as after a ReLU, codes are
    stored as unsigned numbers from 0 on. Saturation to the type then replaces clamping, and the zero point and the
    padding are 0. All other codes are stored as signed numbers.
    """

    c: int
    h: int
    w: int
    dtype: DType
    add: int = 0
    zero: int = 0
    phases: Phases | None = None  # set if DDR holds the tensor by phase

    @classmethod
    def of(cls, tensor: Tensor) -> SampleFormat:
        """Return the format of an 8-bit tensor: the last axis has the channels, and all other axes are pixels."""
        *before, c = tensor.shape or (1,)
        image = len(before) == 3 and before[0] == 1
        h, w = (before[1], before[2]) if image else (1, prod(before))
        lowest = int(np.iinfo(tensor.dtype).min)
        dtype, add = (U8, -lowest) if tensor.zero_point == lowest else (I8, -lowest - 128)
        return cls(c, h, w, dtype, add, tensor.zero_point + add)

    @classmethod
    def real(cls, shape: tuple[int, ...], dtype: DType) -> SampleFormat:
        """Return the format of a float32 tensor of `shape` (1, c) or (1, c, h, w), stored as float type `dtype`."""
        c, h, w = (*shape[1:], 1, 1)[:3]
        return cls(c, h, w, dtype)

    @property
    def sizes(self) -> tuple[int, int, int]:
        described = self.phases or self
        return described.c, described.h, described.w

    @property
    def elements(self) -> int:
        return self.phases.elements if self.phases else self.c * self.h * self.w

    @property
    def nbytes(self) -> int:
        return self.elements * self.dtype.bytes

    @cached_property
    def places(self) -> Array:
        """The position in DDR of each element of the graph's tensor: int64, in the tensor's order.

        Positions are relative to the first element of a sample, and -1 means that no window reads the element. In the
        graph, codes have the order (h, w, c), and real numbers have the order (c, h, w).
        """
        c, h, w = self.sizes
        index = np.ogrid[:c, :h, :w]
        numbers = self.phases.places(*index) if self.phases else np.arange(c * h * w).reshape(c, h, w)
        return (numbers if self.dtype.is_float else numbers.transpose(1, 2, 0)).reshape(-1)

    @property
    def is_pixel(self) -> bool:
        return self.h * self.w == 1 and self.c > 1 and not self.phases

    def slots(self, config: Config) -> int:
        return -(-self.c // config.lanes)

    def plane(self, config: Config) -> int:
        return plane_bytes(self.h * self.w, self.dtype, config)

    def lane_bytes(self, config: Config) -> int:
        """Return the number of bytes that one sample occupies in each lane of local memory."""
        return self.slots(config) * self.plane(config)

    def local(self, offset: int, config: Config) -> Addressed:
        """Return the tensor of one whole sample in local memory, from byte `offset` of each lane on."""
        return Addressed.local(0, offset, (1, self.c, self.h, self.w), self.dtype, config)

    def pack(self, values: Array) -> Array:
        """Convert the values of S samples of a graph tensor, (S, *shape), to the elements in DDR, (S, elements)."""
        flat = values.reshape(len(values), -1)
        if self.dtype.is_float:
            flat = narrow(flat, self.dtype)
        else:
            flat = (flat.astype(np.int16) + self.add).astype(self.dtype.storage)
        packed = np.full((len(flat), self.elements), self.zero, self.dtype.storage)
        if self.phases:
            packed[:, self.phases.channels * self.phases.rows * self.phases.columns :] = 0
        # Elements that no window reads are not stored. Positions without an element contain padding.
        is_stored = self.places >= 0
        packed[:, self.places[is_stored]] = flat[:, is_stored]
        return packed

    def unpack(self, stored: Array, tensor: Tensor) -> Array:
        """Convert S stored samples, (S, elements), to values of the graph's `tensor`, (S, *shape)."""
        return self.decoded(stored[:, self.places].reshape(len(stored), *tensor.shape), tensor)

    def decoded(self, values: Array, tensor: Tensor) -> Array:
        """Convert stored values of any shape to values of the graph's `tensor`."""
        if self.dtype.is_float:
            return as_stored(values, self.dtype)
        return (values.astype(np.int16) - self.add).astype(tensor.dtype)


def plane_bytes(elements: int, dtype: DType, config: Config) -> int:
    """Return the bytes of a channel with `elements` elements in local memory: a multiple of `eu_bytes`."""
    return -(-elements * dtype.bytes // config.eu_bytes) * config.eu_bytes
