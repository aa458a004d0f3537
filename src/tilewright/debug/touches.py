"""Which instructions read or write an element, from the footprints of the step table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.array import Array
from tilewright.sim.steps import (
    BASE,
    COUNT,
    LENGTH,
    MODE,
    PARTLY,
    SPACE,
    STRIDE,
    StepTable,
    end_of,
    live,
)
from tilewright.sim.walk import Elements


def touching(table: StepTable, places: Sequence[Elements], mode: int) -> Array:
    """Return whether each instruction touches any of the elements `places` as `mode` says: bool [n]."""
    found = np.zeros(len(table), np.bool_)
    for space, elements in places:
        found |= _touching(table, space, elements, mode)
    return found


def _touching(table: StepTable, space: int, elements: Array, mode: int) -> Array:
    prints, rows = table.footprints, table.footprints.rows
    near = prints.live & (rows[:, SPACE] == space) & (rows[:, MODE] & mode > 0)
    near &= (rows[:, BASE] <= elements[-1]) & (prints.end > elements[0])
    owner, bound = prints.owner(), rows[:, MODE] & PARTLY > 0
    hit = np.zeros(len(prints), np.bool_)
    exact = np.flatnonzero(near & ~bound)
    hit[owner[exact[_any(rows[exact], elements)]]] = True
    for footprint in np.unique(owner[near & bound]).tolist():
        if not hit[footprint]:
            own = prints.of_step(footprint)
            own = own[live(own) & (own[:, SPACE] == space) & (own[:, MODE] & mode > 0)]
            hit[footprint] = _any(own, elements).any()
    found: Array = hit[table.footprint]
    return found


def _any(rows: Array, elements: Array) -> Array:
    """Return whether each footprint row touches any of the elements: bool [rows]."""
    found = np.zeros(len(rows), np.bool_)
    solid = (rows[:, COUNT] == 1) | (rows[:, STRIDE] <= rows[:, LENGTH])  # no holes between the repetitions
    low, high, end = rows[:, BASE], end_of(rows), elements
    first = np.searchsorted(end, low)
    inside = (first < len(elements)) & (elements[np.minimum(first, len(elements) - 1)] < high)
    found |= solid & inside
    for row in np.flatnonzero(~solid & inside).tolist():
        base, length, stride = rows[row, [BASE, LENGTH, STRIDE]].tolist()
        mine = elements[(elements >= base) & (elements < high[row])] - base
        found[row] = (mine % stride < length).any()
    return found
