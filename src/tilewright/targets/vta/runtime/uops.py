"""Micro-op lists in DRAM, and a micro-op memory as a cache of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tilewright.array import Array
from tilewright.program.instruction import Raw
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.stream import Uops, encode_uops


class UopLists:
    """Distinct micro-op lists in the order of their first use, which is their order in DRAM.

    `offsets[i]`..`offsets[i + 1]` is list i, counted in micro-ops.
    """

    def __init__(self) -> None:
        self.offsets = [0]
        self._index: dict[bytes, int] = {}
        self._parts: list[Array] = []

    def add(self, dst: Array, src: Array, wgt: Array) -> int:
        """The number of a list (tile indices int64 [m] each); equal lists are one."""
        part = np.stack([dst, src, wgt])
        key = part.tobytes()
        index = self._index.get(key)
        if index is None:
            index = self._index[key] = len(self._parts)
            self._parts.append(part)
            self.offsets.append(self.offsets[-1] + part.shape[1])
        return index

    def encode(self, config: Config) -> Raw:
        """uint8 [m, 4]. Raises ProgramError for an index that does not fit its field."""
        dst, src, wgt = np.concatenate([np.zeros((3, 0), np.int64), *self._parts], axis=1)
        return encode_uops(Uops(dst, src, wgt, np.zeros((len(dst), 4), np.uint8)), config)


#: Which lists come with a missing one: (offsets, its number, depth of the buffer) -> one past the last.
Policy = Callable[[Sequence[int], int, int], int]


def alone(offsets: Sequence[int], index: int, depth: int) -> int:
    """The missing list only: upstream's runtime, which does not know what follows."""
    return index + 1


def ahead(offsets: Sequence[int], index: int, depth: int) -> int:
    """Those that follow it too, up to a quarter of the buffer; all of them where all fit: the compiler's."""
    share = depth if offsets[-1] <= depth else max(1, depth // 4)
    last = index + 1
    while last + 1 < len(offsets) and offsets[last + 1] - offsets[index] <= share:
        last += 1
    return last


class UopCache:
    """Lists in the buffer of `depth` micro-ops; `load(base, offset, count)` emits a LOAD.

    A missing list is written at a pointer that goes round, over whatever is there; `policy` says what comes with it.
    """

    def __init__(
        self, offsets: Sequence[int], depth: int, load: Callable[[int, int, int], object], policy: Policy
    ) -> None:
        self._offsets, self._depth, self._load, self._policy = offsets, depth, load, policy
        self._base: dict[int, int] = {}
        self._write = 0

    def find(self, index: int) -> range:
        """Where list `index` is in the buffer, after loading it if it is not there."""
        if index not in self._base:
            self._fetch(index)
        base = self._base[index]
        return range(base, base + self._offsets[index + 1] - self._offsets[index])

    def _fetch(self, index: int) -> None:
        start, last = self._offsets[index], self._policy(self._offsets, index, self._depth)
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
