"""The parts of a debugger's walk that all machines share: states, ranges of DRAM, tensors, names of elements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest

from tilewright.array import Array
from tilewright.errors import InputError, MachineError
from tilewright.program.launch_image import Dram, Segment
from tilewright.sim.findings import OUT_OF_RANGE, RACE, Finding
from tilewright.sim.order import order
from tilewright.sim.steps import READ, WRITE, Footprints, Space, StepTable
from tilewright.sim.walk import (
    SUMS,
    PlacedTensor,
    Range,
    Scratchpad,
    State,
    Walk,
    by_name,
    numbers,
    ranges_by_address,
    refusals,
)

BUF, X, Y = range(3)
AT_X, AT_Y = 0x100, 0x200


@dataclass
class Memories:
    """A machine that copies bytes from x to buf, and from buf to y."""

    buf: Array
    dram: Dram

    def copy(self) -> Memories:
        return Memories(self.buf.copy(), self.dram.copy())


class CopyState(State):
    machine: Memories

    def execute(self, steps: Array) -> None:
        for step in steps.tolist():
            if step == 0:
                self.machine.buf[0] = self.machine.dram.window(AT_X, 1, 4, 0, "")[0, 0]
            else:
                self.machine.dram.writable(1, AT_Y, 1, 4, 0, "")[0, 0] = self.machine.buf[0]


class CopyWalk(Walk):
    numbers = SUMS  # the type of what DRAM holds of the result

    def __init__(self) -> None:
        rows = [
            np.array([[X, READ, 0, 4, 1, 0], [BUF, WRITE, 0, 4, 1, 0]]),
            np.array([[BUF, READ, 0, 4, 1, 0], [Y, WRITE, 0, 4, 1, 0]]),
        ]
        none = np.zeros(2, np.int64)
        table = StepTable(
            units=("dma",),
            queues=(),
            spaces=(Space("buf", 4, scratchpad="buf"), Space("DRAM x", 4, ((0, 4),)), Space("DRAM y", 8)),
            unit=none,
            pops=none,
            pushes=none,
            footprint=np.arange(2),
            footprints=Footprints.of(rows),
            describe=lambda step: f"{['load', 'store'][step]} 4 bytes",
        )
        super().__init__("copy", (), table, order(table))
        self.memories = by_name(Scratchpad("buf", 4, (), "uint8", "one byte", BUF))
        self.segments = ranges_by_address([("y", AT_Y, 8, "output"), ("x", AT_X, 4, "input")], X)

    @property
    def placements(self) -> Mapping[str, PlacedTensor]:
        x, y = AT_X + np.arange(4).reshape(2, 2, 1), AT_Y + np.arange(8).reshape(2, 4)
        return {"in": PlacedTensor("in", "", x, True), "out": PlacedTensor("out", "copy", y, False, self.numbers)}

    def unpacked(self, state: State) -> Mapping[str, Array]:
        return {"out": np.array([[7, 8]])}

    def start(self) -> CopyState:
        x = np.array([[1, 2, 3, 0xFF]], np.uint8)
        segments = [Segment("x", AT_X, x, True, True), Segment("y", AT_Y, np.zeros((1, 8), np.uint8))]
        return CopyState(self, Memories(np.zeros((1, 4), np.uint8), Dram(segments)))


@pytest.fixture
def walk() -> CopyWalk:
    return CopyWalk()


def test_a_copy_does_not_change_with_the_state_and_counts_what_it_keeps(walk: CopyWalk) -> None:
    state = walk.start()
    assert state.nbytes == 4
    before = state.copy()
    assert before.nbytes == 4 + 8  # y was nobody else's yet
    assert before.copy().nbytes == 4  # nothing was written since
    state.execute(np.array([0, 1]))
    assert state.memory("buf").tolist() == state.dram(AT_Y, 4).tolist() == [1, 2, 3, 0xFF]
    assert before.memory("buf").tolist() == before.dram(AT_Y, 4).tolist() == [0] * 4
    assert before.walk is walk and type(before) is CopyState
    after = state.copy()
    assert after.nbytes == 4 + 8
    assert after.dram(AT_Y, 8).tolist() == [1, 2, 3, 0xFF, 0, 0, 0, 0]
    with pytest.raises(MachineError):
        state.dram(AT_X, 5)


def test_what_a_walk_says_of_instructions(walk: CopyWalk) -> None:
    assert walk.layers == ("copy",) and walk.layer.tolist() == [0, 0]
    assert walk.order.sequence.tolist() == [0, 1]
    assert (walk.unit_of(1), walk.layer_of(1), walk.text(1), walk.operation(1)) == (
        "dma",
        "copy",
        "store 4 bytes",
        "store",
    )
    assert (walk.findings, walk.trace, walk.refused, walk.details(0), walk.operands(0)) == ((), None, {}, (), {})


def test_segments_have_spaces_of_their_own_by_address(walk: CopyWalk) -> None:
    assert walk.segments == (Range("x", AT_X, 4, "input", X, AT_X), Range("y", AT_Y, 8, "output", Y, AT_Y))
    assert walk.segments[1].end == AT_Y + 8
    assert [part.name for part in ranges_by_address([("b", 8, 1, "const"), ("a", 0, 2, "const")], 0)] == ["a", "b"]
    assert [(space, found.tolist()) for space, found in walk.at(np.array([AT_X, AT_X + 3, AT_Y + 7]))] == [
        (X, [0, 3]),
        (Y, [7]),
    ]
    assert walk.at(np.array([AT_X - 1, AT_X + 4, AT_Y + 8])) == []
    assert walk.segment_at(Y, 7) == (walk.segments[1], 7)
    assert walk.segment_at(Y, 8) is None and walk.segment_at(BUF, 0) is None
    assert (walk.shown(Y, 6), walk.shown(BUF, 3), walk.shown(X, 0)) == ("dram.y[6:7]", "buf[3]", "dram.x[0:1]")
    (own,) = walk.in_memory("buf", (slice(1, 3),))
    assert own[0] == BUF and own[1].tolist() == [1, 2]
    assert [part.tolist() for _, part in walk.in_memory("buf", ())] == [[0, 1, 2, 3]]
    assert [part.tolist() for _, part in walk.in_memory("buf", (2,))] == [[2]]


def test_granules_of_dram(walk: CopyWalk) -> None:
    """One space with elements of 4 bytes for all of DRAM: the segment y begins in the middle of one."""
    walk.granule = 4
    walk.segments = (Range("x", 8, 8, "input", X), Range("y", 18, 9, "output", X))
    assert [(space, found.tolist()) for space, found in walk.at(np.array([8, 11, 12, 26]))] == [(X, [2, 3, 6])]
    assert walk.shown(X, 2) == "dram.x[0:4]" and walk.shown(X, 5) == "dram.y[2:6]"
    assert walk.shown(X, 6) == "dram.y[6:9]" and walk.shown(X, 4) == "DRAM x[4]"


def test_tensors_follow_from_their_places(walk: CopyWalk) -> None:
    assert walk.tensors == ("in", "out")
    assert walk.placed("in").byte.tolist() == [[[0x100], [0x101]], [[0x102], [0x103]]]
    assert walk.placed("in").is_code and not walk.placed("out").is_code
    assert walk.placed("out").byte.tolist() == [[0x200, 0x201, 0x202, 0x203], [0x204, 0x205, 0x206, 0x207]]
    state = walk.start()
    state.execute(np.array([0, 1]))
    assert walk.value(state, "in").tolist() == [[1, 2], [3, -1]]
    assert walk.value(state, "out").tolist() == [7, 8]
    sums = walk.sums(state, "out")
    assert sums is not None and sums[0].dtype == sums[1].dtype == np.int64
    assert (sums[0].tolist(), sums[1].tolist()) == ([-0xFCFDFF, 0], [0, 0])
    assert walk.sums(state, "in") is None
    walk.numbers = "int8"
    assert walk.sums(state, "out") is None  # stored as codes
    with pytest.raises(InputError, match=r"tensor 'other'.*not in the memories of launch 'copy'.*in, out"):
        walk.placed("other")


def test_numbers_without_a_place_are_zero(walk: CopyWalk) -> None:
    state = walk.start()
    byte = np.array([[AT_X + 2, AT_X + 3], [-1, -1], [AT_X, AT_X + 1]])
    assert numbers(state, byte, "<i2").tolist() == [-0xFD, 0, 0x201]
    assert numbers(state, np.full((2, 1), -1), "int8").tolist() == [0, 0]
    first = CopyState(walk, Memories(state.machine.buf, Dram([Segment("z", 0, np.array([[5, 6]], np.uint8))])))
    assert numbers(first, np.array([[0], [1]]), "int8").tolist() == [5, 6]  # 0 is an address


def test_a_slice_goes_back_by_footprints(walk: CopyWalk) -> None:
    wanted = [np.zeros(space.size, np.uint64) for space in walk.table.spaces]
    wanted[Y][:] = [0, 1, 2, 0, 4, 0, 0, 0]
    assert walk.backward(1, wanted) == 3
    assert wanted[Y].tolist() == [0, 0, 0, 0, 4, 0, 0, 0] and wanted[BUF].tolist() == [3] * 4
    assert walk.backward(0, wanted) == 3
    assert wanted[BUF].tolist() == [0] * 4 and wanted[X].tolist() == [3] * 4
    assert walk.backward(1, wanted) == 0 and wanted[BUF].tolist() == [0] * 4
    rows = [np.array([[X, READ, 3, 1, 1, 0], [Y, WRITE, 0, 2, 2, 3]]), np.zeros((0, 6), np.int64)]
    walk.table = replace(walk.table, footprints=Footprints.of(rows))
    wanted[Y][:] = 1
    wanted[X][:] = 0
    assert walk.backward(0, wanted) == 1
    assert (wanted[Y].tolist(), wanted[X].tolist()) == ([0, 0, 1, 0, 0, 1, 1, 1], [0, 0, 0, 1])


def test_only_accesses_out_of_range_are_refused() -> None:
    findings = [
        Finding(OUT_OF_RANGE, "reads behind buf", (3, 4)),
        Finding(RACE, "no token", (1,)),
        Finding(OUT_OF_RANGE, "somewhere", ()),
    ]
    assert refusals(findings) == {3: "reads behind buf"}
