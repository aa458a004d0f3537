"""The machine's memories as bytes at bus addresses: local memory (all lanes), static memory, L2, and pieces of DDR.

`Knobs` select the checks of a launch, and a behaviour where the machine allows several. Each memory keeps the bytes
that were written, as disjoint ranges in ascending order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Lock

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.sim.steps import BASE, COUNT, LENGTH, STRIDE
from tilewright.targets.bm1684x.config import ADDRESS_END, DDR_BASE, L2_BASE, LOCAL_BASE, STATIC_BASE, Config
from tilewright.targets.bm1684x.values.dtypes import BF16, F16, F32
from tilewright.targets.bm1684x.values.elementwise import series
from tilewright.targets.bm1684x.values.floats import narrow
from tilewright.targets.given import MachineConfig, word

NONE = np.zeros((0, 2), np.int64)
#: Byte offsets of the exponential's series in static memory, as compiled programs use them. Other tables are unknown.
EXPONENTIAL = {F32: 1024, F16: 2368, BF16: 2432}
#: Memories whose contents a program must not expect to survive from one launch to the next.
SCRATCH = ("local", "L2")


@dataclass(frozen=True)
class Knobs(MachineConfig):
    """Options of a launch. A correct program gives the same values under all of them.

    `detect_races`: report commands that share bytes and may run at the same time.
    `detect_uninitialised`: report reads of memory that neither the host nor a command has written.
    `out_of_bounds`: `raise` an error at an access outside of all memories; or `ignore` it: report a finding, drop
    writes, and read the bytes that `uninitialised` sets.
    `uninitialised`: memories are `kept` as they are; or, with `nan`, all bits of new DDR, and before each launch those
    of local memory and L2, are set to 1 (NaN in every float type, -1 in signed integers), and the contents that
    earlier launches left in local memory and L2 count as never written.
    `dma_execution`: `eager` runs a transfer when it is called; `deferred` runs it as late as is allowed.
    `seed`: run the commands of a parallel region in a random legal order; None: in the order of the calls.
    `bank_conflicts`: add a model of bank conflicts to the times (`timing/estimate.py`); the model was never measured.
    Raises ConfigError for any other choice.
    """

    where = "knobs"

    detect_races: bool = True
    detect_uninitialised: bool = True
    out_of_bounds: str = word("raise", "raise", "ignore")
    uninitialised: str = word("kept", "kept", "nan")
    dma_execution: str = word("eager", "eager", "deferred")
    seed: int | None = None
    bank_conflicts: bool = False

    @property
    def ignores_bounds(self) -> bool:
        return self.out_of_bounds == "ignore"

    @property
    def forgets(self) -> bool:
        """Whether local memory and L2 are undefined when a launch begins."""
        return self.uninitialised == "nan"

    @property
    def defers(self) -> bool:
        return self.dma_execution == "deferred"

    @property
    def fill(self) -> int:
        """The value of each uninitialised byte."""
        return 0xFF if self.forgets else 0


class Ranges:
    """Ranges of bytes, counted from the start of a memory: `array` is int64 [k, 2] (low, high). Safe for threads."""

    def __init__(self, *ranges: tuple[int, int]) -> None:
        self._lock = Lock()
        self.array = merged(np.array(ranges, np.int64).reshape(-1, 2))

    def add(self, ranges: Array) -> None:
        """Add the bytes [low, high) of each row of `ranges`, int64 [k, 2]."""
        with self._lock:
            self.array = merged(np.concatenate([self.array, ranges]))

    def part(self, low: int, high: int) -> Array:
        """Return the ranges within [low, high), counted from low."""
        clipped = self.array.clip(low, high) - low
        return clipped[clipped[:, 0] < clipped[:, 1]]

    def replace(self, low: int, ranges: Array, high: int) -> None:
        """Replace all ranges within [low, high) by `ranges`, which are counted from low."""
        with self._lock:
            before, after = self.array.clip(None, low), self.array.clip(high, None)
            self.array = merged(np.concatenate([before, ranges + low, after]))


def merged(ranges: Array) -> Array:
    """Return the same bytes as the fewest ranges in ascending order, without empty ranges."""
    ranges = ranges[ranges[:, 0] < ranges[:, 1]]
    if not len(ranges):
        return NONE
    ranges = ranges[np.argsort(ranges[:, 0], kind="stable")]
    reached = np.maximum.accumulate(ranges[:, 1])
    first = np.flatnonzero(np.concatenate([[True], ranges[1:, 0] > reached[:-1]]))
    return np.stack([ranges[first, 0], np.maximum.reduceat(ranges[:, 1], first)], axis=1)


def of_rows(rows: Array) -> Array:
    """Return the elements of footprint rows (sim.steps.Footprints) as ranges, int64 [k, 2]."""
    count = rows[:, COUNT].clip(0)
    row = np.repeat(np.arange(len(rows)), count)
    part = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    low = rows[row, BASE] + part * rows[row, STRIDE]
    return np.stack([low, low + rows[row, LENGTH]], axis=1)


def of_addresses(addresses: Array, size: int) -> Array:
    """Return elements of `size` bytes as ranges, int64 [k, 2]; elements that follow each other share one."""
    low = addresses.reshape(-1)
    first = np.flatnonzero(np.diff(low, prepend=low[:1] - 2 * size) != size)
    last = np.append(first[1:], len(low)) - 1
    return np.stack([low[first], low[last] + size], axis=1)


@dataclass(frozen=True, eq=False)
class Region:
    """One memory: its bytes (uint8) from the bus address `base` on, and the ranges that were written."""

    name: str
    base: int
    data: Array
    written: Ranges = field(default_factory=Ranges)

    @property
    def end(self) -> int:
        return self.base + len(self.data)


@dataclass(eq=False)
class Memories:
    """All memories of one device. Local memory holds the lanes one after the other."""

    config: Config
    knobs: Knobs = Knobs()
    regions: list[Region] = field(default_factory=list)

    def __post_init__(self) -> None:
        sizes = {"local": self.config.local_bytes, "static": self.config.static_bytes, "L2": self.config.l2_bytes}
        for (name, size), base in zip(sizes.items(), (LOCAL_BASE, STATIC_BASE, L2_BASE), strict=True):
            known = Ranges((0, size)) if name == "static" else Ranges()  # holds tables, some of unknown contents
            self.regions.append(Region(name, base, np.zeros(size, np.uint8), known))
        for dtype, offset in EXPONENTIAL.items():
            values = narrow(series(dtype), dtype)
            self.fill(STATIC_BASE + offset + np.arange(len(values), dtype=np.int64) * dtype.bytes, values)

    def forget(self) -> None:
        """Make local memory and L2 undefined before a launch, if the knobs say so."""
        for region in self.regions:
            if self.knobs.forgets and region.name in SCRATCH:
                region.data[:] = self.knobs.fill

    def new_ddr(self, base: int, size: int) -> Region:
        """Add an uninitialised piece of DDR and return it.

        Raises MachineError if it overlaps another piece or lies outside of DDR; MemoryError if the host has no room.
        """
        data = np.full(size, self.knobs.fill, np.uint8) if self.knobs.fill else np.zeros(size, np.uint8)
        region = Region("DDR", base, data)
        if base < DDR_BASE or region.end > ADDRESS_END:
            raise MachineError("DDR", f"{base:#x}..{region.end:#x} is outside {DDR_BASE:#x}..{ADDRESS_END:#x}")
        for other in self.regions:
            if base < other.end and other.base < region.end:
                raise MachineError("DDR", f"{base:#x}..{region.end:#x} overlaps {other.base:#x}..{other.end:#x}")
        self.regions = [*self.regions, region]  # another thread may be reading the old list
        return region

    def remove(self, region: Region) -> None:
        """Remove a piece of DDR."""
        self.regions = [other for other in self.regions if other is not region]

    def read(self, addresses: Array, dtype: np.dtype[np.generic]) -> Array:
        """Return the elements at bus addresses (any shape). Raises MachineError outside of all memories."""
        inside = self.inside(addresses, dtype.itemsize) if self.knobs.ignores_bounds else None
        if inside is not None and not inside.all():
            values = np.full(addresses.size * dtype.itemsize, self.knobs.fill, np.uint8).view(dtype)
            values = values.reshape(addresses.shape)
            values[inside] = self.read(addresses[inside], dtype)
            return values
        data, indices = self._find(addresses, dtype)
        return data[indices]

    def fill(self, addresses: Array, values: Array) -> None:
        """Write elements from the host, and mark them as initialised. Raises MachineError outside of all memories."""
        self.write(addresses, values)
        if addresses.size:
            region = self.region_of(int(addresses.min()), int(addresses.max()) + values.dtype.itemsize)
            region.written.add(of_addresses(addresses, values.dtype.itemsize) - region.base)

    def write(self, addresses: Array, values: Array) -> None:
        """Store elements as a command does; the last one at an address stays. Raises MachineError as `read` does."""
        if self.knobs.ignores_bounds:
            inside = self.inside(addresses, values.dtype.itemsize)
            addresses, values = addresses[inside], values[inside]
        data, indices = self._find(addresses, values.dtype)
        data[indices] = values

    def inside(self, addresses: Array, size: int) -> Array:
        """Return a mask of the elements of `size` bytes that lie in the same memory as the first one."""
        first = int(addresses.flat[0]) if addresses.size else 0
        for region in self.regions:
            if region.base <= first < region.end:
                return (addresses >= region.base) & (addresses + size <= region.end)
        return np.zeros(addresses.shape, np.bool_)

    def region_of(self, low: int, end: int) -> Region:
        """Return the memory that holds bytes [low, end). Raises MachineError if there is none."""
        for region in self.regions:
            if region.base <= low and end <= region.end:
                return region
        known = ", ".join(f"{r.name} {r.base:#x}..{r.end:#x}" for r in self.regions)
        raise MachineError("memory", f"no memory holds {low:#x}..{end:#x}", f"there are {known}")

    def _find(self, addresses: Array, dtype: np.dtype[np.generic]) -> tuple[Array, Array]:
        """Return the memory that holds the addresses, as an array of `dtype`, and indices into it."""
        if not addresses.size:
            return np.empty(0, dtype), addresses.astype(np.int64)
        size = dtype.itemsize
        region = self.region_of(int(addresses.min()), int(addresses.max()) + size)
        offsets = addresses - region.base
        if (rest := offsets & (size - 1)).any():  # sizes are powers of two
            bad = int(addresses.flat[int(np.argmax(rest.ravel() != 0))])
            raise MachineError("memory", f"address {bad:#x} is not a multiple of {size}", "align elements to that")
        whole = region.data[: len(region.data) // size * size].view(dtype)
        return whole, offsets >> (size.bit_length() - 1)
