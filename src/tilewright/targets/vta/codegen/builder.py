"""Instruction streams: units in program order, tokens from what each instruction reads and writes, micro-op cache.

An instruction names the slots (parts of on-chip memories) that it reads and writes. It must follow the last
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
from tilewright.targets.vta.isa.fields import INSN_BYTES, AluOp, Memory, Opcode, Unit
from tilewright.targets.vta.isa.stream import Alu, Gemm, Mem, Stream, encode

#: Rows of a stream under construction: opcode, pop_prev, pop_next, push_prev, push_next, then the format's fields.
POP_PREV, POP_NEXT, PUSH_PREV, PUSH_NEXT = range(1, 5)
#: (pop bit of the consumer, push bit of the producer) for a token from unit a to unit b.
TOKEN = {
    (Unit.LOAD, Unit.COMPUTE): (POP_PREV, PUSH_NEXT),
    (Unit.COMPUTE, Unit.LOAD): (POP_NEXT, PUSH_PREV),
    (Unit.COMPUTE, Unit.STORE): (POP_PREV, PUSH_NEXT),
    (Unit.STORE, Unit.COMPUTE): (POP_NEXT, PUSH_PREV),
}
NOBODY = -1
MEM_FIELDS, GEMM_FIELDS, ALU_FIELDS = (len(part.__dataclass_fields__) for part in (Mem, Gemm, Alu))

#: A slot: (memory, number).
Slot = tuple[Memory, int]


@dataclass
class _Access:
    """The last instruction (row) that wrote a slot, and the last of each unit that has read it since."""

    writer: int = NOBODY
    readers: dict[Unit, int] = field(default_factory=dict)


class StreamBuilder:
    """Collects instructions; `encode` gives their code."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.rows: list[list[int]] = []
        self.units: list[Unit] = []
        self._clocks: list[tuple[int, int, int]] = []
        self._now = [(NOBODY, NOBODY, NOBODY)] * 3  # for each unit, the last row of each unit known to have ended
        self._slots: dict[Slot, _Access] = {}

    def load(self, memory: Memory, base: int, address: int, shape: tuple[int, int], stride: int, slot: Slot) -> None:
        """`shape` (rows, tiles a row) from DRAM tile `address` into tiles from `base` of INP or WGT."""
        self._add(Unit.LOAD, [Opcode.LOAD, 0, 0, 0, 0, memory, base, address, *shape, stride, 0, 0, 0, 0], (), (slot,))

    def load_uops(self, base: int, address: int, count: int) -> None:
        """`count` micro-ops; one row, as HLS has no other."""
        row = [Opcode.LOAD, 0, 0, 0, 0, Memory.UOP, base, address, 1, count, count, 0, 0, 0, 0]
        self._add(Unit.COMPUTE, row, (), ())

    def store(self, base: int, address: int, shape: tuple[int, int], stride: int, slot: Slot) -> None:
        row = [Opcode.STORE, 0, 0, 0, 0, Memory.OUT, base, address, *shape, stride, 0, 0, 0, 0]
        self._add(Unit.STORE, row, (slot,), ())

    def gemm(self, uops: range, outer: Dim, inner: Dim, reads: Sequence[Slot], acc: Slot, reset: bool = False) -> None:
        loops = [uops.start, uops.stop, outer.extent, inner.extent]
        factors = _pairs(outer, inner, 3)
        self._add(Unit.COMPUTE, [Opcode.GEMM, 0, 0, 0, 0, int(reset), *loops, *factors], reads, (acc,))

    def alu(self, op: AluOp, uops: range, outer: Dim, inner: Dim, imm: int | None, acc: Slot) -> None:
        """`imm` None: the second operand is acc[src]."""
        loops = [uops.start, uops.stop, outer.extent, inner.extent]
        row = [Opcode.ALU, 0, 0, 0, 0, 0, *loops, *_pairs(outer, inner, 2), op, int(imm is not None), imm or 0]
        self._add(Unit.COMPUTE, row, (), (acc,))

    def finish(self) -> None:
        """FINISH, after every store and every load."""
        self._add(Unit.COMPUTE, [Opcode.FINISH, 0, 0, 0, 0], (), tuple(self._slots))

    def _add(self, unit: Unit, row: list[int], reads: Sequence[Slot], writes: Sequence[Slot]) -> None:
        index = len(self.rows)
        needs = [NOBODY, NOBODY, NOBODY]
        for slot in reads:
            access = self._slots.setdefault(slot, _Access())
            if access.writer != NOBODY:
                other = self.units[access.writer]
                needs[other] = max(needs[other], access.writer)
            access.readers[unit] = index
        for slot in writes:
            access = self._slots.setdefault(slot, _Access())
            if access.writer != NOBODY:
                other = self.units[access.writer]
                needs[other] = max(needs[other], access.writer)
            for other, reader in access.readers.items():
                if reader != index:
                    needs[other] = max(needs[other], reader)
            access.writer = index
            access.readers = {}
        known = list(self._now[unit])
        for other in Unit:
            need = needs[other]
            if other != unit and need > known[other]:
                pop, push = TOKEN[other, unit]
                row[pop] = 1
                self.rows[need][push] = 1
                known = [max(a, b) for a, b in zip(known, self._clocks[need], strict=True)]
        known[unit] = index
        clock = (known[0], known[1], known[2])
        self._now[unit] = clock
        self._clocks.append(clock)
        self.rows.append(row)
        self.units.append(unit)

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


def _pairs(outer: Dim, inner: Dim, memories: int) -> list[int]:
    """Loop factors, out before in for each memory; a loop of one step has none."""
    out = outer if outer.extent > 1 else ONE
    into = inner if inner.extent > 1 else ONE
    return [dim[1 + memory] for memory in range(memories) for dim in (out, into)]
