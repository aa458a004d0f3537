"""The machine's memories as bytes at bus addresses: local memory (all lanes), static memory, L2, and pieces of DDR.

`Knobs` select the checks of a launch, and one behaviour where the machine allows several. Each memory records which
bytes were written, as disjoint ranges in ascending order. The tables in static memory contain coefficients of power
series, and the integers from 0 on. Each table is computed by a formula, and equals the table in the vendor's model byte
for byte.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from threading import Lock

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.sim.steps import BASE, COUNT, LENGTH, STRIDE
from tilewright.targets.bm1684x.config import ADDRESS_END, DDR_BASE, L2_BASE, LOCAL_BASE, STATIC_BASE, Config
from tilewright.targets.bm1684x.values.dtypes import BF16, F16, F32, I32, DType
from tilewright.targets.bm1684x.values.floats import narrow
from tilewright.targets.given import MachineConfig, word

#: The number of terms in the sum for zeta(n).
ZETA_TERMS = 4000
#: The number of integers 0, 1, .. in static memory.
COUNTED = 64
#: Coefficients of the polynomial in the approximation of the error function (Numerical Recipes, erfcc).
ERROR = (
    *(-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806),
    *(0.27886807, -1.13520398, 1.48851587, -0.82215223, 0.17087277),
)

#: For each table in static memory, by name and type: the byte offset, and the number of entries that a program loads.
OFFSETS: Mapping[tuple[str, DType], tuple[int, int]] = {
    ("exp", F32): (1024, 10),
    ("log", F32): (1152, 16),
    ("erf", F32): (1408, 10),
    ("numbers", I32): (1472, COUNTED),
    ("sin", F32): (1728, 32),
    ("cos", F32): (1856, 32),
    ("arcsin", F32): (1984, 32),
    ("tan", F32): (2240, 32),
    ("exp", F16): (2368, 7),
    ("exp", BF16): (2432, 7),
    ("log", F16): (2496, 8),
    ("log", BF16): (2560, 8),
    ("sin", F16): (2624, 16),
    ("sin", BF16): (2688, 16),
    ("cos", F16): (2752, 16),
    ("cos", BF16): (2816, 16),
}
#: For tables with more entries than a program loads: the number of entries in static memory.
STORED: Mapping[tuple[str, DType], int] = {
    ("exp", F32): 32,
    ("log", F32): 64,
    ("arcsin", F32): 64,
    **{(name, dtype): 16 for name in ("exp", "log") for dtype in (F16, BF16)},
}


def stored(name: str, dtype: DType) -> int:
    return STORED.get((name, dtype), OFFSETS[name, dtype][1])


def _turn(k: int) -> float:
    return (2 * math.pi) ** k / math.factorial(k)


def _coefficient(name: str, k: int) -> float:
    if name == "exp":
        return 1 / math.factorial(k)
    if name == "log":  # ln(1 + x)
        return -((-1.0) ** k) / k if k else 0.0
    # The argument's unit is a turn for sin and cos, and a half turn for tan.
    if name == "sin":
        return (-1) ** k * _turn(2 * k + 1)
    if name == "cos":
        return (-1) ** k * _turn(2 * k)
    if name == "arcsin":
        return math.comb(2 * k, k) / 4**k / (2 * k + 1)
    if name == "erf":
        return ERROR[k]
    # tan: its coefficients contain Bernoulli numbers, which follow from the zeta function of even numbers.
    n = 2 * k + 2
    zeta = {2: math.pi**2 / 6, 4: math.pi**4 / 90}.get(n) or sum(i**-n for i in range(ZETA_TERMS, 0, -1))
    return 2 * (4.0 ** (k + 1) - 1) * zeta / math.pi


@cache
def tables() -> Mapping[int, Array]:
    """Return the stored tables by their byte offset in static memory."""
    by_offset = {}
    for (name, dtype), (offset, _) in OFFSETS.items():
        count = stored(name, dtype)
        if dtype is I32:
            by_offset[offset] = np.arange(count, dtype=np.int32)
        else:
            by_offset[offset] = narrow(np.array([_coefficient(name, k) for k in range(count)], np.float32), dtype)
    return by_offset


NONE = np.zeros((0, 2), np.int64)
#: The memories whose contents may be lost between launches.
SCRATCH = ("local", "L2")


@dataclass(frozen=True)
class Knobs(MachineConfig):
    """Options of a launch. A correct program gives the same values with any options.

    - `detect_races`: report commands that share bytes and may run at the same time.
    - `detect_uninitialised`: report reads of memory that neither the host nor a command has written.
    - `out_of_bounds`: an access outside of all memories raises an error (`raise`), or adds a finding (`ignore`). With
      `ignore`, writes are dropped, and every byte is read as 0, or as 0xFF with `uninitialised="nan"`.
    - `uninitialised`: with `kept`, memories keep their contents between launches. With `nan`, new DDR is filled with
      the byte 0xFF, which gives NaN in every float type and -1 in signed integers. Before each launch, local memory and
      L2 are also filled with 0xFF, and count as uninitialised.
    - `dma_execution`: a transfer runs when it is called (`eager`), or as late as possible (`deferred`).
    - `seed`: the seed of a random legal order for the commands of a parallel region (None: the order of the calls).
    - `bank_conflicts`: add a model of bank conflicts, which was never measured, to the times (`timing/estimate.py`).

    Raises ConfigError for any other value.
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
        """Whether the contents of local memory and L2 are undefined when a launch begins."""
        return self.uninitialised == "nan"

    @property
    def defers(self) -> bool:
        return self.dma_execution == "deferred"

    @property
    def fill(self) -> int:
        return 0xFF if self.forgets else 0


