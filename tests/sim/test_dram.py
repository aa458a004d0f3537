"""DRAM as one vector of bytes, in which the segments are where they lie in memory."""

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


def test_the_vector_spans_every_segment() -> None:
    memory = dram()
    address, end = ranges((18, 20), (33, 36), (0, 0))
    content = memory["constant"]
    span, place = memory.span(2, address, end, np.zeros(3, np.bool_))
    assert span[place[0, 0]] == 2 and place[0, 1] == 0  # shared by the samples
    assert np.shares_memory(memory["constant"], content)  # not copied
    assert [span[place[1, 0] + sample * place[1, 1]] for sample in (0, 1)] == [21, 25]
    span[place[1, 0]] = 99
    assert memory["input"].tolist() == [[20, 99, 22, 23], [24, 25, 26, 27]]


def test_a_written_constant_becomes_the_samples_own() -> None:
    memory = dram()
    content = memory["constant"]
    address, end = ranges((18, 20))
    span, place = memory.span(2, address, end, np.ones(1, np.bool_))
    span[place[0, 0] + place[0, 1]] = 99
    assert memory["constant"][:, 2].tolist() == [2, 99]
    assert content[0, 2] == 2


def test_no_segments_and_no_ranges_span_nothing() -> None:
    nothing = np.zeros(0, np.int64)
    span, place = Dram([]).span(1, nothing, nothing, nothing.astype(np.bool_))
    assert span.size == 0 and place.shape == (0, 2)


@pytest.mark.parametrize("span", [(8, 10), (22, 25), (40, 41)])
def test_a_range_outside_the_segments_is_refused(span: tuple[int, int]) -> None:
    address, end = ranges(span)
    with pytest.raises(MachineError, match="not inside one segment"):
        dram().span(1, address, end, np.zeros(1, np.bool_))
