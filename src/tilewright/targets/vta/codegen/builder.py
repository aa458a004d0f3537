"""Tokens from slots: the compiler's way to the instruction buffer.

An instruction names the slots (parts of on-chip memories) that it reads and writes. It must follow the last
writer of what it reads, and the last writer and readers of what it writes; where that is another unit's
instruction and nothing has ordered the two yet, a token is pushed by the one and popped by the other. A queue's
tokens are thereby pushed and popped in the same order, each of them needed, none left over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.program.instruction import Raw
from tilewright.targets.vta.codegen.kernels import Dim
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import AluOp, Memory, Opcode
from tilewright.targets.vta.runtime.instructions import ONCE, InstructionBuffer, Loop

NOBODY = -1

#: A slot: (memory, number).
Slot = tuple[Memory, int]


@dataclass
class _Access:
    """The last instruction (row) that wrote a slot, and the last of each unit that has read it since."""

    writer: int = NOBODY
    readers: dict[int, int] = field(default_factory=dict)


class StreamBuilder:
    """Fills an instruction buffer; `encode` gives its code."""

    def __init__(self, config: Config) -> None:
        self._buffer = InstructionBuffer(config)
        count = len(self._buffer.pipeline.units)
        self._clocks: list[tuple[int, ...]] = []
        self._now = [(NOBODY,) * count] * count  # for each unit, the last row of each unit known to have ended
        self._slots: dict[Slot, _Access] = {}

    def load(self, memory: Memory, base: int, address: int, shape: tuple[int, int], stride: int, slot: Slot) -> None:
        """`shape` (rows, tiles a row) from DRAM tile `address` into tiles from `base` of INP or WGT."""
        self._follow(self._unit(Opcode.LOAD, memory), (), (slot,))
        self._buffer.transfer(Opcode.LOAD, memory, base, address, shape, stride)

    def load_uops(self, base: int, address: int, count: int) -> None:
        """`count` micro-ops."""
        self._follow(self._unit(Opcode.LOAD, Memory.UOP), (), ())
        self._buffer.load_uops(base, address, count)

    def store(self, base: int, address: int, shape: tuple[int, int], stride: int, slot: Slot) -> None:
        self._follow(self._unit(Opcode.STORE, Memory.OUT), (slot,), ())
        self._buffer.transfer(Opcode.STORE, Memory.OUT, base, address, shape, stride)

    def gemm(self, uops: range, outer: Dim, inner: Dim, reads: Sequence[Slot], acc: Slot, reset: bool = False) -> None:
        self._follow(self._unit(Opcode.GEMM), reads, (acc,))
        self._buffer.gemm(uops, _loop(outer), _loop(inner), reset)

    def alu(self, op: AluOp, uops: range, outer: Dim, inner: Dim, imm: int | None, acc: Slot) -> None:
        """`imm` None: the second operand is acc[src]."""
        self._follow(self._unit(Opcode.ALU), (), (acc,))
        self._buffer.alu(op, uops, _loop(outer), _loop(inner), imm)

    def finish(self) -> None:
        """FINISH, after every store and every load."""
        self._follow(self._unit(Opcode.FINISH), (), tuple(self._slots))
        self._buffer.finish()

    def encode(self) -> Raw:
        """uint8 [n, 16]."""
        return self._buffer.encode()

    def _unit(self, opcode: Opcode, memory: int = 0) -> int:
        return self._buffer.pipeline.unit_of(opcode, memory)

    def _follow(self, unit: int, reads: Sequence[Slot], writes: Sequence[Slot]) -> None:
        """Tokens for the instruction of `unit` that is added next."""
        buffer, index = self._buffer, len(self._buffer)
        needs = [NOBODY] * len(self._now)
        for slot in reads:
            access = self._slots.setdefault(slot, _Access())
            if access.writer != NOBODY:
                other = buffer.units[access.writer]
                needs[other] = max(needs[other], access.writer)
            access.readers[unit] = index
        for slot in writes:
            access = self._slots.setdefault(slot, _Access())
            if access.writer != NOBODY:
                other = buffer.units[access.writer]
                needs[other] = max(needs[other], access.writer)
            for other, reader in access.readers.items():
                if reader != index:
                    needs[other] = max(needs[other], reader)
            access.writer = index
            access.readers = {}
        known = self._now[unit]
        for other, row in enumerate(needs):
            if other != unit and row > known[other]:
                buffer.push_from(row, unit)
                buffer.dep_pop(other, unit)
                known = tuple(map(max, known, self._clocks[row]))
        self._now[unit] = (*known[:unit], index, *known[unit + 1 :])
        self._clocks.append(self._now[unit])


def _loop(dim: Dim) -> Loop:
    """The instruction's loop; one of a single step has no factors."""
    return Loop(dim.extent, dim.dst, dim.src, dim.wgt) if dim.extent > 1 else ONCE
