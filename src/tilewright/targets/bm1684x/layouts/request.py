"""A tensor to lay out in local memory, as the command `layout` and the golden vectors ask for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class LayoutRequest:
    """The tensor to lay out, and how.

    `kind` is the layout's name. `start` is the lane of channel 0; `offset` is the start of the data in its lane, in
    bytes. `stride` is for a free layout, in elements; `width` is for a matrix, in columns per channel. `order`
    names the axes of `shape`, if they are not in the order of the layout.
    """

    kind: str
    shape: Sequence[int]
    dtype: str
    start: int = 0
    offset: int = 0
    stride: Sequence[int] | None = None
    width: int | None = None
    order: Sequence[str] = ()
