"""The events of a launch that cost energy: arithmetic, accesses to on-chip memories, DRAM transfers, instructions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from tilewright.array import Array

#: The kinds of arithmetic steps in operations. A comparison selects the smaller or larger operand.
KINDS = ("add", "multiply", "shift", "compare", "float_add", "float_multiply", "instruction")
#: The counts of Events that `total` adds up.
COUNTS = ("read_bytes", "write_bytes", "instructions", "cycles")


class Part(NamedTuple):
    """One arithmetic step of an operation: its kind (one of KINDS), and the width of its operands in bits.

    The energy of a product grows with width * width. If its two operands have different widths, `bits` is therefore
    the geometric mean of the widths.
    """

    kind: str
    bits: float


@dataclass(frozen=True)
class Work:
    """An operation that is executed `count` times, each time on single values. `parts` are its arithmetic steps."""

    name: str
    count: int
    parts: tuple[Part, ...]


class Access(NamedTuple):
    """The accesses to one on-chip memory of `capacity` bytes. Each access reads or writes `bits` bits."""

    memory: str
    capacity: int
    bits: int
    reads: int
    writes: int


class Bursts(NamedTuple):
    """A sequence of DRAM transfers, for `samples` samples.

    `moved` is int64 [n, 2]: the address of a transfer's first byte, and the number of bytes.
    """

    moved: Array
    samples: int = 1


@dataclass(frozen=True, eq=False)
class Events:
    """The events of launches, for one sample."""

    #: Multiply-accumulates by operand width; all other arithmetic is in `operations`.
    macs: tuple[Work, ...] = ()
    operations: tuple[Work, ...] = ()
    accesses: tuple[Access, ...] = ()
    #: Bytes of DRAM, fetched instructions included.
    read_bytes: int = 0
    write_bytes: int = 0
    #: Before each sequence of transfers, all DRAM rows are closed.
    bursts: tuple[Bursts, ...] = ()
    instructions: int = 0
    cycles: int = 0  # 0: the launch was not timed
    #: The names of events that are not counted, with the reasons.
    missing: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def total(cls, launches: Iterable[Events]) -> Events:
        parts = tuple(launches)
        return cls(
            _work_by_operation(work for launch in parts for work in launch.macs),
            _work_by_operation(work for launch in parts for work in launch.operations),
            _accesses_by_memory(access for launch in parts for access in launch.accesses),
            bursts=tuple(bursts for launch in parts for bursts in launch.bursts),
            missing={name: reason for launch in parts for name, reason in launch.missing.items()},
            **{name: sum(getattr(launch, name) for launch in parts) for name in COUNTS},
        )

    def per_sample(self, samples: int) -> Events:
        """Return the events of one of `samples` samples: the counts divided by `samples`, rounded up."""

        def share(count: int) -> int:
            return -(-count // samples)

        counts: dict[str, Any] = {name: share(getattr(self, name)) for name in COUNTS}
        return replace(
            self,
            macs=tuple(replace(work, count=share(work.count)) for work in self.macs),
            operations=tuple(replace(work, count=share(work.count)) for work in self.operations),
            accesses=tuple(
                access._replace(reads=share(access.reads), writes=share(access.writes)) for access in self.accesses
            ),
            bursts=tuple(Bursts(moved, of * samples) for moved, of in self.bursts),
            **counts,
        )

    def activations(self, row_bytes: int, banks: int) -> int:
        return sum(-(-activations(moved, row_bytes, banks) // samples) for moved, samples in self.bursts)

    def to_json(self, row_bytes: int, banks: int) -> dict[str, Any]:
        """Return the counts by name, with the row activations of a DRAM that keeps `banks` rows of `row_bytes` open.

        Row activations are None if the addresses of the transfers are not known.
        """
        return {
            "macs": {work.name: work.count for work in self.macs},
            "operations": {work.name: work.count for work in self.operations},
            "sram": [access._asdict() for access in self.accesses],
            "dram_read_bytes": self.read_bytes,
            "dram_write_bytes": self.write_bytes,
            "row_activations": self.activations(row_bytes, banks) if self.bursts else None,
            "row_bytes": row_bytes,
            "instructions": self.instructions,
            "cycles": self.cycles,
            "missing": dict(self.missing),
        }


def activations(bursts: Array, row_bytes: int, banks: int) -> int:
    """Return the number of row activations in a DRAM for `bursts`, int64 [n, 2]: address and number of bytes.

    Neighbouring rows lie in different banks. Each bank keeps its last used row open; initially, all rows are closed.
    """
    live = bursts[bursts[:, 1] > 0]
    if not len(live):
        return 0
    first = live[:, 0] // row_bytes
    count = (live[:, 0] + live[:, 1] - 1) // row_bytes - first + 1
    before = np.cumsum(count) - count
    rows = np.repeat(first - before, count) + np.arange(int(count.sum()))
    # Group the rows by bank; the rows of a bank stay in the order of time. A bank opens each row that differs from the
    # row before it. This includes the first row of a bank, because the row before it lies in another bank.
    by_bank = rows[np.argsort(rows % banks, kind="stable")]
    return 1 + int(np.count_nonzero(by_bank[1:] != by_bank[:-1]))


def rows_of(address: Array, rows: Array, row_bytes: Array, stride: Array) -> Array:
    """Return the bursts of 2-D transfers, int64 [n, 2]: one for each row, or one for a whole transfer without gaps.

    Transfer i moves `rows[i]` rows of `row_bytes[i]` bytes. The first row is at byte `address[i]`, and each later row
    is `stride[i]` bytes after the previous row.
    """
    gapless = stride == row_bytes
    count = np.where(gapless, np.minimum(rows, 1), rows)
    size = np.where(gapless, rows * row_bytes, row_bytes)
    before = np.cumsum(count) - count
    nth = np.arange(int(count.sum())) - np.repeat(before, count)
    return np.stack([np.repeat(address, count) + nth * np.repeat(stride, count), np.repeat(size, count)], axis=1)


def _work_by_operation(works: Iterable[Work]) -> tuple[Work, ...]:
    total = Counter[str]()
    parts = dict[str, tuple[Part, ...]]()
    for work in works:
        total[work.name] += work.count
        parts[work.name] = work.parts
    return tuple(Work(name, count, parts[name]) for name, count in total.items())


def _accesses_by_memory(accesses: Iterable[Access]) -> tuple[Access, ...]:
    totals: dict[tuple[str, int, int], Sequence[int]] = {}
    for memory, capacity, bits, *counts in accesses:
        before = totals.get((memory, capacity, bits), (0, 0))
        totals[memory, capacity, bits] = [a + b for a, b in zip(before, counts, strict=True)]
    return tuple(Access(*key, *counts) for key, counts in totals.items())
