"""The micro-op buffer as a cache of micro-op lists, which lie in DRAM in the order of their first use."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class UopCache:
    """`offsets[i]`..`offsets[i + 1]` is list i in DRAM; `load(base, offset, count)` emits a LOAD UOP.

    Lists that all fit are loaded once, each to its own offset. Others take turns: a missing list comes together
    with those that follow it in DRAM (a quarter of the buffer at most), at a write pointer that goes round.
    """

    def __init__(self, offsets: Sequence[int], depth: int, load: Callable[[int, int, int], None]) -> None:
        self._offsets, self._depth, self._load = offsets, depth, load
        self._base: dict[int, int] = {}
        self._write = 0
        self._share = depth if offsets[-1] <= depth else max(1, depth // 4)

    def find(self, index: int) -> range:
        """Where list `index` is in the buffer, after loading it if it is not there."""
        if index not in self._base:
            self._fetch(index)
        base = self._base[index]
        return range(base, base + self._offsets[index + 1] - self._offsets[index])

    def _fetch(self, index: int) -> None:
        start, last = self._offsets[index], index + 1
        while last + 1 < len(self._offsets) and self._offsets[last + 1] - start <= self._share:
            last += 1
        count = self._offsets[last] - start
        base = self._write if self._write + count <= self._depth else 0
        for other, at in list(self._base.items()):
            size = self._offsets[other + 1] - self._offsets[other]
            if at < base + count and base < at + size:
                del self._base[other]
        self._load(base, start, count)
        for other in range(index, last):
            self._base[other] = base + self._offsets[other] - start
        self._write = base + count
