"""Places in the scratchpad for weights and inputs.

As far as possible, rows that are written lie in other banks than rows that are read: a bank has one port, and a write
comes before a read, so a load would hold up the array.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

#: A place in a lane: the block that it holds, its first row, its rows.
Entry = tuple[int, int, int]
#: The array may read this many cycles later than the model says, because its commands wait in a queue.
READ_LAG = 100
#: Stands for nothing, in a place that is empty.
NOTHING = -1


class Lane(NamedTuple):
    """Rows of the scratchpad."""

    first: int
    rows: int


class Ring:
    """Rows for blocks of weights."""

    def __init__(self, lanes: tuple[Lane, ...]) -> None:
        # Blocks go to the lanes in turn, and fill each lane as a ring: new ones replace the oldest.
        #
        # `place` has the first row of each block, and `used` the end of its last use.
        self._lanes = lanes
        self._next = [0] * len(lanes)
        self._turn = 0
        self._held: list[deque[Entry]] = [deque() for _ in lanes]
        self.place: dict[int, int] = {}
        self.used: dict[int, float] = {}

    def take(self, block: int, rows: int) -> float:
        """Give rows to a block; return the time from which they are free."""
        turn = self._turn
        free = 0.0
        self._turn = (turn + 1) % len(self._lanes)
        base, most = self._lanes[turn]
        held = self._held[turn]
        after = self._next[turn]
        # Blocks do not wrap around. Those that are passed over at the end of the lane, and those that overlap, are
        # dropped.
        first = after if after + rows <= most else 0
        while held and (held[0][1] >= after > first or (held[0][1] < first + rows and first < held[0][1] + held[0][2])):
            old = held.popleft()[0]
            free = max(free, self.used.pop(old))
            del self.place[old]
        held.append((block, first, rows))
        self.place[block] = base + first
        self.used[block] = 0.0
        self._next[turn] = first + rows
        return free


class InputBuffer:
    """The input buffer: chunks of inputs take equal places in lanes."""

    def __init__(self, lanes: tuple[Lane, ...], rows: int) -> None:
        # Chunks are numbered in the order of their use, and are needed from `keep` on. `place` has the first row of
        # each chunk, and `free` the time from which these rows may be written.
        self._slots = [
            deque((NOTHING, first) for first in range(lane.first, lane.first + lane.rows - rows + 1, rows))
            for lane in lanes
        ]
        self._lane: dict[int, int] = {}
        self._read = [0.0] * len(lanes)
        self._reading = len(lanes) - 1
        self._used: dict[int, float] = {}
        self.place: dict[int, int] = {}
        self.free: dict[int, float] = {}
        self.keep = 0

    def use(self, chunk: int, until: float) -> None:
        """Note that the array reads a chunk until a time."""
        self._reading = self._lane[chunk]
        self._used[chunk] = self._read[self._reading] = until

    def take(self, chunk: int, now: float | None = None) -> bool:
        """Give a chunk a place, unless it has one; return whether it has one now.

        With `now`, the place must be free then, and in a lane that is not read. Otherwise it is the first to become
        free.
        """
        if chunk in self.place:
            return True
        candidates: list[tuple[float, int]] = []
        # Begin with the lane after the one that is read.
        for turn in range(len(self._slots)):
            lane = (self._reading + 1 + turn) % len(self._slots)
            old = self._slots[lane][0][0]
            free = self._used.get(old, 0.0)
            if old < self.keep and (now is None or (free <= now and self._read[lane] + READ_LAG <= now)):
                candidates.append((free, lane))
        if not candidates:
            return False
        free, lane = candidates[0] if now is not None else min(candidates, key=lambda candidate: candidate[0])
        _, place = self._slots[lane].popleft()
        self._slots[lane].append((chunk, place))
        self.place[chunk] = place
        self._lane[chunk] = lane
        self.free[chunk] = free
        return True
