"""Tokens from slots: the compiler's way to the instruction buffer.

An instruction names the slots (parts of memories) that it reads and writes. It must follow the last
writer of what it reads, and the last writer and readers of what it writes; where that is another unit's
instruction and nothing has ordered the two yet, a token is pushed by the one and popped by the other. A queue's
tokens are thereby pushed and popped in the same order, each of them needed, none left over.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.schedule.slots import NOBODY, Part, Parts
from tilewright.targets.vta.compiler.tile_kernels import Dim
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.fields import Memory, Opcode
from tilewright.targets.vta.runtime.instructions import ONCE, InstructionBuffer, Loop


class StreamBuilder:
    """Fills the instruction buffer `buffer`."""

    def __init__(self, config: Config) -> None:
        self.buffer = InstructionBuffer(config)
        self._line = config.pipeline
        count = len(self._line.units)
        self._parts = Parts(count)
        self._clocks: list[tuple[int, ...]] = []
        self._now = [(NOBODY,) * count] * count  # for each unit, the last row of each unit known to have ended
        self._far = [  # the units beyond the neighbours, the farthest first
            sorted((v for v in range(count) if abs(u - v) > 1), key=lambda v: -abs(u - v)) for u in range(count)
        ]

    def __len__(self) -> int:
        return len(self.buffer)

    def part(self, memory: Memory, low: int, high: int) -> Part:
        """The part of a memory from tile `low` to tile `high` - 1."""
        return self._parts.of(memory, low, high)

    def load(
        self,
        memory: Memory,
        base: int,
        address: int,
        shape: tuple[int, int],
        stride: int,
        slot: Part,
        after: int = NOBODY,
    ) -> None:
        """`shape` (rows, tiles a row) from DRAM tile `address` into tiles from `base` of INP, WGT or PAR.

        `after`: the STORE, by row, that must have ended.
        """
        self._follow(self._line.unit_of(Opcode.LOAD, memory), (), (slot,), after)
        self.buffer.transfer(Opcode.LOAD, memory, base, address, shape, stride)

    def load_uops(self, memory: Memory, base: int, address: int, count: int) -> None:
        """`count` micro-ops."""
        self._follow(self._line.unit_of(Opcode.LOAD, memory), (), ())
        self.buffer.load_uops(memory, base, address, count)

    def store(self, base: int, address: int, shape: tuple[int, int], stride: int, out: Part) -> int:
        """Returns the row of the instruction."""
        self._follow(self._line.store, (out,), ())
        return self.buffer.transfer(Opcode.STORE, Memory.OUT, base, address, shape, stride)

    def gemm(
        self, uops: range, outer: Dim, inner: Dim, reads: Sequence[Part], writes: Sequence[Part], reset: bool
    ) -> None:
        """`writes`: accumulators, and results where the unit writes those too."""
        self._follow(self._line.gemm, reads, writes)
        self.buffer.gemm(uops, _loop(outer), _loop(inner), reset)

    def alu(
        self,
        op: AluOp,
        uops: range,
        outer: Dim,
        inner: Dim,
        imm: int | None,
        reads: Sequence[Part],
        writes: Sequence[Part],
        factor: int = 0,
    ) -> None:
        """`imm` None: the second operand is acc[src]; `factor`: of REQ, tiles of par added an outer iteration."""
        self._follow(self._line.alu, reads, writes)
        self.buffer.alu(op, uops, _loop(outer)._replace(wgt=factor), _loop(inner), imm)

    def finish(self) -> None:
        """FINISH, after every store and every load."""
        self._follow(self._line.home, (), self._parts.all())
        self.buffer.finish()

    def _follow(self, unit: int, reads: Sequence[Part], writes: Sequence[Part], after: int = NOBODY) -> None:
        """Tokens for the instruction of `unit` that is added next."""
        units, known = self.buffer.units, self._now[unit]
        needs = [NOBODY] * len(known)
        for part in reads:  # it has been written, after all uses of other parts there
            if part.writer > NOBODY:
                needs[units[part.writer]] = max(needs[units[part.writer]], part.writer)
        for part in writes:
            part.before_write(needs)
        if after != NOBODY:
            needs[units[after]] = max(needs[units[after]], after)
        for other in self._far[unit]:
            if needs[other] > known[other]:
                between = other + (1 if unit > other else -1)
                needs[between] = max(needs[between], self._carrier(between, other, needs[other]))
        index = self._wait(unit, needs)
        for part in reads:
            part.read(index, unit)
        for part in writes:
            part.write(index, unit)

    def _carrier(self, unit: int, other: int, need: int) -> int:
        """The first row of `unit` that follows row `need` of its neighbour `other`; a NOP where there is none yet."""
        found, units = NOBODY, self.buffer.units
        for index in range(len(self) - 1, need, -1):
            if units[index] == unit:
                if self._clocks[index][other] < need:
                    break
                found = index
        if found != NOBODY:
            return found
        needs = [NOBODY] * len(self._line.units)
        needs[other] = need
        index = self._wait(unit, needs)
        self.buffer.commit(unit)
        return index

    def _wait(self, unit: int, needs: Sequence[int]) -> int:
        """Tokens of its neighbours' rows `needs` for the instruction of `unit` that is added next; its row."""
        index, known = len(self.buffer.units), self._now[unit]
        for other in (unit - 1, unit + 1):
            if 0 <= other < len(needs) and needs[other] > known[other]:
                self.buffer.push_from(needs[other], unit)
                self.buffer.dep_pop(other, unit)
                known = tuple(map(max, known, self._clocks[needs[other]]))
        self._now[unit] = (*known[:unit], index, *known[unit + 1 :])
        self._clocks.append(self._now[unit])
        return index


def _loop(dim: Dim) -> Loop:
    """The instruction's loop; one of a single step has no factors."""
    return Loop(dim.extent, dim.dst, dim.src, dim.wgt) if dim.extent > 1 else ONCE
