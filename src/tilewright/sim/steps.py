"""The step table, the input of the order, hazard and time passes: one row per instruction. Also a launch's trace."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tilewright.array import Array
from tilewright.sim.causes import CAUSE_TOKEN, NAMES, TRANSFER, WORK, Path
from tilewright.sim.chart import Chart
from tilewright.sim.figures import Figures, by_size, with_rest

READ, WRITE = 1, 2
#: Flag added to a mode: the row is an upper bound, so the step may not touch all of its elements.
PARTLY = 4
#: Values instead of a step index: there is no step to wait for; the awaited step does not exist.
NO_STEP = -1
NEVER = -2
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
    """A memory as the checker sees it: `size` elements; `initialised` lists ranges [low, high) set before the run.

    `scratchpad` is the name of the on-chip memory that this space models, in whole or in part. The name is "" for DRAM,
    and for a space that only helps the checker. With `decides`, the elements are, for example, micro-ops: their values
    decide which elements of other memories a step touches.
    """

    name: str
    size: int
    initialised: tuple[tuple[int, int], ...] = ()
    scratchpad: str = ""
    decides: bool = False


@dataclass(frozen=True, eq=False)
class Footprints:
    """The memory elements that steps touch, as rows. Several steps may share one footprint.

    `rows` is int64 [r, 6]: space, mode (READ, WRITE or both), base, length, count, stride. A row touches the elements
    `base + k * stride + j` for k < count and j < length. Footprint f is `rows[start[f]:start[f + 1]]`.
    With `exact`, rows may be bounds (PARTLY): only the lowest and highest element of such a row are certainly touched.
    exact(f) returns the exact rows of footprint f, which are computed on demand, since most checks do not need them.
    """

    rows: Array
    start: Array
    exact: Callable[[int], Array] | None = None

    @classmethod
    def of(cls, footprints: Sequence[Array]) -> Footprints:
        """Return footprints from one row array (int64 [r, 6]) per footprint."""
        counts = np.array([len(rows) for rows in footprints], np.int64)
        rows = np.concatenate(footprints) if len(footprints) else np.zeros((0, 6), np.int64)
        return cls(np.ascontiguousarray(rows, np.int64), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))

    def __len__(self) -> int:
        return len(self.start) - 1

    def __repr__(self) -> str:
        return f"<Footprints: {len(self):,}, of {len(self.rows):,} rows>"

    def extended(self, footprints: Sequence[Array]) -> Footprints:
        """Return these footprints with further footprints, whose rows are exact, appended."""
        more = Footprints.of(footprints)
        start = np.concatenate([self.start, self.start[-1] + more.start[1:]])
        rows = np.concatenate([self.rows, more.rows])
        return Footprints(rows, start, lambda f: self.of_step(f) if f < len(self) else more.of_step(f - len(self)))

    def of_step(self, footprint: int) -> Array:
        """Return the exact rows of one footprint."""
        if self.exact is not None:
            return self.exact(footprint)
        return self.rows[self.start[footprint] : self.start[footprint + 1]]

    def owner(self) -> Array:
        """Return the footprint index of each row."""
        return np.repeat(np.arange(len(self)), np.diff(self.start))

    @cached_property
    def live(self) -> Array:
        """Whether each row has any element, bool [r]."""
        return live(self.rows)

    @cached_property
    def end(self) -> Array:
        """1 + the highest element of each row, int64 [r]; it has no meaning for rows without elements."""
        return end_of(self.rows)


def live(rows: Array) -> Array:
    """Return whether each footprint row (see Footprints) has any element, bool [r]."""
    return (rows[:, LENGTH] > 0) & (rows[:, COUNT] > 0)


def end_of(rows: Array) -> Array:
    """Return 1 + the highest element of each footprint row, int64 [r]; it has no meaning for rows without elements."""
    return rows[:, BASE] + (rows[:, COUNT] - 1) * rows[:, STRIDE] + rows[:, LENGTH]


def runs(space: int, mode: int, elements: Array) -> Array:
    """Return footprint rows for a set of elements (any order, repeats allowed): one row per stretch without gaps."""
    if not elements.size:
        return np.zeros((0, 6), np.int64)
    low = elements.min()
    touched = np.zeros(elements.max() - low + 3, np.int8)
    touched[elements - (low - 1)] = 1
    # `touched` begins and ends with an untouched element, so its changes are starts and ends of runs in turn.
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
    `footprints`; `describe(i)` is the text of step i for messages. `work` [n] indexes `works`, the names of the kinds
    of work that explain a launch's cycles; if `works` is empty, the kinds are the units.
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

        Each name in `queues` is a cause in the trace: a reason why the first unit may wait for the last unit.
        """
        none = np.zeros(len(unit), np.int64)
        waits = tuple(TokenQueue(name, len(units) - 1, 0, 1) for name in queues)
        return cls(units, waits, (), unit, none, none, none, Footprints.of([np.zeros((0, 6), np.int64)]), describe)

    def __len__(self) -> int:
        return len(self.unit)

    @cached_property
    def by_unit(self) -> tuple[Array, Array]:
        """A tuple (start, steps) of int64 arrays: unit u runs `steps[start[u]:start[u + 1]]` in sequence."""
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
            # A queue of depth d has room for its first d pushes; push d + k needs the k-th pop.
            late = np.flatnonzero(self.pushes >> index & 1)[queue.depth :]
            if late.size:
                freed = np.flatnonzero(self.pops >> index & 1)[: len(late)]
                room[late, index] = NEVER
                room[late[: len(freed)], index] = freed
        return room

    def queues_in(self, mask: int) -> Iterable[int]:
        return (index for index in range(len(self.queues)) if mask >> index & 1)


