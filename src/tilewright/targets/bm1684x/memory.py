"""The machine's memories as bytes at bus addresses: local (all lanes), static, L2, and DDR in pieces."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.targets.bm1684x.config import ADDRESS_END, DDR_BASE, L2_BASE, LOCAL_BASE, STATIC_BASE, Config


@dataclass(frozen=True, eq=False)
class Region:
    """Bytes (uint8) from a bus address on."""

    name: str
    base: int
    data: Array

    @property
    def end(self) -> int:
        return self.base + len(self.data)


@dataclass(eq=False)
class Memories:
    """All memories of one device. Local memory holds the lanes one behind the other."""

    config: Config
    regions: list[Region] = field(default_factory=list)

    def __post_init__(self) -> None:
        sizes = {"local": self.config.local_bytes, "static": self.config.static_bytes, "L2": self.config.l2_bytes}
        for (name, size), base in zip(sizes.items(), (LOCAL_BASE, STATIC_BASE, L2_BASE), strict=True):
            self.regions.append(Region(name, base, np.zeros(size, np.uint8)))

    def add_ddr(self, base: int, data: Array) -> Region:
        """A piece of DDR. Raises MachineError where it overlaps another, or lies outside of DDR."""
        region = Region("DDR", base, data)
        if base < DDR_BASE or region.end > ADDRESS_END:
            raise MachineError("DDR", f"{base:#x}..{region.end:#x} is outside {DDR_BASE:#x}..{ADDRESS_END:#x}")
        for other in self.regions:
            if base < other.end and other.base < region.end:
                raise MachineError("DDR", f"{base:#x}..{region.end:#x} overlaps {other.base:#x}..{other.end:#x}")
        self.regions = [*self.regions, region]  # another thread may be reading the old list
        return region

    def remove(self, region: Region) -> None:
        """Take a piece of DDR away again."""
        self.regions = [other for other in self.regions if other is not region]

    def read(self, addresses: Array, dtype: np.dtype[np.generic]) -> Array:
        """The elements at byte addresses (any shape). Raises MachineError outside of all memories."""
        data, indices = self._find(addresses, dtype)
        return data[indices]

    def write(self, addresses: Array, values: Array) -> None:
        """Store elements; of several at one address the last one stays."""
        data, indices = self._find(addresses, values.dtype)
        data[indices] = values

    def region_of(self, low: int, end: int) -> Region:
        """The memory that holds bytes low..end. Raises MachineError."""
        for region in self.regions:
            if region.base <= low and end <= region.end:
                return region
        known = ", ".join(f"{r.name} {r.base:#x}..{r.end:#x}" for r in self.regions)
        raise MachineError("memory", f"no memory holds {low:#x}..{end:#x}", f"there are {known}")

    def _find(self, addresses: Array, dtype: np.dtype[np.generic]) -> tuple[Array, Array]:
        """The memory as elements of `dtype`, and indices into it."""
        if not addresses.size:
            return np.empty(0, dtype), addresses.astype(np.int64)
        size = dtype.itemsize
        region = self.region_of(int(addresses.min()), int(addresses.max()) + size)
        offsets = addresses - region.base
        if (rest := offsets & (size - 1)).any():  # sizes are powers of two
            bad = int(addresses.flat[int(np.argmax(rest.ravel() != 0))])
            raise MachineError("memory", f"address {bad:#x} is no multiple of {size}", "align elements to their size")
        whole = region.data[: len(region.data) // size * size].view(dtype)
        return whole, offsets >> (size.bit_length() - 1)
