"""The machine's memories as bytes at bus addresses: local (all lanes), static, L2, and DDR in pieces.

`Knobs` are what a launch checks, and which of the behaviours that the machine leaves open it shows. Of each memory, the
bytes that something has written are known, as disjoint ranges in ascending order.
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
#: Byte offsets of the exponential's series in static memory, seen in compiled programs. Other tables are not known.
EXPONENTIAL = {F32: 1024, F16: 2368, BF16: 2432}
#: Memories whose contents a program must not expect to find.
SCRATCH = ("local", "L2")


@dataclass(frozen=True)
class Knobs(MachineConfig):
    """A program without defects gives the same values under all of them. Raises ConfigError for another choice.

    `detect_races`: look for commands of a region that share bytes.
    `detect_uninitialised`: look for reads of memory that neither the host nor a command has written.
    `out_of_bounds`: an access outside of all memories raises; or it reads what `uninitialised` says, writes nothing,
    and is a finding.
    `uninitialised`: memories keep what was in them; or all bits of local memory, L2 and new DDR are 1 (NaN in every
    float type, -1 in integers), before each launch, and what earlier launches left in local memory or L2 counts as
    never written.
    `dma_execution`: commands run when they are called; or transfers run as late as they may.
    `seed`: the commands of a region run in a random order that the machine may choose too; None: as called.
    `bank_conflicts`: times are with a model of bank conflicts (`timing/estimate.py`), which nobody measured.
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
        """Whether memories hold nothing defined when a launch begins."""
        return self.uninitialised == "nan"

    @property
    def defers(self) -> bool:
        return self.dma_execution == "deferred"

    @property
    def fill(self) -> int:
        """Each byte of memory that nobody wrote."""
        return 0xFF if self.forgets else 0


class Ranges:
    """Bytes from the beginning of a memory, `array` int64 [k, 2] (low, high); several threads may add some."""

    def __init__(self, *ranges: tuple[int, int]) -> None:
        self._lock = Lock()
        self.array = merged(np.array(ranges, np.int64).reshape(-1, 2))

    def add(self, ranges: Array) -> None:
        """Bytes low..high - 1 of each row of int64 [k, 2]."""
        with self._lock:
            self.array = merged(np.concatenate([self.array, ranges]))

    def part(self, low: int, high: int) -> Array:
        """Those within low..high, counted from low."""
        clipped = self.array.clip(low, high) - low
        return clipped[clipped[:, 0] < clipped[:, 1]]

    def replace(self, low: int, ranges: Array, high: int) -> None:
        """In low..high exactly `ranges`, which are counted from low."""
        with self._lock:
            before, after = self.array.clip(None, low), self.array.clip(high, None)
            self.array = merged(np.concatenate([before, ranges + low, after]))


def merged(ranges: Array) -> Array:
    """The same bytes as few ranges, ascending; empty ones left out."""
    ranges = ranges[ranges[:, 0] < ranges[:, 1]]
    if not len(ranges):
        return NONE
    ranges = ranges[np.argsort(ranges[:, 0], kind="stable")]
    reached = np.maximum.accumulate(ranges[:, 1])
    first = np.flatnonzero(np.concatenate([[True], ranges[1:, 0] > reached[:-1]]))
    return np.stack([ranges[first, 0], np.maximum.reduceat(ranges[:, 1], first)], axis=1)


def of_rows(rows: Array) -> Array:
    """The elements of footprint rows (sim.steps.Footprints) as int64 [k, 2]."""
    count = rows[:, COUNT].clip(0)
    row = np.repeat(np.arange(len(rows)), count)
    part = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    low = rows[row, BASE] + part * rows[row, STRIDE]
    return np.stack([low, low + rows[row, LENGTH]], axis=1)


def of_addresses(addresses: Array, size: int) -> Array:
    """Elements of `size` bytes as int64 [k, 2]."""
    low = addresses.reshape(-1)
    first = np.flatnonzero(np.diff(low, prepend=low[:1] - 2 * size) != size)
    last = np.append(first[1:], len(low)) - 1
    return np.stack([low[first], low[last] + size], axis=1)


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
        for dtype, offset in EXPONENTIAL.items():
            values = narrow(series(dtype), dtype)
            self.fill(STATIC_BASE + offset + np.arange(len(values), dtype=np.int64) * dtype.bytes, values)

    def forget(self) -> None:
        """Before a launch: what is in local memory and L2 is undefined, if the knobs say so."""
        for region in self.regions:
            if self.knobs.forgets and region.name in SCRATCH:
                region.data[:] = self.knobs.fill

    def new_ddr(self, base: int, size: int) -> Region:
        """A piece of DDR that nobody wrote yet. Raises MachineError where it overlaps another, or lies outside of DDR,
        and MemoryError.
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
        """Take a piece of DDR away again."""
        self.regions = [other for other in self.regions if other is not region]

    def read(self, addresses: Array, dtype: np.dtype[np.generic]) -> Array:
        """The elements at byte addresses (any shape). Raises MachineError outside of all memories."""
        inside = self.inside(addresses, dtype.itemsize) if self.knobs.ignores_bounds else None
        if inside is not None and not inside.all():
            values = np.full(addresses.size * dtype.itemsize, self.knobs.fill, np.uint8).view(dtype)
            values = values.reshape(addresses.shape)
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
                return (addresses >= region.base) & (addresses + size <= region.end)
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
