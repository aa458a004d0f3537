"""Building blocks of compilers: tile sizes, a search among plans, memory slots, dependencies of steps, DRAM offsets."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import compiled

#: A search divides an axis into these numbers of parts.
PARTS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256)
#: The number that means "no step" in an array of step numbers.
NOBODY = -1
#: Microseconds per step in `_followed` without compilation: the estimate that decides whether to compile.
STEP_US = 10
T = TypeVar("T")


def extents(total: int, limit: int | None = None) -> Array:
    """Return the tile sizes to try along an axis of `total` elements, int64 [sizes], in descending order.

    Each size cuts the axis into equal tiles, of which the last may be smaller. No size exceeds `limit`.
    """
    sizes = {-(-total // parts) for parts in PARTS if parts <= total} | {1}
    return np.array(sorted((size for size in sizes if limit is None or size <= limit), reverse=True), np.int64)


class Range(NamedTuple):
    """A range of `size` elements that begins at `first`."""

    first: int
    size: int


def ranges(total: int, size: int) -> list[Range]:
    """Cut `total` elements into ranges of `size`; the last range takes the remainder."""
    return [Range(first, min(size, total - first)) for first in range(0, total, size)]


def to_and_fro(count: int, turn: int) -> range:
    """Return the indices 0..count-1 for a pass of a loop, reversed in odd passes."""
    # A pass begins with the last index of the pass before it, so that the loop reuses the data of this index.
    return range(count - 1, -1, -1) if turn % 2 else range(count)


def combinations(**axes: Array) -> dict[str, Array]:
    """Return all combinations of the axes' values, one array [combinations] per axis; the last axis varies fastest."""
    mesh = np.meshgrid(*axes.values(), indexing="ij")
    return {name: values.reshape(-1) for name, values in zip(axes, mesh, strict=True)}


def finalists(
    candidates: Iterable[tuple[float, T]],
    time: Callable[[T], tuple[float, int]],
    effort: int,
    worth: float = 0.0,
    least: int = 1,
) -> list[tuple[float, T]]:
    """Time the promising candidates and return pairs (time, candidate) in ascending order of time.

    `candidates` are pairs (lower bound of the time, candidate), the most promising first. A candidate is timed only if
    its bound is below the best time so far by more than the fraction `worth`. `time` measures a candidate, and returns
    its time and the effort of the measurement. The search ends when the measurements have cost `effort`, but not before
    `least` measurements.
    """
    timed: list[tuple[float, T]] = []
    best = float("inf")
    for bound, candidate in candidates:
        if effort <= 0 and len(timed) >= least:
            break
        # The candidates need not be in the order of their bounds, so a later candidate may have a lower bound.
        if bound >= best * (1 - worth):
            continue
        cycles, took = time(candidate)
        effort -= took
        timed.append((cycles, candidate))
        best = min(best, cycles)
    return sorted(timed, key=lambda item: item[0])


class Held:
    """The keys of the data in the slots of a memory. New data replaces the least recently used data (LRU)."""

    def __init__(self, slots: int) -> None:
        self._slot: OrderedDict[Hashable, int] = OrderedDict()
        self._empty = list(range(slots - 1, -1, -1))

    def find(self, key: Hashable) -> int | None:
        """Return the slot of `key`, which becomes the most recently used slot, or None if no slot has this data."""
        slot = self._slot.get(key)
        if slot is not None:
            self._slot.move_to_end(key)
        return slot

    def take(self, key: Hashable) -> int:
        """Assign an empty slot to `key`, else the least recently used slot, and return its number."""
        slot = self._empty.pop() if self._empty else self._slot.popitem(last=False)[1]
        self._slot[key] = slot
        return slot


class Parts:
    """Numbers 0, 1, ... for parts of memories. A part is a range of elements that a step uses."""

    def __init__(self) -> None:
        self._number: dict[tuple[int, int, int], int] = {}

    def __len__(self) -> int:
        return len(self._number)

    def of(self, memory: int, low: int, high: int) -> int:
        """Return the number of the part with the elements `low` to `high - 1` of a memory."""
        return self._number.setdefault((memory, low, high), len(self._number))

    def overlaps(self) -> Array:
        """Return a bool [parts, parts] matrix that marks the pairs of parts with common elements."""
        memory, low, high = np.array([*self._number], np.int64).reshape(-1, 3).T
        return (memory[:, None] == memory) & (low[:, None] < high) & (low < high[:, None])