class Ranges:
    """Disjoint ranges of bytes, as offsets in a memory.

    Objects are thread-safe. `array` is int64 [ranges, 2]: for each range, its first byte, and one past its last byte.
    """

    def __init__(self, *ranges: tuple[int, int]) -> None:
        self._lock = Lock()
        self.array = merged(np.array(ranges, np.int64).reshape(-1, 2))

    def add(self, ranges: Array) -> None:
        """Add the bytes [low, high) for each row (low, high) of `ranges`, int64 [ranges, 2]."""
        with self._lock:
            self.array = merged(np.concatenate([self.array, ranges]))

    def part(self, low: int, high: int) -> Array:
        clipped = self.array.clip(low, high) - low
        return clipped[clipped[:, 0] < clipped[:, 1]]

    def replace(self, low: int, ranges: Array, high: int) -> None:
        """Replace the contents of [low, high) by `ranges`, whose offsets are relative to `low`."""
        with self._lock:
            # The bytes below `low` and from `high` on stay as they are. Clipping cuts a range at the edge, or makes it
            # empty, and `merged` drops empty ranges.
            before, after = self.array.clip(None, low), self.array.clip(high, None)
            self.array = merged(np.concatenate([before, ranges + low, after]))


def merged(ranges: Array) -> Array:
    """Merge `ranges` into the fewest possible ranges, in ascending order. Empty ranges are dropped."""
    ranges = ranges[ranges[:, 0] < ranges[:, 1]]
    if not len(ranges):
        return NONE
    # A new merged range starts where a range begins after the end of all earlier ranges.
    ranges = ranges[np.argsort(ranges[:, 0], kind="stable")]
    reached = np.maximum.accumulate(ranges[:, 1])
    first = np.flatnonzero(np.concatenate([[True], ranges[1:, 0] > reached[:-1]]))
    return np.stack([ranges[first, 0], np.maximum.reduceat(ranges[:, 1], first)], axis=1)


def of_rows(rows: Array) -> Array:
    """Convert footprint rows (sim.steps.Footprints) to byte ranges: int64 [ranges, 2], begin and end."""
    count = rows[:, COUNT].clip(0)
    row = np.repeat(np.arange(len(rows)), count)
    part = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    low = rows[row, BASE] + part * rows[row, STRIDE]
    return np.stack([low, low + rows[row, LENGTH]], axis=1)


def of_addresses(addresses: Array, size: int) -> Array:
    """Return the byte ranges (int64 [ranges, 2]) of elements of `size` bytes. Adjacent elements are merged."""
    low = addresses.reshape(-1)
    first = np.flatnonzero(np.diff(low, prepend=low[:1] - 2 * size) != size)
    last = np.append(first[1:], len(low)) - 1
    return np.stack([low[first], low[last] + size], axis=1)


@dataclass(frozen=True, eq=False)
class Region:
    """One memory: its bytes (uint8) from the bus address `base` on, and the ranges of bytes that were written."""

    name: str
    base: int
    data: Array
    written: Ranges = field(default_factory=Ranges)

    @property
    def end(self) -> int:
        return self.base + len(self.data)


