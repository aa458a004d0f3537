"""The step table, which is the input of the order, hazard and time passes; and the trace of a launch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tilewright.array import Array, among
from tilewright.sim.causes import CAUSE_OF, CAUSE_TOKEN, LATENCY, NAMES, TRANSFER, WORK, Path
from tilewright.sim.chart import Chart
from tilewright.sim.figures import Figures, by_size, with_rest

READ, WRITE = 1, 2
#: Flag added to a mode: the row is an upper bound, so the step may not touch all of its elements.
PARTLY = 4
#: Special values of a step index.
NO_STEP = -1  # there is nothing to wait for
NEVER = -2  # the wait never ends, because the program has no such step
#: Columns of a footprint row.
SPACE, MODE, BASE, LENGTH, COUNT, STRIDE = range(6)


@dataclass(frozen=True)
class TokenQueue:
    """A FIFO of dependency tokens between two units (indices into StepTable.units)."""

    name: str
    producer: int
    consumer: int
    depth: int


@dataclass(frozen=True)
class Space:
    """A memory for the checker, with `size` elements. The ranges [low, high) in `initialised` are set before the run.

    `scratchpad` is the name of the on-chip memory that this space models, in whole or in part. The name is "" for DRAM,
    and for a space that only helps the checker. If `decides` is true, the values of the elements decide which elements
    of other memories a step touches (micro-ops, for example).
    """

    name: str
    size: int
    initialised: tuple[tuple[int, int], ...] = ()
    scratchpad: str = ""
    decides: bool = False


@dataclass(frozen=True, eq=False)
class Footprints:
    """The memory elements that steps touch, as rows. Several steps may share one footprint.

    `rows` is int64 [r, 6]: space, mode (READ, WRITE or both), base, length, count, stride. A row consists of the
    elements `base + k * stride + j` for k < count and j < length. Footprint f is `rows[start[f]:start[f + 1]]`.
    If `exact` is given, a row may be an upper bound (PARTLY): the step certainly touches only its lowest and highest
    element. `exact(f)` computes the exact rows of footprint f. Most checks do not need the exact rows.
    """

    rows: Array
    start: Array
    exact: Callable[[int], Array] | None = None

    @classmethod
    def of(cls, footprints: Sequence[Array]) -> Footprints:
        """Return a Footprints object for these footprints, each of which is an array of rows (int64 [r, 6])."""
        counts = np.array([len(rows) for rows in footprints], np.int64)
        rows = np.concatenate(footprints) if len(footprints) else np.zeros((0, 6), np.int64)
        return cls(np.ascontiguousarray(rows, np.int64), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))

    def __len__(self) -> int:
        return len(self.start) - 1

    def __repr__(self) -> str:
        return f"<Footprints: {len(self):,}, of {len(self.rows):,} rows>"

    def extended(self, footprints: Sequence[Array]) -> Footprints:
        """Append further footprints. Their rows must be exact."""
        more = Footprints.of(footprints)
        start = np.concatenate([self.start, self.start[-1] + more.start[1:]])
        rows = np.concatenate([self.rows, more.rows])
        return Footprints(rows, start, lambda f: self.of_step(f) if f < len(self) else more.of_step(f - len(self)))

    def of_step(self, footprint: int) -> Array:
        if self.exact is not None:
            return self.exact(footprint)
        return self.rows[self.start[footprint] : self.start[footprint + 1]]

    def owner(self) -> Array:
        return np.repeat(np.arange(len(self)), np.diff(self.start))

    @cached_property
    def live(self) -> Array:
        return live(self.rows)

    @cached_property
    def end(self) -> Array:
        return end_of(self.rows)


def live(rows: Array) -> Array:
    return (rows[:, LENGTH] > 0) & (rows[:, COUNT] > 0)


def end_of(rows: Array) -> Array:
    """Return 1 + the highest element of each footprint row, int64 [r]. An empty row has no meaningful end."""
    return rows[:, BASE] + (rows[:, COUNT] - 1) * rows[:, STRIDE] + rows[:, LENGTH]


def runs(space: int, mode: int, elements: Array) -> Array:
    """Return footprint rows for some elements, unsorted and with duplicates: one row for each run without gaps."""
    if not elements.size:
        return np.zeros((0, 6), np.int64)
    low = elements.min()
    touched = np.zeros(elements.max() - low + 3, np.int8)
    touched[elements - (low - 1)] = 1
    # `touched` begins and ends with 0, so its changes alternate: the start of a run, then the end of this run.
    edges = np.flatnonzero(touched[1:] != touched[:-1])
    return row_of_runs(space, mode, low + edges[::2], edges[1::2] - edges[::2])


def row_of_runs(space: int, mode: int, first: Array, length: Array) -> Array:
    """Return one footprint row for each i: the `length[i]` consecutive elements from `first[i]` on."""
    rows = np.zeros((len(first), 6), np.int64)
    rows[:, SPACE] = space
    rows[:, MODE] = mode
    rows[:, BASE] = first
    rows[:, LENGTH] = length
    rows[:, COUNT] = 1
    return rows


@dataclass(frozen=True, eq=False)
class StepTable:
    """A table of n steps in stream order.

    Bit q of `pops` (`pushes`) is set if the step pops (pushes) a token of `queues[q]`. `footprint` indexes
    `footprints`; `describe(i)` is the text of step i for messages. `works` are the kinds of work by which a report
    divides the cycles, and `work` [n] is the index of each step's kind. If `works` is empty, the kinds are the units.
    """

    units: tuple[str, ...]
    queues: tuple[TokenQueue, ...]
    spaces: tuple[Space, ...]
    unit: Array  # int64 [n]
    pops: Array  # int64 [n]
    pushes: Array  # int64 [n]
    footprint: Array  # int64 [n]
    footprints: Footprints
    describe: Callable[[int], str] = field(default=lambda step: f"step {step}")
    works: tuple[str, ...] = ()
    work: Array | None = None

    def __repr__(self) -> str:
        return f"<StepTable: {len(self):,} steps on {', '.join(self.units)}>"

    @classmethod
    def untracked(cls, units: tuple[str, ...], unit: Array, describe: Callable[[int], str], *queues: str) -> StepTable:
        """Return a table of steps without footprints or tokens, for a machine with its own time pass.

        `queues` are names of causes in the trace: the reasons why the first unit waits for the last unit.
        """
        none = np.zeros(len(unit), np.int64)
        waits = tuple(TokenQueue(name, len(units) - 1, 0, 1) for name in queues)
        return cls(units, waits, (), unit, none, none, none, Footprints.of([np.zeros((0, 6), np.int64)]), describe)

    def __len__(self) -> int:
        return len(self.unit)

    @cached_property
    def by_unit(self) -> tuple[Array, Array]:
        """The arrays (start, steps), int64: unit u executes `steps[start[u]:start[u + 1]]` in this order."""
        steps = np.argsort(self.unit, kind="stable")
        counts = np.bincount(self.unit, minlength=len(self.units))
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), steps.astype(np.int64)

    @cached_property
    def makes_room(self) -> Array:
        """The step whose pop makes room for each push, int64 [n, queues].

        NO_STEP: the queue has room without a pop. NEVER: the queue stays full, because no step pops its token.
        """
        room = np.full((len(self), len(self.queues)), NO_STEP, np.int64)
        for index, queue in enumerate(self.queues):
            # A queue of depth d has room for its first d pushes. Push number d + k waits for pop number k.
            late = np.flatnonzero(self.pushes >> index & 1)[queue.depth :]
            if late.size:
                freed = np.flatnonzero(self.pops >> index & 1)[: len(late)]
                room[late, index] = NEVER
                room[late[: len(freed)], index] = freed
        return room

    def queues_in(self, mask: int) -> Iterable[int]:
        return (index for index in range(len(self.queues)) if mask >> index & 1)


class Fetched(NamedTuple):
    """The fetch of each command, int64 [n] each, in cycles: the commands are read in batches and delivered in order."""

    granted: Array  # the bus is granted to the read of the command's batch
    arrived: Array  # the command can be delivered
    delivered: Array  # the command is in its unit's queue

    def reads(self) -> list[tuple[int, int, int, int]]:
        """Return a tuple (first command, last command, start, end) for each batch. Batches do not overlap in time."""
        first = np.flatnonzero(np.diff(self.granted, prepend=-1))
        last = np.append(first[1:], len(self.granted)) - 1
        end = self.arrived[last]
        start = np.maximum(self.granted[first], np.append(0, end[:-1]))
        return list(zip(first.tolist(), last.tolist(), start.tolist(), end.tolist(), strict=True))

    def blocked(self) -> list[tuple[int, int, int]]:
        """Return a tuple (command, start, end) for each wait for room in the queue of the command's unit."""
        delay = int((self.delivered - self.arrived).min()) if len(self.delivered) else 0
        ready = np.maximum(self.arrived + delay, np.append(0, self.delivered[:-1] + 1))
        steps = np.flatnonzero(self.delivered > ready)
        return list(zip(steps.tolist(), ready[steps].tolist(), self.delivered[steps].tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class Trace:
    """The times of n steps as int64 [n] columns, in cycles from the start of the launch."""

    table: StepTable
    start: Array
    end: Array
    #: The idle cycles of the unit before the step.
    wait: Array
    #: The cause of these idle cycles, as an index into `cause_names`.
    cause: Array
    #: The cycles for which the step's transfers waited for the DRAM channel.
    contention: Array
    bytes_read: Array
    bytes_written: Array
    fetch_bytes: int
    #: The cycle in which the last step ended.
    cycles: int
    #: The fetch of commands; None if the machine's time pass does not record it.
    fetched: Fetched | None = None
    #: A function that finds the critical path.
    walk: Callable[[], Path] | None = None
    #: A function that makes the breakdowns of each step's cycles (see `shares`).
    divide: Callable[[], Mapping[str, Sequence[Mapping[str, int]]]] | None = None
    #: A function that makes the machine's own `chart`.
    draw: Callable[[], Chart] | None = None

    def __repr__(self) -> str:
        return f"<Trace of {len(self.table):,} steps on {', '.join(self.table.units)}: {self.cycles:,} cycles>"

    @cached_property
    def path(self) -> Path | None:
        """The critical path; None if the machine's time pass does not record what steps wait for."""
        return self.walk() if self.walk else None

    @cached_property
    def shares(self) -> Mapping[str, Sequence[Mapping[str, int]]]:
        """Each breakdown (such as "functions") lists, for every step, the cycles of its parts, the largest first."""
        return self.divide() if self.divide else {}

    @cached_property
    def chart(self) -> Chart | None:
        return self.draw() if self.draw else None

    @cached_property
    def until(self) -> Array:
        """For each step, the cycle in which it ends or its unit starts the next step, whichever is first: int64 [n].

        The steps of a unit may overlap, but they start in order and end in order.
        """
        until = self.end.copy()
        first, steps = self.table.by_unit
        for low, high in zip(first.tolist(), first[1:].tolist(), strict=False):
            of_unit = steps[low:high]
            until[of_unit[:-1]] = np.minimum(until[of_unit[:-1]], self.start[of_unit[1:]])
        return until

    def busy(self) -> dict[str, int]:
        """Return the number of cycles in which each unit executed at least one step."""
        spent = np.bincount(self.table.unit, self.until - self.start, minlength=len(self.table.units))
        return {name: int(cycles) for name, cycles in zip(self.table.units, spent, strict=True)}

    def stalls(self, unit: str) -> dict[str, int]:
        """Return the idle cycles of one unit, by cause. The cause "drain" is the time after the unit's last step."""
        of_unit = np.flatnonzero(self.table.unit == self.table.units.index(unit))
        drain = self.cycles - (int(self.end[of_unit].max()) if len(of_unit) else 0)
        return {**self._waits(of_unit), **({"drain": drain} if drain else {})}

    def _waits(self, steps: Array) -> dict[str, int]:
        waits = np.bincount(self.cause[steps], self.wait[steps], minlength=CAUSE_TOKEN + len(self.table.queues))
        return {name: int(waits[code]) for code, name in enumerate(self.cause_names()) if waits[code] and code}

    def figures(self, unit: str, executed_macs: int = 0, bound: int = 0, serial_cycles: int | None = 0) -> Figures:
        """Return the figures of the whole launch; `unit` is the unit that does the work."""
        return Figures(
            cycles=self.cycles,
            serial_cycles=serial_cycles,
            executed_macs=executed_macs,
            dram_read_bytes=int(self.bytes_read.sum()) + self.fetch_bytes,
            dram_write_bytes=int(self.bytes_written.sum()),
            stalls=self.stalls(unit),
            causes=self.causes(unit)[0],
            bound=bound,
        )

    def parts(self, part: Array, serial: Trace | None, unit: str, macs: Array | None = None) -> tuple[Figures, ...]:
        """Return the figures of each layer of the launch: its cycles, its bytes, and the stalls of `unit`.

        For each step, `part` [n] is the number of its layer, from 0, and `macs` [n] its multiply-accumulates. `serial`
        is a trace in which each step waits for the previous step (None: the figures have no serial time). A layer
        begins when the previous layer ends, so the cycles of all layers add up to the cycles of the launch.
        """
        count = int(part.max(initial=0)) + 1
        works = self.table.unit == self.table.units.index(unit)
        ends = self._ends(part, count, macs)
        cycles = np.diff(ends, prepend=0).tolist()
        serial_cycles = None if serial is None else np.diff(serial.end, prepend=0)
        stalls = [self._waits(np.flatnonzero((part == index) & works)) for index in range(count)]
        if self.path:
            causes = self.causes(unit, ends)
        else:
            causes = [with_rest(unit, *row) for row in zip(cycles, stalls, strict=True)]
        figures = []
        for index in range(count):
            in_part = part == index
            # All commands have the same size, so a layer's share of the fetched bytes is its share of the steps.
            fetched = self.fetch_bytes * int(in_part.sum()) // len(part)
            figures.append(
                Figures(
                    cycles=cycles[index],
                    serial_cycles=None if serial_cycles is None else int(serial_cycles[in_part].sum()),
                    executed_macs=0 if macs is None else int(macs[in_part].sum()),
                    dram_read_bytes=int(self.bytes_read[in_part].sum()) + fetched,
                    dram_write_bytes=int(self.bytes_written[in_part].sum()),
                    stalls=stalls[index],
                    causes=causes[index],
                )
            )
        return tuple(figures)

    def _ends(self, part: Array, count: int, macs: Array | None) -> list[int]:
        # A layer ends when its last step ends, but not later than the first multiply-accumulates of a later layer.
        # Otherwise the later layer would have multiply-accumulates outside of its own cycles.
        latest = self._latest(part, count, macs)
        ends: list[int] = []
        for index in range(count - 1):
            last = int(self.end[part == index].max(initial=0))
            ends.append(min(latest[index], max(ends[-1] if ends else 0, last)))
        return [*ends, self.cycles]

    def _latest(self, part: Array, count: int, macs: Array | None) -> list[int]:
        first = np.full(count + 1, self.cycles, np.int64)
        if macs is not None:
            working = np.flatnonzero(macs)
            np.minimum.at(first, part[working], self.start[working])
        # `first` is the cycle in which each layer starts to multiply. Its running minimum from the end is the earliest
        # cycle in which any later layer multiplies.
        latest: list[int] = np.minimum.accumulate(first[::-1])[::-1][1:].tolist()
        return latest

    def causes(self, unit: str, ends: Sequence[int] = ()) -> list[dict[str, int]]:
        """Return the cycles of each span of the launch by cause, the largest first. Every cycle has exactly one cause.

        The spans are consecutive, and span i ends in cycle `ends[i]`. By default, the only span is the whole launch. If
        there is no critical path, the causes are the waits of `unit`; all other cycles are work of `unit`.
        """
        if self.path is None:
            return [with_rest(unit, self.cycles, self.stalls(unit))]
        names, codes = self.causes_on(self.path)
        charged = self.path.charged(codes, len(names), np.array(ends or [self.cycles], np.int64))
        return [by_size(dict(zip(names, row, strict=True))) for row in charged.tolist()]

    def causes_on(self, path: Path) -> tuple[tuple[str, ...], Array]:
        """Return the names of all causes, and for each stretch of the path the index of its cause, int64 [m]."""
        works, work = self.kinds()
        writes = (self.bytes_written[path.step] > 0) & among(path.kind, (TRANSFER, LATENCY))
        not_work = len(works) + CAUSE_OF[path.kind - TRANSFER] + writes
        return (*works, *NAMES), np.where(path.kind == WORK, work[path.step], not_work)

    def kinds(self) -> tuple[tuple[str, ...], Array]:
        table = self.table
        return (table.units, table.unit) if table.work is None else (table.works, table.work)

    def cause_names(self) -> list[str]:
        return ["", "instruction fetch", *(f"{queue.name} token" for queue in self.table.queues)]
