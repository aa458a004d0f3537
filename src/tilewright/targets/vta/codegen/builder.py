"""Instruction streams: units in program order, tokens from what each instruction reads and writes, micro-op cache.

An instruction names the slots (parts of memories) that it reads and writes. It must follow the last
writer of what it reads, and the last writer and readers of what it writes; where that is another unit's
instruction and nothing has ordered the two yet, a token is pushed by the one and popped by the other. A queue's
tokens are thereby pushed and popped in the same order, each of them needed, none left over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from tilewright.array import Array
from tilewright.program.instruction import Raw
from tilewright.targets.vta.codegen.kernels import ONE, Dim
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import INSN_BYTES, AluOp, Memory, Opcode
from tilewright.targets.vta.isa.pipeline import POP_BITS, PUSH_BITS
from tilewright.targets.vta.isa.stream import Alu, Gemm, Mem, Stream, encode

#: Rows of a stream under construction: opcode, the token bits, then the format's fields.
BITS = {bit: 1 + index for index, bit in enumerate((*POP_BITS, *PUSH_BITS))}
NOBODY = -1
MEM_FIELDS, GEMM_FIELDS, ALU_FIELDS = (len(part.__dataclass_fields__) for part in (Mem, Gemm, Alu))

#: A part of a memory: (memory, first tile, one past the last).
Slot = tuple[Memory, int, int]


@dataclass
class _Access:
    """The last instruction (row) that wrote a slot, and the last of each unit that has read it since.

    `others`: of slots that share tiles with it, as layers divide a memory differently.
    """

    writer: int = NOBODY
    readers: dict[int, int] = field(default_factory=dict)
    others: list[_Access] = field(default_factory=list)


class StreamBuilder:
    """Collects instructions; `encode` gives their code."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.rows: list[list[int]] = []
        self.units: list[int] = []
        self._line = config.pipeline
        count = len(self._line.units)
        self._clocks: list[tuple[int, ...]] = []
        self._now = [(NOBODY,) * count] * count  # for each unit, the last row of each unit known to have ended
        self._slots: dict[Slot, _Access] = {}

    def load(
        self,
        memory: Memory,
        base: int,
        address: int,
        shape: tuple[int, int],
        stride: int,
        slot: Slot,
        after: int = NOBODY,
    ) -> None:
        """`shape` (rows, tiles a row) from DRAM tile `address` into tiles from `base` of INP, WGT or PAR.

        `after`: the STORE, by row, that must have ended.
        """
        row = [Opcode.LOAD, 0, 0, 0, 0, memory, base, address, *shape, stride, 0, 0, 0, 0]
        self._add(int(self._line.takes[Opcode.LOAD, memory]), row, (), (slot,), after)

    def load_uops(self, base: int, address: int, count: int, memory: Memory = Memory.UOP) -> None:
        """`count` micro-ops; one row, as HLS has no other."""
        row = [Opcode.LOAD, 0, 0, 0, 0, memory, base, address, 1, count, count, 0, 0, 0, 0]
        self._add(self._line.alu if memory == Memory.ALU_UOP else self._line.gemm, row, (), ())

    def store(
        self,
        base: int,
        address: int,
        shape: tuple[int, int],
        stride: int,
        slot: Slot,
    ) -> int:
        """Returns the row of the instruction."""
        row = [Opcode.STORE, 0, 0, 0, 0, Memory.OUT, base, address, *shape, stride, 0, 0, 0, 0]
        return self._add(self._line.store, row, (_out(slot),), ())

    def gemm(self, uops: range, outer: Dim, inner: Dim, reads: Sequence[Slot], slot: Slot, reset: bool = False) -> None:
        loops = [uops.start, uops.stop, outer.extent, inner.extent]
        row = [Opcode.GEMM, 0, 0, 0, 0, int(reset), *loops, *_pairs(outer, inner, 3)]
        self._add(self._line.gemm, row, reads, (slot, _out(slot)) if self.config.stages == 3 else (slot,))

    def alu(
        self,
        op: AluOp,
        uops: range,
        outer: Dim,
        inner: Dim,
        imm: int | None,
        slot: Slot,
        reads: Sequence[Slot] = (),
        factor: int = 0,
    ) -> None:
        """`imm` None: the second operand is acc[src]; `factor`: of REQ, tiles of par added an outer iteration."""
        loops = [uops.start, uops.stop, outer.extent, inner.extent]
        last = [op, int(imm is not None), factor if imm is None else imm]
        row = [Opcode.ALU, 0, 0, 0, 0, 0, *loops, *_pairs(outer, inner, 2), *last]
        self._add(self._line.alu, row, reads, (slot, _out(slot)))

    def finish(self) -> None:
        """FINISH, after every store and every load."""
        self._add(self._line.alu, [Opcode.FINISH, 0, 0, 0, 0], (), tuple(self._slots))

    def _add(
        self, unit: int, row: list[int], reads: Sequence[Slot], writes: Sequence[Slot], after: int = NOBODY
    ) -> int:
        needs = self._needs(reads, writes)
        if after != NOBODY:
            needs[self.units[after]] = max(needs[self.units[after]], after)
        for other in sorted(range(len(needs)), key=lambda other: -abs(other - unit)):
            if abs(other - unit) > 1 and needs[other] > self._now[unit][other]:
                between = other + (1 if unit > other else -1)
                needs[between] = max(needs[between], self._carrier(between, other, needs[other]))
        index = self._append(unit, row, needs)
        for slot in reads:
            self._slots[slot].readers[unit] = index
        for slot in writes:
            access = self._slots[slot]
            access.writer = index
            access.readers.clear()
        return index

    def _needs(self, reads: Sequence[Slot], writes: Sequence[Slot]) -> list[int]:
        """For each unit, the last row that must have ended."""
        needs = [NOBODY] * len(self._line.units)
        for slot in reads:  # it has been written, after all uses of other slots there
            _wait(needs, self._access(slot).writer, self.units)
        for slot in writes:
            own = self._access(slot)
            for access in (own, *own.others):
                for row in (access.writer, *access.readers.values()):
                    _wait(needs, row, self.units)
        return needs

    def _access(self, slot: Slot) -> _Access:
        if slot not in self._slots:
            new, (memory, low, high) = _Access(), slot
            for (other, a, b), used in self._slots.items():
                if other == memory and a < high and low < b:
                    new.others.append(used)
                    used.others.append(new)
            self._slots[slot] = new
        return self._slots[slot]

    def _carrier(self, unit: int, other: int, need: int) -> int:
        """The first row of `unit` that follows row `need` of its neighbour `other`; a NOP where there is none yet."""
        found = NOBODY
        for index in range(len(self.rows) - 1, need, -1):
            if self.units[index] == unit:
                if self._clocks[index][other] < need:
                    break
                found = index
        if found != NOBODY:
            return found
        memory = Memory.ALU_UOP if unit == self._line.alu != self._line.gemm else Memory.UOP
        needs = [NOBODY] * len(self._line.units)
        needs[other] = need
        return self._append(unit, [Opcode.LOAD, 0, 0, 0, 0, memory, *[0] * (MEM_FIELDS - 1)], needs)

    def _append(self, unit: int, row: list[int], needs: Sequence[int]) -> int:
        """Add a row that waits for its neighbours' rows `needs`; returns its index."""
        index, known = len(self.rows), list(self._now[unit])
        for pop in POP_BITS:
            other = self._line.neighbour(unit, pop)
            if other is not None and needs[other] > known[other]:
                push = PUSH_BITS[1 - POP_BITS.index(pop)]
                row[BITS[pop]] = 1
                self.rows[needs[other]][BITS[push]] = 1
                known = [max(a, b) for a, b in zip(known, self._clocks[needs[other]], strict=True)]
        known[unit] = index
        self._now[unit] = tuple(known)
        self._clocks.append(self._now[unit])
        self.rows.append(row)
        self.units.append(unit)
        return index

    def encode(self) -> Raw:
        """uint8 [n, 16]."""
        count = len(self.rows)
        opcode, *tokens = np.array([row[:5] for row in self.rows], np.int64).reshape(count, 5).T
        mem = self._part((opcode == Opcode.LOAD) | (opcode == Opcode.STORE), MEM_FIELDS)
        gemm = self._part(opcode == Opcode.GEMM, GEMM_FIELDS)
        alu = self._part(opcode == Opcode.ALU, ALU_FIELDS)
        reserved = np.zeros((count, INSN_BYTES), np.uint8)
        pop_prev, pop_next, push_prev, push_next = tokens
        stream = Stream(opcode, pop_prev, pop_next, push_prev, push_next, Mem(*mem), Gemm(*gemm), Alu(*alu), reserved)
        return encode(stream, self.config)

    def _part(self, mine: Array, width: int) -> Array:
        """The fields after the common ones, int64 [width, n], 0 in rows of other formats."""
        columns = np.zeros((len(self.rows), width), np.int64)
        rows = np.flatnonzero(mine)
        if rows.size:
            columns[rows] = [self.rows[row][5:] for row in rows.tolist()]
        return columns.T


def _wait(needs: list[int], row: int, units: Sequence[int]) -> None:
    """Have a row, if it is one, among those that must have ended."""
    if row != NOBODY:
        needs[units[row]] = max(needs[units[row]], row)


def _out(slot: Slot) -> Slot:
    """The part of the out memory with the results of a part of acc."""
    return Memory.OUT, slot[1], slot[2]


def _pairs(outer: Dim, inner: Dim, memories: int) -> list[int]:
    """Loop factors, out before in for each memory; a loop of one step has none."""
    out = outer if outer.extent > 1 else ONE
    into = inner if inner.extent > 1 else ONE
    return [dim[1 + memory] for memory in range(memories) for dim in (out, into)]