@dataclass(eq=False)
class Memories:
    """All memories of one device. Local memory contains one lane after the other."""

    config: Config
    knobs: Knobs = Knobs()
    regions: list[Region] = field(default_factory=list)

    def __post_init__(self) -> None:
        sizes = {"local": self.config.local_bytes, "static": self.config.static_bytes, "L2": self.config.l2_bytes}
        for (name, size), base in zip(sizes.items(), (LOCAL_BASE, STATIC_BASE, L2_BASE), strict=True):
            written = Ranges((0, size)) if name == "static" else Ranges()  # some tables are unknown
            self.regions.append(Region(name, base, np.zeros(size, np.uint8), written))
        for offset, values in tables().items():
            self.fill(STATIC_BASE + offset + np.arange(len(values), dtype=np.int64) * values.itemsize, values)

    def forget(self) -> None:
        """Before a launch, fill local memory and L2 with bytes of 0xFF if the knob `uninitialised` is `nan`."""
        for region in self.regions:
            if self.knobs.forgets and region.name in SCRATCH:
                region.data[:] = self.knobs.fill

    def new_ddr(self, base: int, size: int) -> Region:
        """Add an uninitialised piece of DDR and return it.

        Raises MachineError if the piece overlaps another one or lies outside of DDR, MemoryError if the host has no
        memory left.
        """
        data = np.full(size, self.knobs.fill, np.uint8) if self.knobs.fill else np.zeros(size, np.uint8)
        region = Region("DDR", base, data)
        if base < DDR_BASE or region.end > ADDRESS_END:
            raise MachineError("DDR", f"{base:#x}..{region.end:#x} is outside {DDR_BASE:#x}..{ADDRESS_END:#x}")
        for existing in self.regions:
            if base < existing.end and existing.base < region.end:
                raise MachineError("DDR", f"{base:#x}..{region.end:#x} overlaps {existing.base:#x}..{existing.end:#x}")
        self.regions = [*self.regions, region]  # another thread may be reading the old list
        return region

    def remove(self, region: Region) -> None:
        self.regions = [kept for kept in self.regions if kept is not region]

    def read(self, addresses: Array, dtype: np.dtype[np.generic]) -> Array:
        """Return the elements at bus addresses, as an array of the shape of `addresses`.

        Raises MachineError if the elements do not lie in one memory, unless the knob `out_of_bounds` is `ignore`.
        """
        inside = self.inside(addresses, dtype.itemsize) if self.knobs.ignores_bounds else None
        if inside is not None and not inside.all():
            values = np.full(addresses.size * dtype.itemsize, self.knobs.fill, np.uint8).view(dtype)
            values = values.reshape(addresses.shape)
            values[inside] = self.read(addresses[inside], dtype)
            return values
        data, indices = self._find(addresses, dtype)
        return data[indices]

    def fill(self, addresses: Array, values: Array) -> None:
        """Write `values` as a host does: their bytes become initialised. Raises MachineError as `write` does."""
        self.write(addresses, values)
        if addresses.size:
            region = self.region_of(int(addresses.min()), int(addresses.max()) + values.dtype.itemsize)
            region.written.add(of_addresses(addresses, values.dtype.itemsize) - region.base)

    def write(self, addresses: Array, values: Array) -> None:
        """Write `values` to bus addresses, as a command does. If addresses are equal, the last value remains.

        Raises MachineError if the addresses do not lie in one memory, unless the knob `out_of_bounds` is `ignore`.
        """
        if self.knobs.ignores_bounds:
            inside = self.inside(addresses, values.dtype.itemsize)
            addresses = addresses[inside]
            values = values[inside]
        data, indices = self._find(addresses, values.dtype)
        data[indices] = values

    def inside(self, addresses: Array, size: int) -> Array:
        """Return a mask of the elements (`size` bytes each) that lie in the same memory as the first element."""
        first = int(addresses.flat[0]) if addresses.size else 0
        for region in self.regions:
            if region.base <= first < region.end:
                return (addresses >= region.base) & (addresses + size <= region.end)
        return np.zeros(addresses.shape, np.bool_)

    def region_of(self, low: int, end: int) -> Region:
        """Return the memory that contains the bytes [low, end). Raises MachineError if there is no such memory."""
        for region in self.regions:
            if region.base <= low and end <= region.end:
                return region
        listed = ", ".join(f"{r.name} {r.base:#x}..{r.end:#x}" for r in self.regions)
        raise MachineError("memory", f"no memory holds {low:#x}..{end:#x}", f"the memories are {listed}")

    def _find(self, addresses: Array, dtype: np.dtype[np.generic]) -> tuple[Array, Array]:
        if not addresses.size:
            return np.empty(0, dtype), addresses.astype(np.int64)
        size = dtype.itemsize
        region = self.region_of(int(addresses.min()), int(addresses.max()) + size)
        offsets = addresses - region.base
        if (rest := offsets & (size - 1)).any():  # sizes are powers of two
            bad = int(addresses.flat[int(np.argmax(rest.ravel() != 0))])
            raise MachineError("memory", f"address {bad:#x} is not a multiple of {size}", f"give a multiple of {size}")
        whole = region.data[: len(region.data) // size * size].view(dtype)
        return whole, offsets >> (size.bit_length() - 1)
