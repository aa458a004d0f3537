"""Tensors placed by lifetime: two that are never needed at the same time may lie in the same place."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Lived(NamedTuple):
    """`size` bytes, needed from time `first` to time `last`, both included."""

    name: str
    size: int
    first: int
    last: int


def place(tensors: Iterable[Lived]) -> tuple[dict[str, int], int]:
    """The offset of each tensor by name, and the end of all.

    One by one, the largest first and equal ones as they come, each as low as those placed before it allow.
    """
    placed: list[tuple[int, Lived]] = []
    for tensor in sorted(tensors, key=lambda tensor: -tensor.size):
        offset = 0
        together = (item for item in placed if item[1].first <= tensor.last and tensor.first <= item[1].last)
        for other, held in sorted(together, key=lambda item: item[0]):
            if offset + tensor.size <= other:
                break
            offset = max(offset, other + held.size)
        placed.append((offset, tensor))
    end = max((offset + tensor.size for offset, tensor in placed), default=0)
    return {tensor.name: offset for offset, tensor in placed}, end
