"""Tokens from slots: the compiler's way to the instruction buffer.

An instruction names the slots (parts of memories) that it reads and writes. It must follow the last
writer of what it reads, and the last writer and readers of what it writes; where that is another unit's
instruction and nothing has ordered the two yet, a token is pushed by the one and popped by the other. A queue's
tokens are thereby pushed and popped in the same order, each of them needed, none left over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tilewright.program.instruction import Raw
from tilewright.targets.vta.compiler.tile_kernels import Dim
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.fields import Memory, Opcode
from tilewright.targets.vta.runtime.instructions import ONCE, InstructionBuffer, Loop

NOBODY = -1

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
    """Fills an instruction buffer; `encode` gives its code."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._buffer = InstructionBuffer(config)
        self._line = config.pipeline
        count = len(self._line.units)
        self._clocks: list[tuple[int, ...]] = []
        self._now = [(NOBODY,) * count] * count  # for each unit, the last row of each unit known to have ended
        self._slots: dict[Slot, _Access] = {}

    def __len__(self) -> int:
        return len(self._buffer)

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
        self._follow(self._line.unit_of(Opcode.LOAD, memory), (), (slot,), after)
        self._buffer.transfer(Opcode.LOAD, memory, base, address, shape, stride)

    def load_uops(self, memory: Memory, base: int, address: int, count: int) -> None:
        """`count` micro-ops."""
        self._follow(self._line.unit_of(Opcode.LOAD, memory), (), ())
        self._buffer.load_uops(memory, base, address, count)

    def store(self, base: int, address: int, shape: tuple[int, int], stride: int, slot: Slot) -> int:
        """Returns the row of the instruction."""
        self._follow(self._line.store, (_out(slot),), ())
        return self._buffer.transfer(Opcode.STORE, Memory.OUT, base, address, shape, stride)

    def gemm(self, uops: range, outer: Dim, inner: Dim, reads: Sequence[Slot], slot: Slot, reset: bool = False) -> None:
        self._follow(self._line.gemm, reads, (slot, _out(slot)) if self.config.stages == 3 else (slot,))
        self._buffer.gemm(uops, _loop(outer), _loop(inner), reset)

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
        self._follow(self._line.alu, reads, (slot, _out(slot)))
        self._buffer.alu(op, uops, _loop(outer)._replace(wgt=factor), _loop(inner), imm)

    def finish(self) -> None:
        """FINISH, after every store and every load."""
        self._follow(self._line.home, (), tuple(self._slots))
        self._buffer.finish()

    def encode(self) -> Raw:
        """uint8 [n, 16]."""
        return self._buffer.encode()

    def _follow(self, unit: int, reads: Sequence[Slot], writes: Sequence[Slot], after: int = NOBODY) -> None:
        """Tokens for the instruction of `unit` that is added next."""
        needs, units = self._needs(reads, writes), self._buffer.units
        if after != NOBODY:
            needs[units[after]] = max(needs[units[after]], after)
        for other in sorted(range(len(needs)), key=lambda other: -abs(other - unit)):
            if abs(other - unit) > 1 and needs[other] > self._now[unit][other]:
                between = other + (1 if unit > other else -1)
                needs[between] = max(needs[between], self._carrier(between, other, needs[other]))
        index = self._wait(unit, needs)
        for slot in reads:
            self._slots[slot].readers[unit] = index
        for slot in writes:
            access = self._slots[slot]
            access.writer = index
            access.readers.clear()

    def _needs(self, reads: Sequence[Slot], writes: Sequence[Slot]) -> list[int]:
        """For each unit, the last row that must have ended."""
        needs = [NOBODY] * len(self._line.units)
        for slot in reads:  # it has been written, after all uses of other slots there
            _wait(needs, self._access(slot).writer, self._buffer.units)
        for slot in writes:
            own = self._access(slot)
            for access in (own, *own.others):
                for row in (access.writer, *access.readers.values()):
                    _wait(needs, row, self._buffer.units)
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
        for index in range(len(self) - 1, need, -1):
            if self._buffer.units[index] == unit:
                if self._clocks[index][other] < need:
                    break
                found = index
        if found != NOBODY:
            return found
        needs = [NOBODY] * len(self._line.units)
        needs[other] = need
        index = self._wait(unit, needs)
        self._buffer.commit(unit)
        return index

    def _wait(self, unit: int, needs: Sequence[int]) -> int:
        """Tokens of its neighbours' rows `needs` for the instruction of `unit` that is added next; its row."""
        index, known = len(self), self._now[unit]
        for other in (unit - 1, unit + 1):
            if (other, unit) in self._line.links and needs[other] > known[other]:
                self._buffer.push_from(needs[other], unit)
                self._buffer.dep_pop(other, unit)
                known = tuple(map(max, known, self._clocks[needs[other]]))
        self._now[unit] = (*known[:unit], index, *known[unit + 1 :])
        self._clocks.append(self._now[unit])
        return index


def _wait(needs: list[int], row: int, units: Sequence[int]) -> None:
    """Have a row, if it is one, among those that must have ended."""
    if row != NOBODY:
        needs[units[row]] = max(needs[units[row]], row)


def _out(slot: Slot) -> Slot:
    """The part of the out memory with the results of a part of acc."""
    return Memory.OUT, slot[1], slot[2]


def _loop(dim: Dim) -> Loop:
    """The instruction's loop; one of a single step has no factors."""
    return Loop(dim.extent, dim.dst, dim.src, dim.wgt) if dim.extent > 1 else ONCE
