"""Build instruction streams, with the dependency tokens that order the instructions of different units.

A step is one or more instructions of one unit. It names the parts of memories that it uses. A part is a range of tiles
that is loaded, computed or stored as a whole (a slot of plan.py).

If a step must follow a step of another unit and nothing orders the two yet, the earlier step pushes a token and the
later one pops it. Between units that are not neighbours, a step of the unit in between passes the token on, or a NOP
if there is no such step. So a queue's tokens are popped in the order of their pushes, all are needed, and none is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tilewright.array import Array, numbers
from tilewright.program.instruction import Raw
from tilewright.schedule import NOBODY, Parts, Uses, followed
from tilewright.sim.jit import compiled, part
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import POP_BITS, PUSH_BITS, Memory, Opcode, Stream
from tilewright.targets.vta.isa.instructions import NO_PADS, InstructionBuffer

#: Bits of `Tokens.bits`, in the order of the instructions' fields.
POP_PREV = 1
POP_NEXT = 2
PUSH_PREV = 4
PUSH_NEXT = 8
#: Microseconds that one step takes in _link without compilation: decides whether to compile it.
STEP_US = 20


class Operands(NamedTuple):
    """The memory parts that a step reads and those that it writes, as their numbers in `StreamBuilder.parts`."""

    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class Built:
    """A stream of n instructions with their dependency tokens.

    `unit`, `step` and `distinct` int64 [n]: the numbers of each instruction's unit, of its step, and of the instruction
    in `buffer`, which has equal instructions once, without tokens. A NOP belongs to the step after it. `bits` [4, n]:
    the token bits, in the order of POP_BITS and PUSH_BITS.
    """

    buffer: InstructionBuffer
    unit: Array
    step: Array
    distinct: Array
    bits: Array

    @property
    def stream(self) -> Stream:
        return self.buffer.stream(self.distinct, self.bits)

    @property
    def code(self) -> Raw:
        """The encoded instructions, uint8 [n, 16]. Raises ProgramError if a value does not fit its bit field."""
        tokens = self.buffer.config.formats.plain.encode(
            {"opcode": self.bits[0] * 0, **dict(zip((*POP_BITS, *PUSH_BITS), self.bits, strict=True))}
        )
        return self.buffer.encode()[self.distinct] | tokens


class StreamBuilder:
    """Collects steps in stream order. A step is one or more instructions of one unit that use the same memory parts."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.line = config.pipeline
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
        return len(self._units)

    def step(self, unit: int, rows: Sequence[int], operands: Operands, after: int = NOBODY) -> int:
        """Add a step: instructions `rows` of `self.distinct`, to run after step `after`. Return the step's number."""
        self._units.append(unit)
        self._after.append(after)
        self._operands.append(self._known.setdefault(operands, len(self._known)))
        self._rows += rows
        self._first.append(len(self._rows))
        return len(self._units) - 1

    def load(
        self, memory: Memory, base: int, address: int, shape: tuple[int, int], stride: int, slot: int, after: int
    ) -> None:
        """Add a load of `shape` (rows, tiles per row): DRAM tile `address` to `memory` tile `base` in part `slot`."""
        row = self.distinct.transfer(Opcode.LOAD, memory, base, address, shape, stride, NO_PADS)
        self.step(self.line.unit_of(Opcode.LOAD, memory), (row,), Operands((), (slot,)), after)

    def load_uops(self, memory: Memory, start: int, base: int, at: int, count: int) -> None:
        """Add a load of `count` micro-ops: from DRAM micro-op `start + at` on, to `memory` micro-op `base`."""
        row = self.distinct.load_uops(memory, base, start + at, count)
        self.step(self.line.unit_of(Opcode.LOAD, memory), (row,), Operands())

    def store(self, base: int, address: int, shape: tuple[int, int], stride: int, parts: tuple[int, ...]) -> int:
        """Add a store of `shape` (rows, tiles per row) from tile `base`, in `parts`; return the step's number."""
        row = self.distinct.transfer(Opcode.STORE, Memory.OUT, base, address, shape, stride)
        return self.step(self.line.store, (row,), Operands(parts, ()))

    def finish(self) -> None:
        """Add the FINISH instruction, which runs after every load and every store."""
        self.step(self.line.home, (self.distinct.finish(),), Operands((), tuple(range(len(self.parts)))))

    def build(self) -> Built:
        unit = np.array(self._units, np.int64)
        operands = [*self._known]
        sizes = np.array([len(reads) + len(writes) for reads, writes in operands], np.int64)
        starts = np.cumsum(sizes) - sizes
        chosen = np.array(self._operands, np.int64)
        listed, _ = numbers(starts[chosen], sizes[chosen])
        of_each = np.append(0, np.cumsum(sizes[chosen]))
        part = np.array([part for each in operands for part in (*each.reads, *each.writes)], np.int64)
        writes = np.array([kind for reads, writes in operands for kind in [False] * len(reads) + [True] * len(writes)])
        uses = Uses(unit, np.array(self._after, np.int64), of_each, part[listed], writes[listed])
        made = _linked(unit, followed(uses, self.parts, len(self.line.units)))
        first = np.array([*self._first[:-1], *range(len(self._rows), len(self._rows) + len(self._nops))], np.int64)
        size = np.array([*np.diff(self._first), *[1] * len(self._nops)], np.int64)
        which = np.where(made.step == NOBODY, len(unit) + made.unit, made.step)
        index, _ = numbers(first[which], size[which])
        ends_at = np.cumsum(size[which])
        distinct = np.array(self._rows + self._nops, np.int64)[index]
        following = np.minimum.accumulate(np.where(made.step == NOBODY, len(unit), made.step)[::-1])[::-1]
        bits = np.zeros((len(POP_BITS) + len(PUSH_BITS), len(index)), np.int64)
        for bit, place in enumerate((ends_at - size[which],) * 2 + (ends_at - 1,) * 2):
            bits[bit, place] = made.bits >> bit & 1
        unit = np.repeat(made.unit, size[which])
        step = np.repeat(following, size[which])
        return Built(self.distinct, unit, step, distinct, bits)


