"""Backward slices: the instructions and inputs from which an element was computed; suspects of a fault.

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
#: The largest number of slices of wrong elements that `suspects` compares; the same limit applies to correct elements.
HALF = SLICES // 2


class Slice(NamedTuple):
    """The slices of a backward walk. Bit i belongs to slice i.

    `hit` uint64 [n] marks, for each instruction, the slices whose elements it computed. `left` has, for each space, the
    elements that the launch read but did not compute: inputs, weights, or unwritten memory.
    """

    hit: Array
    left: SliceBits


class Suspect(NamedTuple):
    """An instruction, the numbers of wrong and of correct places that it computed, and its score, 0..1."""

    step: int
    wrong: int
    right: int
    score: float


def walk_back(walk: Walk, sequence: Array, seeds: Sequence[Sequence[Elements]]) -> Slice:
    """Return the slices: slice i is for the elements `seeds[i]` after the instructions `sequence`."""
    wanted = [np.zeros(space.size, np.uint64) for space in walk.table.spaces]
    for bit, places in enumerate(seeds):
        for space, elements in places:
            wanted[space][elements] |= np.uint64(1 << bit)
    # In backward order, all readers of an instruction's results are visited before the instruction, so its wanted
    # elements are known.
    hit = np.zeros(len(walk.table), np.uint64)
    for step in sequence[::-1].tolist():
        bits = walk.backward(step, wanted)
        if bits:
            hit[step] = bits
    return Slice(hit, wanted)


def suspects(
    walk: Walk, sequence: Array, wrong: Sequence[Sequence[Elements]], right: Sequence[Sequence[Elements]]
) -> list[Suspect]:
    """Return the instructions that computed wrong elements, sorted by score.

    The score is Ochiai's, of spectrum-based fault localisation: wrong / sqrt(all wrong * (wrong + right)). The highest
    score comes first; among equal scores, the instruction that computed more wrong places comes first.
    """
    bad = wrong[:HALF]
    good = right[:HALF]
    hit = walk_back(walk, sequence, [*bad, *good]).hit
    # In a word, the low bits are the slices of wrong elements, and the bits above are the slices of correct elements.
    of_bad = np.bitwise_count(hit & np.uint64((1 << len(bad)) - 1)).astype(np.int64)
    of_good = np.bitwise_count(hit >> np.uint64(len(bad))).astype(np.int64) if good else np.zeros_like(of_bad)
    steps = np.flatnonzero(of_bad)
    score = of_bad[steps] / np.sqrt(len(bad) * (of_bad[steps] + of_good[steps]))
    best = np.lexsort((steps, -of_bad[steps], -score))
    columns = (part[best].tolist() for part in (steps, of_bad[steps], of_good[steps], score))
    return [Suspect(*row) for row in zip(*columns, strict=True)]


def evenly_spread(places: Array) -> Array:
    """Return at most EACH of the places, evenly spread."""
    return places if len(places) <= HALF else places[np.linspace(0, len(places) - 1, HALF).astype(int)]
