"""The compiler's way to instructions: each names the slots that it reads and writes, and tokens follow from these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.program.instruction import Raw
from tilewright.schedule import NOBODY, Parts, Uses, followed
from tilewright.targets.vta.compiler.tokens import linked
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import Memory, Opcode
from tilewright.targets.vta.isa.stream import POP_BITS, PUSH_BITS
from tilewright.targets.vta.runtime.instructions import NO_PADS, InstructionBuffer


class Operands(NamedTuple):
    """Parts, by number, that a step reads and writes."""

    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Built:
    """n instructions with their tokens: uint8 [n, 16]; of each the unit, the step and the distinct instruction.

    int64 [n] each; a NOP is of the step that follows it.
    """

    code: Raw
    unit: Array
    step: Array
    distinct: Array


class StreamBuilder:
    """Steps of one or more instructions of a unit that use the same parts, in stream order."""

    def __init__(self, config: Config) -> None:
        self.config, self.line = config, config.pipeline
        self.distinct = InstructionBuffer(config)
        self.parts = Parts()
        self._units: list[int] = []
        self._after: list[int] = []
        self._operands: list[int] = []
        self._known: dict[Operands, int] = {}
        self._rows: list[int] = []
        self._first = [0]
        self._nops = [self.distinct.transfer(*nop, 0, 0, (0, 0), 0) for nop in self.line.nops]

    def __len__(self) -> int:
        """Steps so far."""
        return len(self._units)

    def step(self, unit: int, rows: Sequence[int], operands: Operands, after: int = NOBODY) -> int:
        """Instructions `rows` of `distinct`; `after`: a step that must have ended. Returns the number of the step."""
        self._units.append(unit)
        self._after.append(after)
        self._operands.append(self._known.setdefault(operands, len(self._known)))
        self._rows += rows
        self._first.append(len(self._rows))
        return len(self._units) - 1

    def load(
        self, memory: Memory, base: int, address: int, shape: tuple[int, int], stride: int, slot: int, after: int
    ) -> None:
        """`shape` (rows, tiles a row) from DRAM tile `address` into tiles from `base`, of part `slot`."""
        row = self.distinct.transfer(Opcode.LOAD, memory, base, address, shape, stride, NO_PADS)
        self.step(self.line.unit_of(Opcode.LOAD, memory), (row,), Operands((), (slot,)), after)

    def load_uops(self, memory: Memory, base: int, address: int, count: int) -> None:
        """`count` micro-ops."""
        row = self.distinct.load_uops(memory, base, address, count)
        self.step(self.line.unit_of(Opcode.LOAD, memory), (row,), Operands())

    def store(self, base: int, address: int, shape: tuple[int, int], stride: int, out: int) -> int:
        """Returns the number of the step."""
        row = self.distinct.transfer(Opcode.STORE, Memory.OUT, base, address, shape, stride)
        return self.step(self.line.store, (row,), Operands((out,), ()))

    def finish(self) -> None:
        """FINISH, after every store and every load."""
        self.step(self.line.home, (self.distinct.finish(),), Operands((), tuple(range(len(self.parts)))))

    def build(self) -> Built:
        """All instructions. Raises ProgramError where a value does not fit its field."""
        unit, operands = np.array(self._units, np.int64), [*self._known]
        sizes = np.array([len(reads) + len(writes) for reads, writes in operands], np.int64)
        starts = np.cumsum(sizes) - sizes
        chosen = np.array(self._operands, np.int64)
        of_each, listed = _spread(starts[chosen], sizes[chosen])
        part = np.array([part for each in operands for part in (*each.reads, *each.writes)], np.int64)
        writes = np.array(
            [n >= len(each.reads) for each in operands for n in range(len(each.reads) + len(each.writes))]
        )
        uses = Uses(unit, np.array(self._after, np.int64), of_each, part[listed], writes[listed])
        made = linked(unit, followed(uses, self.parts, len(self.line.units)))
        first = np.array([*self._first[:-1], *range(len(self._rows), len(self._rows) + len(self._nops))], np.int64)
        size = np.array([*np.diff(self._first), *[1] * len(self._nops)], np.int64)
        which = np.where(made.step == NOBODY, len(unit) + made.unit, made.step)
        starts, index = _spread(first[which], size[which])
        distinct = np.array(self._rows + self._nops, np.int64)[index]
        following = np.minimum.accumulate(np.where(made.step == NOBODY, len(unit), made.step)[::-1])[::-1]
        bits = np.zeros((len(POP_BITS) + len(PUSH_BITS), len(index)), np.int64)
        for bit, ends in enumerate((starts[:-1],) * 2 + (starts[1:] - 1,) * 2):
            bits[bit, ends] = made.bits >> bit & 1
        tokens = self.config.formats.plain.encode(
            {"opcode": bits[0] * 0, **dict(zip((*POP_BITS, *PUSH_BITS), bits, strict=True))}
        )
        lengths = np.diff(starts)
        code = self.distinct.encode()[distinct] | tokens
        return Built(code, np.repeat(made.unit, lengths), np.repeat(following, lengths), distinct)


def _spread(first: Array, size: Array) -> tuple[Array, Array]:
    """Runs first..first+size-1, one behind the other: where each starts (and the last ends), and all numbers."""
    starts = np.concatenate([[0], np.cumsum(size)])
    return starts, np.arange(starts[-1]) + np.repeat(first - starts[:-1], size)