class Tokens(NamedTuple):
    """Steps and NOPs in stream order: step numbers [m] (NOBODY for a NOP), unit numbers [m] and token bits [m]."""

    step: Array
    unit: Array
    bits: Array


class _Links(NamedTuple):
    """The arrays on which `_link` works. A row is a step or a NOP of the stream; rows are in stream order.

    `made`: the rows. `rows` [1]: their number so far. `clock` [m, units] (vector clocks): for each row, the last row of
    each unit that is known to have ended when it starts. `now` [units, units]: the same for the next row of each unit.
    `wants` [units]: the last row of each unit that the next row must follow (NOBODY: none). `carried` [units]: the same
    for the step that is being added.
    """

    made: Tokens
    rows: Array
    clock: Array
    now: Array
    wants: Array
    carried: Array


def _linked(unit: Array, needs: Array) -> Tokens:
    """Return steps, NOPs and tokens so that step i, of unit `unit[i]`, follows the steps `needs[i]` (NOBODY: none)."""
    units = needs.shape[1]
    room = len(unit) * max(1, units - 1)  # a step, and at most one NOP per unit that is not its own or its neighbour
    made = Tokens(np.full(room, NOBODY), np.zeros(room, np.int64), np.zeros(room, np.int64))
    clock, now, wants, carried = (np.full(shape, NOBODY) for shape in ((room, units), (units, units), units, units))
    state = _Links(made, np.zeros(1, np.int64), clock, now, wants, carried)
    _link.of(len(unit) * STEP_US)(state, unit, needs, np.zeros(len(unit), np.int64))
    return Tokens(*(column[: state.rows[0]] for column in made))


@compiled
def _link(state: _Links, unit: Array, needs: Array, row: Array) -> None:
    """Add all steps to `state`, with NOPs where needed; set `row[i]` to the row of step i. See `_linked`."""
    units = needs.shape[1]
    carried = state.carried
    for step in range(unit.shape[0]):
        u = unit[step]
        carried[:] = NOBODY
        for distance in range(units - 1, 0, -1):
            for other in (u - distance, u + distance):
                if other < 0 or other >= units:
                    continue
                need = needs[step, other]
                want = max(carried[other], row[need] if need != NOBODY else NOBODY)
                if distance > 1 and want > state.now[u, other]:
                    between = other + 1 if u > other else other - 1
                    carried[between] = max(carried[between], _carrier(state, between, other, want))
                carried[other] = want
        for other in range(units):
            state.wants[other] = carried[other]
        row[step] = _put(state, u, step)


@part
def _carrier(state: _Links, unit: int, other: int, need: int) -> int:
    """Return the first row of `unit` that follows row `need` of its neighbour `other`; add a NOP if there is none."""
    found = NOBODY
    for row in range(state.rows[0] - 1, need, -1):
        if state.made.unit[row] == unit:
            if state.clock[row, other] < need:
                break
            found = row
    if found != NOBODY:
        return found
    for each in range(state.wants.shape[0]):
        state.wants[each] = need if each == other else NOBODY
    return _put(state, unit, NOBODY)


@part
def _put(state: _Links, unit: int, step: int) -> int:
    made = state.made
    now = state.now
    row = state.rows[0]
    units = state.wants.shape[0]
    for other in (unit - 1, unit + 1):
        if other < 0 or other >= units or state.wants[other] <= now[unit, other]:
            continue
        before = state.wants[other]
        made.bits[before] |= PUSH_NEXT if unit > other else PUSH_PREV
        made.bits[row] |= POP_PREV if other < unit else POP_NEXT
        for known in range(units):
            now[unit, known] = max(now[unit, known], state.clock[before, known])
    now[unit, unit] = row
    for known in range(units):
        state.clock[row, known] = now[unit, known]
    made.step[row] = step
    made.unit[row] = unit
    state.rows[0] += 1
    return row
