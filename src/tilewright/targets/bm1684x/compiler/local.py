"""Where things lie in each lane of local memory: values below, a ring of constants above them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


class Full(Exception):
    """Something does not fit into local memory."""


@dataclass(frozen=True)
class Buffer:
    """`size` bytes of a lane, needed from time `first` to time `last`, both included."""

    name: str
    size: int
    first: int
    last: int


def place(buffers: Iterable[Buffer]) -> tuple[dict[str, int], int]:
    """An offset for each, and the end of all: the largest first, each as low as those that live with it allow."""
    placed: list[tuple[int, Buffer]] = []
    for buffer in sorted(buffers, key=lambda buffer: -buffer.size):
        offset = 0
        together = (item for item in placed if item[1].first <= buffer.last and buffer.first <= item[1].last)
        for other, held in sorted(together, key=lambda item: item[0]):
            if offset + buffer.size <= other:
                break
            offset = max(offset, other + held.size)
        placed.append((offset, buffer))
    end = max((offset + buffer.size for offset, buffer in placed), default=0)
    return {buffer.name: offset for offset, buffer in placed}, end


class Ring:
    """Constants in the order of their first use, one behind the other; the oldest make room.

    What is still needed must not be overwritten: `uses_left` of a block says whether anything will read it again.
    """

    def __init__(self, begin: int, end: int) -> None:
        self._begin, self._end = begin, end
        self._next = begin
        self._held: list[tuple[int, int, str]] = []

    def take(self, name: str, size: int, done: Iterable[str]) -> int:
        """The offset of a new block. Raises Full where one that is not `done` is in its way."""
        if size > self._end - self._begin:
            raise Full(f"{size} bytes of constants a lane do not fit into {self._end - self._begin}")
        if self._next + size > self._end:
            self._next = self._begin
        offset, over = self._next, set(done)
        kept = []
        for low, high, other in self._held:
            if low < offset + size and offset < high:
                if other not in over:
                    raise Full(f"constants of {other} are needed where those of {name} should lie")
            else:
                kept.append((low, high, other))
        self._held = [*kept, (offset, offset + size, name)]
        self._next = offset + size
        return offset
