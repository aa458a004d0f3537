"""Build instruction streams, with the dependency tokens that order the instructions of different units.

A step is one or more instructions of one unit. Each step names the parts of memories that the step reads and writes. A
part is a range of tiles that is loaded, computed or stored as a whole: a slot of plan.py.

A step that depends on a step of another unit must run after it. Unless an earlier token already orders the two steps,
the first step pushes a token and the second step pops the token. Token queues only join neighbouring units. To reach a
more distant unit, a step of each unit in between pops the token and pushes a token to the next unit. If such a unit has
no suitable step, it gets a NOP. A queue is first in, first out. No token is redundant, and each token is popped.
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

#: The bit masks of `Tokens.bits`, in the order of the instructions' fields.
POP_PREV = 1
POP_NEXT = 2
PUSH_PREV = 4
PUSH_NEXT = 8
#: Microseconds that _link takes for one step in pure Python. The estimated total decides whether _link is compiled.
STEP_US = 20


class Operands(NamedTuple):
    """The memory parts that a step reads and writes, as numbers in `StreamBuilder.parts`."""

    reads: tuple[int, ...] = ()
    writes: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class LinkedStream:
    """A stream of n instructions with their dependency tokens."""

    buffer: InstructionBuffer  # the distinct instructions, without tokens
    unit: Array  # int64 [n]: the unit of each instruction
    step: Array  # int64 [n]: the step of each instruction; for a NOP, the next step
    distinct: Array  # int64 [n]: the index of each instruction in `buffer`
    bits: Array  # [4, n]: the token bits, in the order of POP_BITS and PUSH_BITS

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
    """A recorder of steps in stream order; `build` turns the steps into an instruction stream with tokens."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.line = config.pipeline
        self.distinct = InstructionBuffer(config)
        self.parts = Parts()
        self._units: list[int] = []
        self._after: list[int] = []
        self._operands: list[int] = []
        self._operand_numbers: dict[Operands, int] = {}
        self._rows: list[int] = []
        self._first = [0]
        self._nops = [self.distinct.transfer(*nop, 0, 0, (0, 0), 0) for nop in self.line.nops]

    def __len__(self) -> int:
        return len(self._units)

    def step(self, unit: int, rows: Sequence[int], operands: Operands, after: int = NOBODY) -> int:
        """Add a step: instructions `rows` of `self.distinct`, to run after step `after`. Return the step's number."""
        self._units.append(unit)
        self._after.append(after)
        self._operands.append(self._operand_numbers.setdefault(operands, len(self._operand_numbers)))
        self._rows += rows
        self._first.append(len(self._rows))
        return len(self._units) - 1

    def load(
        self, memory: Memory, base: int, address: int, shape: tuple[int, int], stride: int, slot: int, after: int
    ) -> None:
        """Add a LOAD of `shape` (rows, tiles per row): DRAM tile `address` to `memory` tile `base` in part `slot`."""
        row = self.distinct.transfer(Opcode.LOAD, memory, base, address, shape, stride, NO_PADS)
        self.step(self.line.unit_of(Opcode.LOAD, memory), (row,), Operands((), (slot,)), after)

    def load_uops(self, memory: Memory, start: int, base: int, at: int, count: int) -> None:
        """Add a LOAD of `count` micro-ops, from DRAM micro-op `start + at` on, to micro-op `base` of `memory`."""
        row = self.distinct.load_uops(memory, base, start + at, count)
        self.step(self.line.unit_of(Opcode.LOAD, memory), (row,), Operands())

    def store(self, base: int, address: int, shape: tuple[int, int], stride: int, parts: tuple[int, ...]) -> int:
        """Add a STORE of `shape` (rows, tiles per row) from tile `base` in `parts`; return its number."""
        row = self.distinct.transfer(Opcode.STORE, Memory.OUT, base, address, shape, stride)
        return self.step(self.line.store, (row,), Operands(parts, ()))

    def finish(self) -> None:
        """Add the FINISH instruction, which runs after every load and every store."""
        self.step(self.line.home, (self.distinct.finish(),), Operands((), tuple(range(len(self.parts)))))

    def build(self) -> LinkedStream:
        unit = np.array(self._units, np.int64)
        # The parts of all steps as one list. The parts of equal operands are gathered once, then selected for each
        # step.
        operands = [*self._operand_numbers]
        sizes = np.array([len(reads) + len(writes) for reads, writes in operands], np.int64)
        starts = np.cumsum(sizes) - sizes
        chosen = np.array(self._operands, np.int64)
        listed, _ = numbers(starts[chosen], sizes[chosen])
        of_each = np.append(0, np.cumsum(sizes[chosen]))
        part = np.array(
            [part for step_operands in operands for part in (*step_operands.reads, *step_operands.writes)], np.int64
        )
        writes = np.array([kind for reads, writes in operands for kind in [False] * len(reads) + [True] * len(writes)])
        uses = Uses(unit, np.array(self._after, np.int64), of_each, part[listed], writes[listed])
        tokens = _linked(unit, followed(uses, self.parts, len(self.line.units)))
        # The rows of all steps, then one NOP row for each unit. `which` selects a step or a NOP.
        first = np.array([*self._first[:-1], *range(len(self._rows), len(self._rows) + len(self._nops))], np.int64)
        size = np.array([*np.diff(self._first), *[1] * len(self._nops)], np.int64)
        which = np.where(tokens.step == NOBODY, len(unit) + tokens.unit, tokens.step)
        index, _ = numbers(first[which], size[which])
        ends_at = np.cumsum(size[which])
        distinct = np.array(self._rows + self._nops, np.int64)[index]
        # A NOP belongs to the next step. Step numbers ascend, so a running minimum from the end finds the next step.
        following = np.minimum.accumulate(np.where(tokens.step == NOBODY, len(unit), tokens.step)[::-1])[::-1]
        # The first instruction of a step pops all its incoming tokens; the last instruction pushes all outgoing tokens.
        bits = np.zeros((len(POP_BITS) + len(PUSH_BITS), len(index)), np.int64)
        for bit, place in enumerate((ends_at - size[which],) * 2 + (ends_at - 1,) * 2):
            bits[bit, place] = tokens.bits >> bit & 1
        unit = np.repeat(tokens.unit, size[which])
        step = np.repeat(following, size[which])
        return LinkedStream(self.distinct, unit, step, distinct, bits)


