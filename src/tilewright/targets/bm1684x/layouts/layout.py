"""The strides of the named layouts in local memory (section 3 of the specification).

If a tensor starts in lane s, its channel c lies in lane (s + c) mod lanes, in slot (s + c) div lanes of this lane.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.targets.bm1684x.config import Config
from tilewright.targets.bm1684x.values.dtypes import DType


class Shape(NamedTuple):
    """The sizes of a tensor on its axes n, c, h and w, in elements."""

    n: int
    c: int
    h: int
    w: int

    @property
    def elements(self) -> int:
        return self.n * self.c * self.h * self.w


class Stride(NamedTuple):
    """The distances between neighbours on the axes n, c, h, w, in elements.

    A stride of 0 repeats an element. In local memory, `c` is the distance between slots of a lane; in DDR, `c` is the
    distance between channels.
    """

    n: int
    c: int
    h: int
    w: int


def slots(start: int, c: int, config: Config) -> int:
    """Return the largest number of slots that `c` channels occupy in a lane, if channel 0 lies in lane `start`.

    A slot is the place of one channel in each lane. After the last lane, channels continue in lane 0 of the next slot.
    """
    return -(-(start + c) // config.lanes)


def aligned(shape: Shape, dtype: DType, start: int, config: Config) -> Stride:
    """Strides with each channel at a multiple of `eu_bytes` (64). This is the compute engine's default."""
    return _of_channel(shape, _up(shape.h * shape.w, config.eu_bytes // dtype.bytes), start, config)


def compact(shape: Shape, dtype: DType, start: int, config: Config) -> Stride:
    """Strides without gaps between the channels of a lane."""
    return _of_channel(shape, shape.h * shape.w, start, config)


def line(shape: Shape, dtype: DType, start: int, config: Config) -> Stride:
    """Strides with each row (along w) at a multiple of `eu_bytes` (64)."""
    # n is the outermost axis: all slots of a sample come before the next sample, which begins in the start lane again.
    row = _up(shape.w, config.eu_bytes // dtype.bytes)
    return Stride(slots(start, shape.c, config) * shape.h * row, shape.h * row, row, 1)


def dma_default(shape: Shape, dtype: DType, start: int, config: Config) -> Stride:
    """Return the default local strides of a DMA copy: like `aligned`, except that the n stride ignores the start lane.

    The two layouts differ if n > 1, and the start lane makes one more slot necessary (`dma_default_differs`). A kernel
    that moves data in one layout and computes in the other silently gives wrong results.
    """
    stride = aligned(shape, dtype, start, config)
    return stride._replace(n=slots(0, shape.c, config) * stride.c)


def dma_default_differs(shape: Shape, start: int, config: Config) -> bool:
    return shape.n > 1 and slots(start, shape.c, config) != slots(0, shape.c, config)


def continuous(shape: Shape) -> Stride:
    return Stride(shape.c * shape.h * shape.w, shape.h * shape.w, shape.w, 1)


#: The named layouts: shape, type and start lane determine their strides.
LAYOUTS = {"aligned": aligned, "compact": compact, "line": line, "dma": dma_default}
#: Alignment of a tensor in the layout `compact`, in bytes. All other layouts have the alignment `eu_bytes`.
COMPACT = 4


def off_grid(kind: str, address: int, config: Config) -> str:
    """Return the reason why a layout cannot begin at an address in local memory, or ""."""
    step = COMPACT if kind == "compact" else config.eu_bytes
    if address % step == 0:
        return ""
    lane, offset = divmod(address % config.local_bytes, config.lane_bytes)
    return f"it starts at byte {offset:#x} of lane {lane}; the layout {kind} starts at multiples of {step}"


def _of_channel(shape: Shape, channel: int, start: int, config: Config) -> Stride:
    return Stride(slots(start, shape.c, config) * channel, channel, shape.w, 1)


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
