"""Backward slices (the instructions and inputs from which elements were computed), and fault localisation.

A backward walk through a launch follows up to 64 slices at once, each in one bit of a word (see
sim.walk.Walk.backward).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.sim.walk import Elements, SliceBits, Walk

#: The largest number of slices in a backward walk.
SLICES = 64
#: `suspects` compares up to this number of slices of wrong elements, and as many of correct elements.
HALF = SLICES // 2


class Slice(NamedTuple):
    """The slices of a backward walk. Bit i belongs to slice i.

    `hit` uint64 [n] marks the slices to which each instruction contributed. `left` marks, for each space, the elements
    that the launch read but did not compute: inputs, weights, or unwritten memory.
    """

    hit: Array
    left: SliceBits


class Suspect(NamedTuple):
    """An instruction with its score (0 to 1). It contributed to `wrong` wrong groups and to `right` correct groups."""

    step: int
    wrong: int
    right: int
    score: float


def walk_back(walk: Walk, sequence: Array, seeds: Sequence[Sequence[Elements]]) -> Slice:
    """Return one backward slice per entry of `seeds`: a list of elements, at the end of the instructions `sequence`."""
    wanted = [np.zeros(space.size, np.uint64) for space in walk.table.spaces]
    for bit, places in enumerate(seeds):
        for space, elements in places:
            wanted[space][elements] |= np.uint64(1 << bit)
    # `wanted` has the elements whose origin is still unknown. In backward order, the readers of an element are visited
    # before its writer, so the set is complete when the walk reaches the writer.
    hit = np.zeros(len(walk.table), np.uint64)
    for step in sequence[::-1].tolist():
        bits = walk.backward(step, wanted)
        if bits:
            hit[step] = bits
    return Slice(hit, wanted)


def suspects(
    walk: Walk, sequence: Array, wrong: Sequence[Sequence[Elements]], right: Sequence[Sequence[Elements]]
) -> list[Suspect]:
    """Return the instructions that computed wrong elements, in descending order of score, then of `wrong`."""
    bad = wrong[:HALF]
    good = right[:HALF]
    hit = walk_back(walk, sequence, [*bad, *good]).hit
    # The low bits of a word are the slices of wrong elements; the bits above are the slices of correct elements.
    of_bad = np.bitwise_count(hit & np.uint64((1 << len(bad)) - 1)).astype(np.int64)
    of_good = np.bitwise_count(hit >> np.uint64(len(bad))).astype(np.int64) if good else np.zeros_like(of_bad)
    steps = np.flatnonzero(of_bad)
    # The score is Ochiai's of spectrum-based fault localisation: wrong / sqrt(all wrong * (wrong + right)).
    score = of_bad[steps] / np.sqrt(len(bad) * (of_bad[steps] + of_good[steps]))
    best = np.lexsort((steps, -of_bad[steps], -score))
    columns = (part[best].tolist() for part in (steps, of_bad[steps], of_good[steps], score))
    return [Suspect(*row) for row in zip(*columns, strict=True)]


def evenly_spread(places: Array) -> Array:
    return places if len(places) <= HALF else places[np.linspace(0, len(places) - 1, HALF).astype(int)]
