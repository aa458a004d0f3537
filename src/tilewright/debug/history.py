"""The states of a launch at any position, in any order: checkpoints, and execution from the nearest one.

Position p is the moment before the p-th instruction of the order of execution. Checkpoints are copies of on-chip
memories; they share the bytes of DRAM that did not change between them.
"""

from __future__ import annotations

from bisect import bisect_right

from tilewright.array import Array
from tilewright.sim.walk import State, Walk

#: Instructions between checkpoints, at first. When the checkpoints take more than BUDGET bytes, every second one is
#: dropped, and the distance doubles.
APART, BUDGET = 32, 1 << 28


class History:
    """The states of one launch, whose instructions run in the order `sequence`, int64 [n]."""

    def __init__(self, walk: Walk, sequence: Array) -> None:
        self.sequence, self.position = sequence, 0
        self.state: State = walk.start()
        self._apart = APART
        self._kept: dict[int, State] = {0: self.state.copy()}
        self._bytes = {0: self._kept[0].nbytes}

    def move(self, position: int) -> State:
        """Return the state at `position` (0..n), and stay there."""
        kept = sorted(self._kept)
        nearest = kept[bisect_right(kept, position) - 1]
        if position < self.position or nearest > self.position:
            self.state, self.position = self._kept[nearest].copy(), nearest
        while self.position < position:
            stop = min(position, self.position - self.position % self._apart + self._apart)
            self.state.execute(self.sequence[self.position : stop])
            self.position = stop
            if stop % self._apart == 0 and stop not in self._kept:
                self._keep()
        return self.state

    def _keep(self) -> None:
        self._kept[self.position] = kept = self.state.copy()
        self._bytes[self.position] = kept.nbytes
        while len(self._kept) > 2 and sum(self._bytes.values()) > BUDGET:
            self._apart *= 2
            self._kept = {at: state for at, state in self._kept.items() if at % self._apart == 0}
            self._bytes = {at: self._bytes[at] for at in self._kept}
