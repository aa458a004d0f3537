"""Allocation of scratchpad rows to weights and inputs.

A bank has one port and gives priority to writes, so a load stalls an array that reads the same bank. The allocation
avoids such loads as far as possible.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

#: An allocation in a lane: the number of the block, its first row, and its number of rows.
Entry = tuple[int, int, int]
#: The array may read up to this number of cycles later than the model predicts, because commands wait in a queue.
READ_LAG = 100
#: The block number of an empty allocation.
NOTHING = -1


class Lane(NamedTuple):
    """Consecutive rows of the scratchpad."""

    first: int
    rows: int


class Ring:
    """The ring buffers for blocks of weights."""

    def __init__(self, lanes: tuple[Lane, ...]) -> None:
        # Blocks use the lanes in turn, and in each lane, a new block replaces the oldest blocks. `place` maps a block
        # to its first row, and `used` maps a block to the cycle in which its last use ends.
        self._lanes = lanes
        self._next = [0] * len(lanes)
        self._turn = 0
        self._held: list[deque[Entry]] = [deque() for _ in lanes]
        self.place: dict[int, int] = {}
        self.used: dict[int, float] = {}

    def take(self, block: int, rows: int) -> float:
        """Allocate rows to a block. Return the cycle in which the rows become free."""
        turn = self._turn
        free = 0.0
        self._turn = (turn + 1) % len(self._lanes)
        base, most = self._lanes[turn]
        held = self._held[turn]
        after = self._next[turn]
        # A block does not wrap around the end of a lane: if the last rows are too few, they are skipped. Remove the old
        # blocks in skipped rows, and the old blocks in rows of the new block.
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
    """The input buffer. All chunks of inputs have the same number of rows, and each chunk is in one lane."""

    def __init__(self, lanes: tuple[Lane, ...], rows: int) -> None:
        # Chunks are numbered in the order of their use, and chunks below `keep` are no longer needed. `place` maps a
        # chunk to its first row, and `free` maps a chunk to the cycle from which these rows may be overwritten.
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
        self._reading = self._lane[chunk]
        self._used[chunk] = self._read[self._reading] = until

    def take(self, chunk: int, now: float | None = None) -> bool:
        """Allocate rows to a chunk, unless the chunk already has rows. Return whether the chunk has rows.

        With `now`, the rows must be free in cycle `now`, in a lane that the array does not read. Without `now`, the
        chunk gets the rows that become free first.
        """
        if chunk in self.place:
            return True
        candidates: list[tuple[float, int]] = []
        # Try the lane that the array reads last.
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
