"""Where activations lie in the arena: the largest first, each at the lowest place that is free while it lives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .layout import aligned

#: Free bytes behind each value. Activations are often as large as the caches or a multiple of it: one behind the other
#: they would lie in the same lines, and an addition would miss at every element.
GAP = 1024


@dataclass(frozen=True)
class Value:
    """A tensor of `nbytes`, written by operator `first` (-1: before the first) and last read by operator `last`."""

    name: str
    nbytes: int
    first: int
    last: int

    def meets(self, other: Value) -> bool:
        """Both live during some operator. An operator's output may not lie where its inputs do."""
        return self.first <= other.last and other.first <= self.last


def place(values: Sequence[Value]) -> tuple[dict[str, int], int]:
    """Byte offsets by name, and the bytes of the whole arena."""
    offsets: dict[str, int] = {}
    placed: list[Value] = []
    for value in sorted(values, key=lambda value: (-value.nbytes, value.first, value.name)):
        at = 0
        for other in sorted(placed, key=lambda other: offsets[other.name]):
            if value.meets(other) and offsets[other.name] < at + _room(value):
                at = max(at, offsets[other.name] + _room(other))
        offsets[value.name] = at
        placed.append(value)
    return offsets, max((offsets[value.name] + aligned(value.nbytes) for value in placed), default=0)


def _room(value: Value) -> int:
    return aligned(value.nbytes) + GAP
