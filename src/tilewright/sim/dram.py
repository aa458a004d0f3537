"""DRAM as named segments; a constant is held once, what differs from sample to sample once a sample."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError


@dataclass
class Segment:
    """`data` is contiguous uint8, (1, size) where all samples share it, (samples, size) otherwise."""

    name: str
    address: int
    data: Array
    initialised: bool = True  # filled by the host before the launch
    shared: bool = False  # a constant that other launches and runs use as well: a write makes a copy

    @property
    def end(self) -> int:
        return self.address + int(self.data.shape[1])


class Dram:
    """Byte-addressed memory made of segments that do not overlap."""

    def __init__(self, segments: Iterable[Segment]) -> None:
        self.segments = sorted(segments, key=lambda segment: segment.address)
        for before, after in zip(self.segments, self.segments[1:], strict=False):
            if before.end > after.address:
                raise MachineError("DRAM", f"segment '{before.name}' overlaps '{after.name}'")
        self._starts = [segment.address for segment in self.segments]
        self._ends = [segment.end for segment in self.segments]
        self._pool: Array | None = None

    def __getitem__(self, name: str) -> Array:
        return next(segment.data for segment in self.segments if segment.name == name)

    def window(self, address: int, rows: int, row_bytes: int, stride: int, where: str) -> Array:
        """A view (samples or 1, rows, row_bytes) of rows `stride` bytes apart, to read.

        Raises MachineError, naming `where`, when it leaves its segment.
        """
        segment = self._segment(address, address + (rows - 1) * stride + row_bytes, where)
        return _view(segment, address, (rows, row_bytes), stride)

    def writable(self, samples: int, address: int, rows: int, row_bytes: int, stride: int, where: str) -> Array:
        """The same view to write, (samples, rows, row_bytes); a shared segment becomes the samples' own."""
        segment = self._segment(address, address + (rows - 1) * stride + row_bytes, where)
        _own(segment, samples)
        return _view(segment, address, (rows, row_bytes), stride)

    def pool(self, samples: int, address: Array, end: Array, written: Array) -> tuple[Array, Array]:
        """All bytes as one vector, uint8 [m], of which the segments become views; and where ranges of bytes lie there.

        The ranges `address` to `end` int64 [n] are to be read, or `written` bool [n]. Where: int64 [n, 2], the first
        sample's place in the vector, and how far apart samples are: 0 where they share one. Raises MachineError for
        a range that leaves its segment.
        """
        starts, ends = (np.array([getattr(s, name) for s in self.segments], np.int64) for name in ("address", "end"))
        home = np.searchsorted(starts, address, side="right") - 1
        used = end > address
        outside = used & ((home < 0) | (end > np.append(ends, 0)[home]))
        for index in np.flatnonzero(outside)[:1]:
            self._segment(int(address[index]), int(end[index]), "DRAM")
        for index in np.unique(home[written & used]):
            _own(self.segments[index], samples)
        if self._pool is None or any(segment.data.base is not self._pool for segment in self.segments):
            self._pool = np.concatenate([np.zeros(0, np.uint8), *(s.data.reshape(-1) for s in self.segments)])
            first = 0
            for segment in self.segments:
                part = self._pool[first : first + segment.data.size]
                segment.data = part.reshape(segment.data.shape)
                first += segment.data.size
        offset = np.cumsum([0, *(segment.data.size for segment in self.segments)])[:-1]
        pitch = np.array([s.data.shape[1] if s.data.shape[0] > 1 else 0 for s in self.segments], np.int64)
        place = np.zeros((len(address), 2), np.int64)
        home = home[used]
        place[used] = np.stack([address[used] - starts[home] + offset[home], pitch[home]], axis=1)
        return self._pool, place

    def _segment(self, address: int, end: int, where: str) -> Segment:
        index = bisect_right(self._starts, address) - 1
        if index < 0 or end > self._ends[index]:
            known = ", ".join(f"{s.name} {s.address:#x}..{s.end:#x}" for s in self.segments)
            reason = f"DRAM bytes {address:#x}..{end:#x} are not inside one segment"
            raise MachineError(where, reason, f"segments are {known or 'none'}")
        return self.segments[index]


def _own(segment: Segment, samples: int) -> None:
    if segment.shared:
        segment.data, segment.shared = np.repeat(segment.data, samples, axis=0), False


def _view(segment: Segment, address: int, extent: tuple[int, int], stride: int) -> Array:
    data = segment.data
    shape, strides = (data.shape[0], *extent), (data.strides[0], stride, 1)
    return np.ndarray(shape, np.uint8, data, address - segment.address, strides)