class Uses(NamedTuple):
    """The parts (see Parts) that n steps use. Step s uses the parts `part[first[s]:first[s + 1]]`.

    `writes` marks the uses that are writes. Step s runs on the unit `unit[s]`. It must also follow the step `after[s]`,
    if this is not NOBODY.
    """

    unit: Array
    after: Array
    first: Array
    part: Array
    writes: Array


def followed(uses: Uses, parts: Parts, units: int) -> Array:
    """Return the dependencies of each step, int64 [n, units]: for each unit, the last of its steps that must end first.

    The entry is NOBODY if the step does not depend on the unit.

    A step that reads a part follows the part's last writer. A step that writes a part follows the last users of this
    part and of overlapping parts.
    """
    count = len(uses.unit)
    overlaps = parts.overlaps()
    needs = np.full((count, units), NOBODY)
    used, writer, last = (np.full((len(overlaps), *more), NOBODY) for more in ((units,), (), ()))
    _followed.of(count * STEP_US)(uses, overlaps, needs, used, writer, last)
    return needs


@compiled
def _followed(uses: Uses, overlaps: Array, needs: Array, used: Array, writer: Array, last: Array) -> None:
    """Write the result of `followed` to `needs`. `used`, `writer` and `last` contain NOBODY at the start."""
    # `writer[p]` is the last step that writes part p, and `last[p]` is the last step that uses part p. `used[p, u]` is
    # the last step on unit u that uses part p since the last write to p.
    parts = overlaps.shape[0]
    units = needs.shape[1]
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
            # A write follows all users of the part since its last write. An overlapping part adds dependencies only if
            # it was used after that write; earlier users precede the write already.
            for overlapping in range(parts):
                if overlapping != part and not (overlaps[part, overlapping] and last[overlapping] > writer[part]):
                    continue
                for unit in range(units):
                    needs[step, unit] = max(needs[step, unit], used[overlapping, unit])
        for use in mine:
            part = uses.part[use]
            if uses.writes[use]:
                used[part] = NOBODY
                writer[part] = step
            used[part, uses.unit[step]] = last[part] = step


class Lived(NamedTuple):
    """A tensor of `size` bytes that memory must contain from time `first` to time `last` (inclusive)."""

    name: str
    size: int
    first: int
    last: int


def place(tensors: Iterable[Lived]) -> tuple[dict[str, int], int]:
    """Return the offset of each tensor by name, and the total size, in bytes."""
    placed: list[tuple[int, Lived]] = []
    # Large tensors come first, because small tensors fit in the gaps. Each gets the lowest offset that is free while it
    # lives.
    for tensor in sorted(tensors, key=lambda tensor: -tensor.size):
        offset = 0
        together = (item for item in placed if item[1].first <= tensor.last and tensor.first <= item[1].last)
        for start, held in sorted(together, key=lambda item: item[0]):
            if offset + tensor.size <= start:
                break
            offset = max(offset, start + held.size)
        placed.append((offset, tensor))
    end = max((offset + tensor.size for offset, tensor in placed), default=0)
    return {tensor.name: offset for offset, tensor in placed}, end


class TokenStream:
    """A growing stream of instructions for two units. `add` sets the token flags `pop` and `push`.

    `unit_of` maps an opcode to its unit, 0 or 1. Instructions use slots, such as one half of a memory. An instruction
    waits for the last instruction of the other unit that used one of its slots.
    """

    def __init__(self, unit_of: Mapping[Any, int]) -> None:
        self.rows: list[dict[str, int]] = []
        self._unit_of = unit_of
        # self._ended[u]: unit u has already waited for the other unit's instructions up to this index
        self._ended = [NOBODY, NOBODY]
        # self._users[slot][u]: the last instruction of unit u that used the slot
        self._users: dict[Hashable, list[int]] = {}

    def add(self, opcode: int, *slots: Hashable, **fields: int) -> None:
        """Add an instruction that uses some slots; `fields` are the values of its bit fields."""
        index = len(self.rows)
        unit = self._unit_of[opcode]
        row = {"opcode": int(opcode), **fields}
        # One of the two units writes the slot and the other reads it, so every use by the other unit is a dependency.
        need = max(self._users.setdefault(slot, [NOBODY, NOBODY])[1 - unit] for slot in slots)
        if need > self._ended[unit]:
            row["pop"] = 1
            self.rows[need]["push"] = 1
            self._ended[unit] = need
        for slot in slots:
            self._users[slot][unit] = index
        self.rows.append(row)