class Tokens(NamedTuple):
    """Steps and NOPs in stream order: step numbers [m] (NOBODY for a NOP), unit numbers [m] and token bits [m]."""

    step: Array
    unit: Array
    bits: Array


class _Links(NamedTuple):
    """The arrays on which `_link` works. A row is a step or a NOP of the stream; rows are in stream order."""

    tokens: Tokens  # the rows
    rows: Array  # [1]: the number of rows so far
    clock: Array  # [m, units]: for each row, the last row of each unit that has ended when the row starts
    now: Array  # [units, units]: for each unit, the clock that its next row will have
    wants: Array  # [units]: for each unit, the last row that the next row must follow, or NOBODY
    carried: Array  # [units]: `wants` of the current step, which NOPs do not overwrite


def _linked(unit: Array, needs: Array) -> Tokens:
    """Add NOPs and tokens to the steps, so that step i, of unit `unit[i]`, follows the steps `needs[i]`.

    `needs[i]` has an entry for each unit: the number of the step to follow, or NOBODY.
    """
    units = needs.shape[1]
    room = len(unit) * max(1, units - 1)  # a step, and at most units - 2 NOPs for it
    tokens = Tokens(np.full(room, NOBODY), np.zeros(room, np.int64), np.zeros(room, np.int64))
    clock, now, wants, carried = (np.full(shape, NOBODY) for shape in ((room, units), (units, units), units, units))
    state = _Links(tokens, np.zeros(1, np.int64), clock, now, wants, carried)
    _link.of(len(unit) * STEP_US)(state, unit, needs, np.zeros(len(unit), np.int64))
    return Tokens(*(column[: state.rows[0]] for column in tokens))


@compiled
def _link(state: _Links, unit: Array, needs: Array, row: Array) -> None:
    """Append all steps and their NOPs to `state` (see `_linked`). `row[i]` receives the row of step i."""
    units = needs.shape[1]
    carried = state.carried
    for step in range(unit.shape[0]):
        u = unit[step]
        carried[:] = NOBODY
        # Distant units come first. Their tokens pass through the units in between, so the step must also follow rows of
        # these units.
        for distance in range(units - 1, 0, -1):
            for source in (u - distance, u + distance):
                if source < 0 or source >= units:
                    continue
                need = needs[step, source]
                want = max(carried[source], row[need] if need != NOBODY else NOBODY)
                # All rows up to `now` have certainly ended. Only a later row needs a new token.
                if distance > 1 and want > state.now[u, source]:
                    between = source + 1 if u > source else source - 1
                    carried[between] = max(carried[between], _carrier(state, between, source, want))
                carried[source] = want
        for source in range(units):
            state.wants[source] = carried[source]
        row[step] = _put(state, u, step)


@part
def _carrier(state: _Links, unit: int, neighbour: int, need: int) -> int:
    """Return the first row of `unit` that follows row `need` of its `neighbour`; add a NOP if there is no such row."""
    carrier = NOBODY
    # Search backwards. Clocks only grow: if a row does not follow `need`, its predecessors do not follow it either.
    for row in range(state.rows[0] - 1, need, -1):
        if state.tokens.unit[row] == unit:
            if state.clock[row, neighbour] < need:
                break
            carrier = row
    if carrier != NOBODY:
        return carrier
    for source in range(state.wants.shape[0]):
        state.wants[source] = need if source == neighbour else NOBODY
    return _put(state, unit, NOBODY)


@part
def _put(state: _Links, unit: int, step: int) -> int:
    """Append a row, with tokens from the neighbours that `state.wants` names; return its number."""
    tokens = state.tokens
    now = state.now
    row = state.rows[0]
    units = state.wants.shape[0]
    for neighbour in (unit - 1, unit + 1):
        if neighbour < 0 or neighbour >= units or state.wants[neighbour] <= now[unit, neighbour]:
            continue
        # No later row of the neighbour has pushed to this unit, so tokens stay in order.
        before = state.wants[neighbour]
        tokens.bits[before] |= PUSH_NEXT if unit > neighbour else PUSH_PREV
        tokens.bits[row] |= POP_PREV if neighbour < unit else POP_NEXT
        # The popped token proves that all rows in the clock of `before` have ended, too.
        for source in range(units):
            now[unit, source] = max(now[unit, source], state.clock[before, source])
    now[unit, unit] = row
    for source in range(units):
        state.clock[row, source] = now[unit, source]
    tokens.step[row] = step
    tokens.unit[row] = unit
    state.rows[0] += 1
    return row
