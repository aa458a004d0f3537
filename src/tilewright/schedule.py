"""What planners share: cutting and the search among cuts, slots of memories and whom their users follow, lifetimes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple, TypeVar

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import compiled

#: Numbers of parts that an extent is cut into.
PARTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256)
#: Instead of a step: none.
NOBODY = -1
#: Microseconds of _followed for each step, uncompiled.
STEP_US = 10
T = TypeVar("T")


def extents(total: int, limit: int | None = None) -> Array:
    """The extents of equal parts (the last may be smaller) up to `limit`, largest first: int64 [cuts]."""
    sizes = {-(-total // parts) for parts in PARTS if parts <= total} | {1}
    return np.array(sorted((size for size in sizes if limit is None or size <= limit), reverse=True), np.int64)


class Range(NamedTuple):
    """`size` elements from `first`."""

    first: int
    size: int


def ranges(total: int, size: int) -> list[Range]:
    """Parts of `size`, the last of what is left."""
    return [Range(first, min(size, total - first)) for first in range(0, total, size)]


def to_and_fro(count: int, turn: int) -> range:
    """The parts in order, every other turn from the last to the first: what was used last is used again first."""
    return range(count - 1, -1, -1) if turn % 2 else range(count)


def combinations(**axes: Array) -> dict[str, Array]:
    """Every combination of the values of some axes, an array [combinations] an axis; the last axis is the fastest."""
    mesh = np.meshgrid(*axes.values(), indexing="ij")
    return {name: values.reshape(-1) for name, values in zip(axes, mesh, strict=True)}


def finalists(
    candidates: Iterable[tuple[float, T]],
    time: Callable[[T], tuple[float, int]],
    effort: int,
    worth: float = 0.0,
    least: int = 1,
) -> list[tuple[float, T]]:
    """(Time, candidate) of the first candidates whose bound is below the best time so far, best first.

    `candidates`: (bound, candidate), the most promising first. `time` also returns the effort it took. The search
    ends when `effort` is spent, but not before `least` candidates are timed. `worth`: the part of the best time that a
    candidate must be able to gain. Of equal times the first comes first.
    """
    found: list[tuple[float, T]] = []
    best = float("inf")
    for bound, candidate in candidates:
        if effort <= 0 and len(found) >= least:
            break
        if bound >= best * (1 - worth):
            continue
        cycles, took = time(candidate)
        effort -= took
        found.append((cycles, candidate))
        best = min(best, cycles)
    return sorted(found, key=lambda item: item[0])


class Held:
    """What the slots of a memory hold, the least recently used first."""

    def __init__(self, slots: int) -> None:
        self._slot: OrderedDict[Hashable, int] = OrderedDict()
        self._empty = list(range(slots - 1, -1, -1))

    def find(self, key: Hashable) -> int | None:
        """The slot that holds `key`, which is used now."""
        slot = self._slot.get(key)
        if slot is not None:
            self._slot.move_to_end(key)
        return slot

    def take(self, key: Hashable) -> int:
        """A slot for `key`: an empty one, else the least recently used."""
        slot = self._empty.pop() if self._empty else self._slot.popitem(last=False)[1]
        self._slot[key] = slot
        return slot


class Parts:
    """The parts of all memories that are in use, by number."""

    def __init__(self) -> None:
        self._number: dict[tuple[int, int, int], int] = {}

    def __len__(self) -> int:
        return len(self._number)

    def of(self, memory: int, low: int, high: int) -> int:
        """The number of elements low..high-1 of a memory."""
        return self._number.setdefault((memory, low, high), len(self._number))

    def overlaps(self) -> Array:
        """Which parts share elements, bool [parts, parts]."""
        memory, low, high = np.array([*self._number], np.int64).reshape(-1, 3).T
        return (memory[:, None] == memory) & (low[:, None] < high) & (low < high[:, None])


class Uses(NamedTuple):
    """What n steps use: step s uses parts `part[first[s]:first[s + 1]]`, of which it writes those with `writes`.

    `unit` [n] runs the step; `after` [n]: another step that it must follow, NOBODY where there is none.
    """

    unit: Array
    after: Array
    first: Array
    part: Array
    writes: Array


def followed(uses: Uses, parts: Parts, units: int) -> Array:
    """The last step of each unit that each step must follow, int64 [n, units]: NOBODY where there is none.

    A reader follows the last writer of a part; a writer also the last readers of it, and of all that shares elements.
    """
    count = len(uses.unit)
    return _followed.of(count * STEP_US)(uses, parts.overlaps(), np.full((count, units), NOBODY))


@compiled
def _followed(uses: Uses, overlaps: Array, needs: Array) -> Array:
    parts, units = overlaps.shape[0], needs.shape[1]
    used = np.full((parts, units), NOBODY)  # since the last write
    writer, last = np.full(parts, NOBODY), np.full(parts, NOBODY)
    behind = np.full(parts, NOBODY)  # the step that followed all uses of what overlaps
    for step in range(uses.unit.shape[0]):
        if uses.after[step] != NOBODY:
            needs[step, uses.unit[uses.after[step]]] = uses.after[step]
        mine = range(uses.first[step], uses.first[step + 1])
        for use in mine:
            part = uses.part[use]
            if not uses.writes[use]:
                if writer[part] != NOBODY:
                    unit = uses.unit[writer[part]]
                    needs[step, unit] = max(needs[step, unit], writer[part])
                continue
            for other in range(parts):
                if other == part or (overlaps[part, other] and last[other] > behind[part]):
                    for unit in range(units):
                        needs[step, unit] = max(needs[step, unit], used[other, unit])
        for use in mine:
            part = uses.part[use]
            if uses.writes[use]:
                used[part] = NOBODY
                writer[part] = behind[part] = step
            used[part, uses.unit[step]] = last[part] = step
    return needs


class Lived(NamedTuple):
    """`size` bytes, needed from time `first` to time `last`, both included."""

    name: str
    size: int
    first: int
    last: int


def place(tensors: Iterable[Lived]) -> tuple[dict[str, int], int]:
    """The offset of each tensor by name, and the end of all.

    One by one, the largest first and equal ones as they come, each as low as those placed before it allow.
    """
    placed: list[tuple[int, Lived]] = []
    for tensor in sorted(tensors, key=lambda tensor: -tensor.size):
        offset = 0
        together = (item for item in placed if item[1].first <= tensor.last and tensor.first <= item[1].last)
        for other, held in sorted(together, key=lambda item: item[0]):
            if offset + tensor.size <= other:
                break
            offset = max(offset, other + held.size)
        placed.append((offset, tensor))
    end = max((offset + tensor.size for offset, tensor in placed), default=0)
    return {tensor.name: offset for offset, tensor in placed}, end
