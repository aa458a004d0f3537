"""DRAM as two vectors of bytes: the segments stay what they were, and are written through either."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.errors import MachineError
from tilewright.program.launch_image import Dram, Segment


def dram() -> Dram:
    """A constant and an input of two samples."""
    constant = Segment("constant", 16, np.arange(8, dtype=np.uint8).reshape(1, 8), shared=True)
    return Dram([constant, Segment("input", 32, np.arange(20, 28, dtype=np.uint8).reshape(2, 4))])


def ranges(*spans: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    address, end = np.array(spans, np.int64).T
    return address, end


def test_the_pool_holds_every_segment() -> None:
    memory = dram()
    address, end = ranges((18, 20), (33, 36), (0, 0))
    content = memory["constant"]
    pool, shared, place = memory.pool(2, address, end, np.zeros(3, np.bool_))
    assert shared[place[0, 0]] == 2 and place[0, 1:].tolist() == [0, 1]  # shared by the samples
    assert np.shares_memory(shared, content) and not np.shares_memory(shared, pool)
    assert place[1:, 2].tolist() == [0, 0]
    assert [pool[place[1, 0] + sample * place[1, 1]] for sample in (0, 1)] == [21, 25]
    pool[place[1, 0]] = 99
    assert memory["input"].tolist() == [[20, 99, 22, 23], [24, 25, 26, 27]]


def test_a_written_constant_becomes_the_samples_own() -> None:
    memory = dram()
    content = memory["constant"]
    address, end = ranges((18, 20))
    pool, shared, place = memory.pool(2, address, end, np.ones(1, np.bool_))
    assert shared is pool and place[0, 2] == 0
    pool[place[0, 0] + place[0, 1]] = 99
    assert memory["constant"][:, 2].tolist() == [2, 99]
    assert content[0, 2] == 2


def test_a_segment_that_was_replaced_is_pooled_again() -> None:
    memory = dram()
    address, end = ranges((18, 20))
    first, *_ = memory.pool(2, address, end, np.zeros(1, np.bool_))
    memory.writable(2, 16, 1, 8, 8, "a store")[:] = 7
    second, _, place = memory.pool(2, address, end, np.zeros(1, np.bool_))
    assert first is not second
    assert second[place[0, 0]] == 7


def test_the_largest_shared_segment_is_not_copied() -> None:
    small = Segment("small", 0, np.full((1, 4), 3, np.uint8), shared=True)
    large = Segment("large", 16, np.arange(8, dtype=np.uint8).reshape(1, 8), shared=True)
    memory = Dram([small, large])
    address, end = ranges((1, 3), (17, 20), (16, 18))
    pool, shared, place = memory.pool(2, address, end, np.zeros(3, np.bool_))
    assert [(pool, shared)[vector][at] for at, _, vector in place] == [3, 1, 0]
    pool, shared, place = memory.pool(2, address, end, np.array([False, False, True]))  # now the other one is
    assert place[:, 2].tolist() == [1, 0, 0]
    assert [(pool, shared)[vector][at + pitch] for at, pitch, vector in place] == [3, 1, 0]


@pytest.mark.parametrize("span", [(8, 10), (22, 25), (40, 41)])
def test_a_range_outside_the_segments_is_refused(span: tuple[int, int]) -> None:
    address, end = ranges(span)
    with pytest.raises(MachineError, match="not inside one segment"):
        dram().pool(1, address, end, np.zeros(1, np.bool_))