@dataclass(frozen=True, eq=False)
class Trace:
    """The times of n steps as int64 [n] columns, in cycles from the start of the launch."""

    table: StepTable
    start: Array
    end: Array
    #: The idle cycles of the unit before the step, and their cause: an index into `cause_names`.
    wait: Array
    cause: Array
    #: The cycles for which the step's transfers waited for the DRAM channel.
    contention: Array
    bytes_read: Array
    bytes_written: Array
    fetch_bytes: int
    #: The cycle in which the last step ended.
    cycles: int
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
        """Breakdowns of cycles, by name (such as "functions"): for each step, cycles by part, largest first."""
        return self.divide() if self.divide else {}

    @cached_property
    def chart(self) -> Chart | None:
        """The machine's own chart of the launch, such as of its banks; None if the machine has no chart."""
        return self.draw() if self.draw else None

    @cached_property
    def until(self) -> Array:
        """When each step ends or, if steps of a unit overlap, when its unit starts the next one, int64 [n].

        The steps of a unit start in order and end in order.
        """
        until = self.end.copy()
        first, steps = self.table.by_unit
        for low, high in zip(first.tolist(), first[1:].tolist(), strict=False):
            of_unit = steps[low:high]
            until[of_unit[:-1]] = np.minimum(until[of_unit[:-1]], self.start[of_unit[1:]])
        return until

    def busy(self) -> dict[str, int]:
        """Return the cycles that each unit spent inside steps; cycles in which its steps overlap count once."""
        spent = np.bincount(self.table.unit, self.until - self.start, minlength=len(self.table.units))
        return {name: int(cycles) for name, cycles in zip(self.table.units, spent, strict=True)}

    def stalls(self, unit: str) -> dict[str, int]:
        """Return the idle cycles of one unit, by cause. "drain" is the idle time after its last step."""
        of_unit = np.flatnonzero(self.table.unit == self.table.units.index(unit))
        drain = self.cycles - (int(self.end[of_unit].max()) if len(of_unit) else 0)
        return {**self._waits(of_unit), **({"drain": drain} if drain else {})}

    def _waits(self, steps: Array) -> dict[str, int]:
        waits = np.bincount(self.cause[steps], self.wait[steps], minlength=CAUSE_TOKEN + len(self.table.queues))
        return {name: int(waits[code]) for code, name in enumerate(self.cause_names()) if waits[code] and code}

    def figures(self, unit: str, executed_macs: int = 0, bound: int = 0, serial_cycles: int | None = 0) -> Figures:
        """Return the figures of the whole launch; `unit` is the unit that does the work.

        The other arguments are copied into the figures, since a trace does not contain them.
        """
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

        `part` [n] is the number of each step's layer, from 0. `serial` is the launch's trace without overlap; if it is
        None, the layers have no serial time. `macs` [n] are each step's multiply-accumulates. The cycles of a layer run
        from the end of the previous layer to its own end, so that the cycles of all layers add up to the cycles of the
        launch.
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
        """Return the cycle in which each of `count` layers ends; the arguments are as in `parts`."""
        # A layer ends when its last step ends, or earlier, when a later layer starts its first step with
        # multiply-accumulates. So all multiply-accumulates of a layer lie in its own cycles.
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
        # first[i] is when part i starts to multiply; the running minimum from the end covers part i and all later
        # parts.
        latest: list[int] = np.minimum.accumulate(first[::-1])[::-1][1:].tolist()
        return latest

    def causes(self, unit: str, ends: Sequence[int] = ()) -> list[dict[str, int]]:
        """Return the cycles of each span of the launch by cause, the largest first. Every cycle has exactly one cause.

        Span i begins where span i - 1 ends, and ends in cycle `ends[i]` (default: one span, the whole launch). Without
        a critical path, the causes of the launch are the waits of `unit`, and all other cycles are work of `unit`.
        """
        if self.path is None:
            return [with_rest(unit, self.cycles, self.stalls(unit))]
        names, codes = self.causes_on(self.path)
        charged = self.path.charged(codes, len(names), np.array(ends or [self.cycles], np.int64))
        return [by_size(dict(zip(names, row, strict=True))) for row in charged.tolist()]

    def causes_on(self, path: Path) -> tuple[tuple[str, ...], Array]:
        """Return the names of the causes on the launch's critical path, and each stretch's index in them, int64 [m]."""
        works, work = self.kinds()
        # TRANSFER has two names, for loads and for stores. So stores and all later kinds are one place further on in
        # NAMES than their kind.
        writes = (self.bytes_written[path.step] > 0) & (path.kind == TRANSFER)
        not_work = len(works) + path.kind - TRANSFER + (writes | (path.kind > TRANSFER))
        return (*works, *NAMES), np.where(path.kind == WORK, work[path.step], not_work)

    def kinds(self) -> tuple[tuple[str, ...], Array]:
        """Return the names of the kinds of work, and each step's index in them, int64 [n]."""
        table = self.table
        return (table.units, table.unit) if table.work is None else (table.works, table.work)

    def cause_names(self) -> list[str]:
        return ["", "instruction fetch", *(f"{queue.name} token" for queue in self.table.queues)]
