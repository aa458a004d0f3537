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

    def __getitem__(self, name: str) -> Array:
        return next(segment.data for segment in self.segments if segment.name == name)

    def window(self, address: int, rows: int, row_bytes: int, stride: int, where: str) -> Array:
        """A writable view (samples or 1, rows, row_bytes) of rows `stride` bytes apart.

        Raises MachineError, naming `where`, when it leaves its segment.
        """
        index = bisect_right(self._starts, address) - 1
        end = address + (rows - 1) * stride + row_bytes
        if index < 0 or end > self.segments[index].end:
            raise MachineError(
                where,
                f"DRAM bytes {address:#x}..{end:#x} are not inside one segment",
                "segments are " + ", ".join(f"{s.name} {s.address:#x}..{s.end:#x}" for s in self.segments),
            )
        segment = self.segments[index]
        start = address - segment.address
        shape = (segment.data.shape[0], rows, row_bytes)
        return np.ndarray(shape, np.uint8, segment.data, start, (segment.data.strides[0], stride, 1))
