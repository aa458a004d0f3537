"""The slots of an on-chip memory while a schedule is made."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from tilewright.array import Array
from tilewright.targets.vta.compiler.regions import Region

#: Later than anything that is scheduled.
NO_LIMIT = 1 << 62


class Slots:
    """The slots of one memory: who is in which, least recently used first; when each may be overwritten."""

    def __init__(self, region: Region, free: Array) -> None:
        self.region, self._tiles_free = region, free
        self.held: OrderedDict[Hashable, int] = OrderedDict()
        self.empty = list(range(region.slots - 1, -1, -1))
        self.free = [int(free[region.at(i) : region.at(i + 1)].max()) for i in range(region.slots)]
        self.ready = [0] * region.slots
        free[region.base : region.end] = NO_LIMIT

    def find(self, key: Hashable) -> int | None:
        slot = self.held.get(key)
        if slot is not None:
            self.held.move_to_end(key)
        return slot

    def take(self, key: Hashable) -> int:
        slot = self.empty.pop() if self.empty else self.held.popitem(last=False)[1]
        self.held[key] = slot
        return slot

    def leave(self) -> None:
        """Other layers may have other slots: each tile is free when the slot that it was in is."""
        for slot, free in enumerate(self.free):
            self._tiles_free[self.region.at(slot) : self.region.at(slot + 1)] = free
