"""The machine, cycle by cycle: all units in one loop. A cycle in which no register changes ends a wait at once."""

from __future__ import annotations

from tilewright.sim.jit import compiled, part
from tilewright.targets.gemmini.timing.array import step_array, step_results
from tilewright.targets.gemmini.timing.bus import step_bus, translate
from tilewright.targets.gemmini.timing.chip import Chip, count, peek
from tilewright.targets.gemmini.timing.execute import step_banks, step_execute, step_transposes
from tilewright.targets.gemmini.timing.load import step_loads, step_reader
from tilewright.targets.gemmini.timing.moves import step_merger, step_scaling, step_writes
from tilewright.targets.gemmini.timing.station import step_station
from tilewright.targets.gemmini.timing.store import step_dispatch, step_stores
from tilewright.targets.gemmini.timing.unroll import front_is_busy, step
from tilewright.targets.gemmini.timing.unroll_state import Front, Plan
from tilewright.targets.gemmini.timing.writer import step_writer

ACTIVE, EX_DONE, LD_DONE, ST_DONE, SPAD_WRITES, ACC_WRITES, ACC_ADDS = range(7)
DISPATCH, NORM, SCALE, SCALING, ISSUE = 4, 5, 7, 8, 19
#: Registers: of the controllers, the station, the array, the bus, the reader and the writer; columns of trackers and
#: rows.
USED, NUMBER, LONE, FIRST_OUT, ROWS_OUT, FIRST_ANSWER, ANSWERS, XACTS, WRITES = 0, 3, 13, 8, 9, 3, 4, 2, 24
VALID, LEFT_BYTES, LEFT_ROWS, DUE = 0, 2, 2, 7
HOST = 0
#: No event is to come.
NEVER = 1 << 62


@part
def begin_cycle(m: Chip) -> None:
    """Reset the wires, and note which commands of the trackers are complete."""
    w = m.wire
    w[ACTIVE] = w[SPAD_WRITES] = w[ACC_WRITES] = w[ACC_ADDS] = 0
    w[EX_DONE] = w[LD_DONE] = w[ST_DONE] = -1
    if m.load[USED]:
        for slot in range(m.size.slots - 1, -1, -1):
            if m.loads[slot, VALID] and m.loads[slot, LEFT_BYTES] == 0:
                w[LD_DONE] = slot
    if m.store[USED]:
        for slot in range(m.size.slots - 1, -1, -1):
            if m.store_slots[slot, VALID] and m.store_slots[slot, LEFT_ROWS] == 0:
                w[ST_DONE] = slot


@part
def age_writes(m: Chip) -> None:
    """Age the writes of the accumulator: for two cycles, their rows can be neither read nor added to."""
    for bank in range(m.acc_bank.shape[0]):
        b = m.acc_bank[bank]
        if b[2] >= 0 or b[3] >= 0 or b[4] >= 0:
            b[3], b[2], b[4] = b[2], b[4], -1
            m.wire[ACTIVE] = 1


@part
def is_busy(m: Chip) -> bool:
    """Return the busy wire (Controller.scala), without the front end; a preload that waits for its compute is none."""
    r = m.station
    entries = r[NUMBER] + r[NUMBER + 1] + r[NUMBER + 2]
    if entries and not (entries == 1 and r[NUMBER + 1] == 1 and r[LONE]):
        return True
    if m.reader[XACTS] or m.writer[XACTS] or m.writer[WRITES]:
        return True
    return count(m, DISPATCH) + count(m, NORM) + count(m, SCALE) + count(m, ISSUE) > 0


@part
def next_event(m: Chip, t: int) -> int:
    """Return the next cycle in which something is due, if no register changed in cycle `t`."""
    event = NEVER
    if m.array[ROWS_OUT]:
        event = m.out[m.array[FIRST_OUT], 0]
    if m.bus[ANSWERS] and m.memory[m.bus[FIRST_ANSWER], 0] > t:
        event = min(event, m.memory[m.bus[FIRST_ANSWER], 0])
    for i in range(count(m, SCALING)):
        due = m.rows[peek(m, SCALING, i), DUE]
        if due > t:
            event = min(event, due)
    return event


@compiled
def run_machine(m: Chip, front: Front, plan: Plan, limit: int) -> int:
    """Run a program; return the cycle in which the machine is idle for good, -1 if it stalls or reaches `limit`."""
    t, last_busy = 0, 0
    while t < limit:
        idle = not is_busy(m)
        busy = not idle or front_is_busy(front)
        begin_cycle(m)
        step_results(m, t)
        translate(m)
        step_writes(m)
        step_scaling(m, t)
        step_merger(m, t)
        step_bus(m, t)
        step_writer(m, t)
        step_reader(m, t)
        step_array(m, t)
        step_banks(m)
        step_execute(m, t)
        step_dispatch(m, t)
        age_writes(m)
        step_transposes(m, t)
        step_loads(m, t)
        step_stores(m, t)
        taken = step_station(m, front, plan, t)
        moved = step(front, plan, m.accept, t, taken, idle)
        after = t + 1
        if not moved and m.wire[ACTIVE] == 0:
            after = next_event(m, t)
            if after == NEVER:
                return -1 if busy or front.misc[HOST] < m.accept.shape[0] else last_busy + 1
        if busy:
            last_busy = after - 1
        t = after
    return -1
