"""The step table: one row an instruction, which is all that order, hazards and time need to know of a machine."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tilewright.array import Array

READ, WRITE = 1, 2
#: Added to a mode: the row is a bound, only some of its elements need be touched.
PARTLY = 4
#: Instead of a step: there is none to wait for; it never comes.
NO_STEP, NEVER = -1, -2
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
    """A memory as the checker sees it: `size` elements; `initialised` lists ranges [low, high) set before the run."""

    name: str
    size: int
    initialised: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, eq=False)
class Footprints:
    """Which elements of which memory a step touches, as rows; many steps may share one footprint.

    `rows` is int64 [r, 6]: space, mode (READ, WRITE or both), base, length, count, stride: the elements
    base + k * stride + 0..length-1 for k < count. Footprint f has the rows start[f]..start[f + 1].
    Where `exact` is given, rows may be bounds (PARTLY), whose lowest and highest element are touched, and
    exact(f) gives the rows without any: most checks end before they need it.
    """

    rows: Array
    start: Array
    exact: Callable[[int], Array] | None = None

    @classmethod
    def of(cls, footprints: Sequence[Array]) -> Footprints:
        """From one row array (int64 [r, 6]) a footprint."""
        counts = np.array([len(rows) for rows in footprints], np.int64)
        rows = np.concatenate(footprints) if len(footprints) else np.zeros((0, 6), np.int64)
        return cls(np.ascontiguousarray(rows, np.int64), np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))

    def __len__(self) -> int:
        return len(self.start) - 1

    def extended(self, footprints: Sequence[Array]) -> Footprints:
        """With more footprints, exact ones, behind its own."""
        more = Footprints.of(footprints)
        start = np.concatenate([self.start, self.start[-1] + more.start[1:]])
        rows = np.concatenate([self.rows, more.rows])
        return Footprints(rows, start, lambda f: self.of_step(f) if f < len(self) else more.of_step(f - len(self)))

    def of_step(self, footprint: int) -> Array:
        """The exact rows of one footprint."""
        if self.exact is not None:
            return self.exact(footprint)
        rows: Array = self.rows[self.start[footprint] : self.start[footprint + 1]]
        return rows

    def owner(self) -> Array:
        """The footprint of each row."""
        return np.repeat(np.arange(len(self)), np.diff(self.start))

    @cached_property
    def live(self) -> Array:
        """Rows that have an element: bool [r]."""
        return live(self.rows)

    @cached_property
    def end(self) -> Array:
        """One past the highest element of each row that has any."""
        return end_of(self.rows)


def live(rows: Array) -> Array:
    """Rows that have an element: bool [r]."""
    found: Array = (rows[:, LENGTH] > 0) & (rows[:, COUNT] > 0)
    return found


def end_of(rows: Array) -> Array:
    """One past the highest element of each row that has any."""
    end: Array = rows[:, BASE] + (rows[:, COUNT] - 1) * rows[:, STRIDE] + rows[:, LENGTH]
    return end


def runs(space: int, mode: int, elements: Array) -> Array:
    """Footprint rows for a set of elements (any order, repeats allowed), as maximal runs."""
    if not elements.size:
        return np.zeros((0, 6), np.int64)
    low = elements.min()
    touched = np.zeros(elements.max() - low + 3, np.int8)
    touched[elements - (low - 1)] = 1
    edges = np.flatnonzero(touched[1:] != touched[:-1])  # starts and ends of runs in turn
    return row_of_runs(space, mode, low + edges[::2], edges[1::2] - edges[::2])


def row_of_runs(space: int, mode: int, first: Array, length: Array) -> Array:
    """Footprint rows for runs that are known."""
    rows = np.zeros((len(first), 6), np.int64)
    rows[:, SPACE], rows[:, MODE], rows[:, BASE], rows[:, LENGTH], rows[:, COUNT] = space, mode, first, length, 1
    return rows


@dataclass(frozen=True, eq=False)
class StepTable:
    """n steps in stream order. `pops` and `pushes` are bit masks over `queues`; one token a queue and step.

    `footprint` indexes `footprints`; `describe(i)` is the text of step i for messages.
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

    def __len__(self) -> int:
        return len(self.unit)

    def by_unit(self) -> tuple[Array, Array]:
        """Each unit's steps in order: (start int64 [units + 1], steps int64 [n])."""
        return self._by_unit

    @cached_property
    def _by_unit(self) -> tuple[Array, Array]:
        steps = np.argsort(self.unit, kind="stable")
        counts = np.bincount(self.unit, minlength=len(self.units))
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64), steps.astype(np.int64)

    @cached_property
    def makes_room(self) -> Array:
        """int64 [n, queues]: the step that takes the token which fills the place a push needs (NO_STEP: none)."""
        room = np.full((len(self), len(self.queues)), NO_STEP, np.int64)
        for index, queue in enumerate(self.queues):
            late = np.flatnonzero(self.pushes >> index & 1)[queue.depth :]
            if late.size:
                freed = np.flatnonzero(self.pops >> index & 1)[: len(late)]
                room[late, index] = NEVER
                room[late[: len(freed)], index] = freed
        return room

    def queues_in(self, mask: int) -> Iterable[int]:
        return (index for index in range(len(self.queues)) if mask >> index & 1)
