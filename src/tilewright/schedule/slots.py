"""Parts of on-chip memories while a program is made: what each holds, and which steps the next user must follow."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

#: Instead of a step: none.
NOBODY = -1


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


class Part:
    """A part of a memory: the step that wrote it last, and by unit the last step that has used it since.

    `others` are parts that share elements with it; `followed`: the step that last wrote this one, and so followed all
    uses of the others before.
    """

    __slots__ = ("followed", "last", "others", "used", "writer")

    def __init__(self, units: int) -> None:
        self.writer = self.last = self.followed = NOBODY
        self.used = [NOBODY] * units
        self.others: list[Part] = []

    def read(self, step: int, unit: int) -> None:
        """Note a step that reads the part."""
        self.used[unit] = self.last = step

    def write(self, step: int, unit: int) -> None:
        """Note a step that writes the part."""
        self.used = [NOBODY] * len(self.used)
        self.used[unit] = self.last = self.writer = self.followed = step

    def before_write(self, needs: list[int]) -> None:
        """Raise `needs`, the last step of each unit that must have ended, to what a write of the part follows."""
        for unit, step in enumerate(self.used):
            needs[unit] = max(needs[unit], step)
        for other in self.others:
            if other.last > self.followed:
                for unit, step in enumerate(other.used):
                    needs[unit] = max(needs[unit], step)


class Parts:
    """The parts of all memories that are in use, for steps of so many units."""

    def __init__(self, units: int) -> None:
        self._units = units
        self._parts: dict[tuple[int, int, int], Part] = {}

    def of(self, memory: int, low: int, high: int) -> Part:
        """Elements low..high-1 of a memory."""
        part = self._parts.get((memory, low, high))
        if part is None:
            part = Part(self._units)
            for (other, a, b), used in self._parts.items():
                if other == memory and a < high and low < b:
                    part.others.append(used)
                    used.others.append(part)
            self._parts[memory, low, high] = part
        return part

    def all(self) -> list[Part]:
        """Every part so far."""
        return list(self._parts.values())
