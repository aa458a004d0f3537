"""Backward slices: the instructions that computed an element, and the inputs that it came from; suspects of a fault.

A walk back through a launch follows up to 64 slices at once, one in each bit of a word (see sim.walk.Walk.backward).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.sim.walk import Elements, SliceBits, Walk

#: Slices of a walk back.
SLICES = 64
#: Slices of wrong elements that `suspects` compares, and as many of right ones.
HALF = SLICES // 2


class Slice(NamedTuple):
    """The slices of a walk back. Bit i is about slice i.

    `hit` uint64 [n] says which instructions computed elements of a slice. `left` has the elements of each space that
    the launch read but did not compute: inputs, weights, or memory that nothing has written.
    """

    hit: Array
    left: SliceBits


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
    # Backwards, an instruction is met after all that read its results: whether it computed a wanted element is known.
    hit = np.zeros(len(walk.table), np.uint64)
    for step in sequence[::-1].tolist():
        bits = walk.backward(step, wanted)
        if bits:
            hit[step] = bits
    return Slice(hit, wanted)


def suspects(
    walk: Walk, sequence: Array, wrong: Sequence[Sequence[Elements]], right: Sequence[Sequence[Elements]]
) -> list[Suspect]:
    """Return the instructions that computed wrong elements. Those that computed few right ones come first.

    The score is Ochiai's, of spectrum-based fault localisation: wrong / sqrt(all wrong * (wrong + right)). Among equal
    scores, an instruction goes first that computed more of the wrong places.
    """
    bad = wrong[:HALF]
    good = right[:HALF]
    hit = walk_back(walk, sequence, [*bad, *good]).hit
    # The slices of wrong elements are the low bits of a word, those of right ones the bits above.
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
