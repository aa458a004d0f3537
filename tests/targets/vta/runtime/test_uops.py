"""Micro-op lists and the cache: what is loaded where, under both policies."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.targets.vta.config import PRESETS
from tilewright.targets.vta.isa.instructions import Policy, UopCache, UopLists, ahead, alone

OFFSETS = [0, 3, 5, 9, 10]


def cache(offsets: list[int], policy: Policy, depth: int = 8) -> tuple[UopCache, list[tuple[int, int, int]]]:
    loads: list[tuple[int, int, int]] = []
    return UopCache(offsets, depth, lambda base, offset, count: loads.append((base, offset, count)), policy), loads


@pytest.mark.parametrize("policy", [alone, ahead])
def test_the_write_pointer_goes_round_and_evicts(policy: Policy) -> None:
    """A quarter of this buffer is less than the lists, so both policies load them one by one."""
    made, loads = cache(OFFSETS, policy)
    assert made.find(0) == range(3)
    assert made.find(1) == range(3, 5)
    assert made.find(0) == range(3)  # still there
    assert made.find(2) == range(4)  # round, over lists 0 and 1
    assert made.find(3) == range(4, 5)
    assert made.find(0) == range(5, 8)
    assert made.find(2) == range(4)
    assert made.find(1) == range(2)  # the end is reached: over list 2
    assert made.find(3) == range(4, 5)  # not touched
    assert loads == [(0, 0, 3), (3, 3, 2), (0, 5, 4), (4, 9, 1), (5, 0, 3), (0, 3, 2)]


def test_what_fits_comes_together_or_alone() -> None:
    made, loads = cache([0, 3, 5], ahead)
    assert (made.find(1), made.find(0)) == (range(2), range(2, 5))  # each with what follows it
    assert loads == [(0, 3, 2), (2, 0, 5)]
    made, loads = cache([0, 3, 5], ahead)
    assert (made.find(0), made.find(1)) == (range(3), range(3, 5))
    assert loads == [(0, 0, 5)]
    made, loads = cache([0, 3, 5], alone)
    assert (made.find(0), made.find(1)) == (range(3), range(3, 5))
    assert loads == [(0, 0, 3), (3, 3, 2)]


def test_ahead_takes_a_quarter_of_the_buffer() -> None:
    made, loads = cache([0, 1, 2, 3, 9, 20], ahead, depth=16)
    assert made.find(0) == range(1)
    assert made.find(2) == range(2, 3)
    assert loads == [(0, 0, 3)]


def test_lists_grow_under_the_cache() -> None:
    lists = UopLists()
    made, loads = cache(lists.offsets, alone)
    one, two = (np.array([tiles] * 3).tobytes() for tiles in ([4], [5, 6]))
    assert made.find(lists.add(one)) == range(1)
    assert made.find(lists.add(two)) == range(1, 3)
    assert made.find(lists.add(one)) == range(1)  # an equal list is the same
    assert loads == [(0, 0, 1), (1, 1, 2)]
    raw = lists.encode(PRESETS["pynq"])
    assert raw.view("<u4").reshape(-1).tolist() == [i | i << 11 | i << 22 for i in (4, 5, 6)]
    assert UopLists().encode(PRESETS["pynq"]).shape == (0, 4)
