"""The machine's memories as bytes at bus addresses: local (all lanes), static, L2, and DDR in pieces."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.targets.bm1684x.config import ADDRESS_END, DDR_BASE, L2_BASE, LOCAL_BASE, STATIC_BASE, Config
from tilewright.targets.bm1684x.values.knobs import Knobs
from tilewright.targets.bm1684x.values.ranges import Ranges, of_addresses

#: Memories whose contents a program must not expect to find.
SCRATCH = ("local", "L2")


@dataclass(frozen=True, eq=False)
class Region:
    """Bytes (uint8) from a bus address on, and which of them the host or a command has written."""

    name: str
    base: int
    data: Array
    written: Ranges = field(default_factory=Ranges)

    @property
    def end(self) -> int:
        return self.base + len(self.data)


@dataclass(eq=False)
class Memories:
    """All memories of one device. Local memory holds the lanes one behind the other."""

    config: Config
    knobs: Knobs = Knobs()
    regions: list[Region] = field(default_factory=list)

    def __post_init__(self) -> None:
        sizes = {"local": self.config.local_bytes, "static": self.config.static_bytes, "L2": self.config.l2_bytes}
        for (name, size), base in zip(sizes.items(), (LOCAL_BASE, STATIC_BASE, L2_BASE), strict=True):
            known = Ranges((0, size)) if name == "static" else Ranges()  # tables of which some contents are not known
            self.regions.append(Region(name, base, np.zeros(size, np.uint8), known))

    def forget(self) -> None:
        """Before a launch: what is in local memory and L2 is undefined, if the knobs say so."""
        for region in self.regions:
            if self.knobs.forgets and region.name in SCRATCH:
                region.data[:] = self.knobs.fill

    def new_ddr(self, base: int, size: int) -> Region:
        """A piece of DDR that nobody wrote yet. Raises MachineError, MemoryError."""
        data = np.full(size, self.knobs.fill, np.uint8) if self.knobs.fill else np.zeros(size, np.uint8)
        return self._add(Region("DDR", base, data))

    def add_ddr(self, base: int, data: Array) -> Region:
        """A piece of DDR that the host wrote. Raises MachineError where it overlaps another, or lies outside of DDR."""
        return self._add(Region("DDR", base, data, Ranges((0, len(data)))))

    def _add(self, region: Region) -> Region:
        base = region.base
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
        inside = self.inside(addresses, dtype.itemsize) if self.knobs.ignores_bounds else None
        if inside is not None and not inside.all():
            values = np.full(addresses.shape, self.knobs.fill * 0x01010101_01010101, "<u8").astype(
                f"<u{dtype.itemsize}"
            )
            values = values.view(dtype)
            values[inside] = self.read(addresses[inside], dtype)
            return values
        data, indices = self._find(addresses, dtype)
        return data[indices]

    def fill(self, addresses: Array, values: Array) -> None:
        """Write elements from the host, so that commands may read them."""
        self.write(addresses, values)
        if addresses.size:
            region = self.region_of(int(addresses.min()), int(addresses.max()) + values.dtype.itemsize)
            region.written.add(of_addresses(addresses, values.dtype.itemsize) - region.base)

    def write(self, addresses: Array, values: Array) -> None:
        """Store elements as a command does; of several at one address the last one stays."""
        if self.knobs.ignores_bounds:
            inside = self.inside(addresses, values.dtype.itemsize)
            addresses, values = addresses[inside], values[inside]
        data, indices = self._find(addresses, values.dtype)
        data[indices] = values

    def inside(self, addresses: Array, size: int) -> Array:
        """Which elements of `size` bytes lie in the memory that holds the first one (bool); none where none does."""
        first = int(addresses.flat[0]) if addresses.size else 0
        for region in self.regions:
            if region.base <= first < region.end:
                found: Array = (addresses >= region.base) & (addresses + size <= region.end)
                return found
        return np.zeros(addresses.shape, np.bool_)

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
