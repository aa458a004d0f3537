"""Backward slices (which instructions an element was computed by, and from which inputs), suspects, and accesses.

One walk back follows up to 64 slices at once (see sim.walk.Walk.backward).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.sim.steps import BASE, COUNT, LENGTH, MODE, PARTLY, SPACE, STRIDE, StepTable, end_of, live
from tilewright.sim.walk import Elements, Walk, Wanted

#: Slices of one walk back.
SLICES = 64
#: Slices of wrong, and of right elements, that `suspects` compares.
EACH = SLICES // 2


class Slice(NamedTuple):
    """The instructions that computed some elements, uint64 [n] of bits by slice, and the elements wanted at the start.

    `left` has, for each space of the step table, the bits of the elements that the launch did not compute itself.
    """

    hit: Array
    left: Wanted


class Suspect(NamedTuple):
    """An instruction, how many of the wrong and of the right places it computed, and its score, 0..1."""

    step: int
    wrong: int
    right: int
    score: float


def walk_back(walk: Walk, sequence: Array, seeds: Sequence[Sequence[Elements]]) -> Slice:
    """Return slice i for the elements `seeds[i]` as they are after the instructions `sequence`."""
    wanted = [np.zeros(space.size, np.uint64) for space in walk.table.spaces]
    for bit, places in enumerate(seeds):
        for space, elements in places:
            wanted[space][elements] |= np.uint64(1 << bit)
    hit = np.zeros(len(walk.table), np.uint64)
    for step in sequence[::-1].tolist():
        bits = walk.backward(step, wanted)
        if bits:
            hit[step] = bits
    return Slice(hit, wanted)


def suspects(
    walk: Walk, sequence: Array, wrong: Sequence[Sequence[Elements]], right: Sequence[Sequence[Elements]]
) -> list[Suspect]:
    """Return the instructions that computed wrong elements, those first that computed few right ones.

    The score is Ochiai's, of spectrum-based fault localisation: wrong / sqrt(all wrong * (wrong + right)). Among equal
    scores, an instruction goes first that computed more of the wrong places.
    """
    bad, good = wrong[:EACH], right[:EACH]
    hit = walk_back(walk, sequence, [*bad, *good]).hit
    of_bad = np.bitwise_count(hit & np.uint64((1 << len(bad)) - 1)).astype(np.int64)
    of_good = np.bitwise_count(hit >> np.uint64(len(bad))).astype(np.int64) if good else np.zeros_like(of_bad)
    steps = np.flatnonzero(of_bad)
    score = of_bad[steps] / np.sqrt(len(bad) * (of_bad[steps] + of_good[steps]))
    best = np.lexsort((steps, -of_bad[steps], -score))
    columns = (part[best].tolist() for part in (steps, of_bad[steps], of_good[steps], score))
    return [Suspect(*row) for row in zip(*columns, strict=True)]


def some(places: Array) -> Array:
    """Return at most EACH of the places, evenly spread."""
    return places if len(places) <= EACH else places[np.linspace(0, len(places) - 1, EACH).astype(int)]


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
