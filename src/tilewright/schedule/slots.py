"""Parts of on-chip memories while a program is made: what each holds, and which steps the next user must follow."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import compiled

#: Instead of a step: none.
NOBODY = -1
#: Microseconds of _followed for each step, uncompiled.
STEP_US = 10


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
