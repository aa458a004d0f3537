"""Tokens between neighbouring units, from what each step must follow.

Where that is another unit's step and nothing has ordered the two yet, a token is pushed by the one and popped by the
other. Between units that are no neighbours, a step of the unit in between passes it on; a NOP where there is none. A
queue's tokens are thereby pushed and popped in the same order, each of them needed, none left over.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.schedule import NOBODY
from tilewright.sim.jit import compiled, part

#: Bits of `Tokens.bits`, in the order of the instructions' fields.
POP_PREV, POP_NEXT, PUSH_PREV, PUSH_NEXT = 1, 2, 4, 8
#: Microseconds of _linked for each step, uncompiled.
STEP_US = 20


class Tokens(NamedTuple):
    """Steps and NOPs in stream order: `step` [m], NOBODY for a NOP, of `unit` [m], with its token `bits` [m]."""

    step: Array
    unit: Array
    bits: Array


class _State(NamedTuple):
    """`rows` [1]: how many there are. `clock` [m, units]: of each row, the last row of each unit known to have ended.

    `now` [units, units]: the same of what each unit does next. `wants` [units]: rows that the next one must follow.
    """

    made: Tokens
    rows: Array
    clock: Array
    now: Array
    wants: Array


def linked(unit: Array, needs: Array) -> Tokens:
    """Tokens for steps of `unit` [n] that must follow steps `needs` [n, units], NOBODY where there is none."""
    units = needs.shape[1]
    room = len(unit) * max(1, units - 1)  # a NOP for each unit but the step's own and its neighbours, at most
    made = Tokens(np.full(room, NOBODY), np.zeros(room, np.int64), np.zeros(room, np.int64))
    clock, now, wants = np.full((room, units), NOBODY), np.full((units, units), NOBODY), np.full(units, NOBODY)
    state = _State(made, np.zeros(1, np.int64), clock, now, wants)
    _linked.of(len(unit) * STEP_US)(state, unit, needs, np.zeros(len(unit), np.int64))
    return Tokens(*(column[: state.rows[0]] for column in made))


@compiled
def _linked(state: _State, unit: Array, needs: Array, row: Array) -> None:
    """`row` [n]: that of each step, as it becomes known."""
    units = needs.shape[1]
    for step in range(unit.shape[0]):
        u = unit[step]
        carried = np.full(units, NOBODY)
        for distance in range(units - 1, 0, -1):
            for other in (u - distance, u + distance):
                if other < 0 or other >= units:
                    continue
                need = needs[step, other]
                want = max(carried[other], row[need] if need != NOBODY else NOBODY)
                if distance > 1 and want > state.now[u, other]:
                    between = other + 1 if u > other else other - 1
                    carried[between] = max(carried[between], carrier(state, between, other, want))
                carried[other] = want
        state.wants[:] = carried
        row[step] = add(state, u, step)


@part
def carrier(state: _State, unit: int, other: int, need: int) -> int:
    """The first row of `unit` that follows row `need` of its neighbour `other`; a NOP where there is none yet."""
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
    return add(state, unit, NOBODY)


@part
def add(state: _State, unit: int, step: int) -> int:
    """A row for a step or a NOP, behind the rows of its neighbours that it wants to follow."""
    made, now, row, units = state.made, state.now, state.rows[0], state.wants.shape[0]
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
    made.step[row], made.unit[row] = step, unit
    state.rows[0] += 1
    return row
