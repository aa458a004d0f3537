"""The machine, cycle by cycle: all units in one loop. A cycle in which no register changes ends a wait at once."""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import called, compiled, part
from tilewright.targets.gemmini.timing import chip as c
from tilewright.targets.gemmini.timing.array import array_works, has_result, step_array, step_results
from tilewright.targets.gemmini.timing.bus import bus_works, step_bus, translate, translates
from tilewright.targets.gemmini.timing.chip import Program, at, count, peek
from tilewright.targets.gemmini.timing.execute import controller_works, step_banks, step_execute, step_transposes
from tilewright.targets.gemmini.timing.load import reader_works, step_loads, step_reader
from tilewright.targets.gemmini.timing.memo import Memo
from tilewright.targets.gemmini.timing.moves import has_rows, merges, scales, step_merger, step_scaling, step_writes
from tilewright.targets.gemmini.timing.repeat import GOES_ON, LAST_BUSY, NEXT_CHECK, check
from tilewright.targets.gemmini.timing.station import step_station
from tilewright.targets.gemmini.timing.store import dispatches, step_dispatch, step_stores
from tilewright.targets.gemmini.timing.unroll import front_is_busy, step
from tilewright.targets.gemmini.timing.unroll_state import Front, Plan
from tilewright.targets.gemmini.timing.writer import step_writer, writer_works

#: Columns of trackers and rows, and registers of the reader and the writer.
VALID, LEFT, DUE, XACTS = 0, 2, 7, 2
HOST = 0
#: Cycles after which a machine without progress will not make any more. Steps of a loop without a command count too.
PATIENCE = 1 << 20
#: The machine has reached the limit of cycles.
UNFINISHED = -2
#: No event is to come.
NEVER = 1 << 62


@part
def begin_cycle(m: Array) -> None:
    """Reset the wires, and note which commands of the trackers are complete."""
    m[c.ACTIVE] = m[c.SPAD_WRITES] = m[c.ACC_WRITES] = m[c.ACC_ADDS] = m[c.EX_READS] = 0
    m[c.EX_DONE] = m[c.LD_DONE] = m[c.ST_DONE] = -1
    if m[c.LOADS_USED]:
        m[c.LD_DONE] = complete_slot(m, c.LOADED)
    if m[c.STORES_USED]:
        m[c.ST_DONE] = complete_slot(m, c.STORE_SLOTS)


@part
def complete_slot(m: Array, tracker: int) -> int:
    """Return the first slot of a tracker whose command is complete, -1 if there is none (DMACommandTracker.scala)."""
    for slot in range(m[c.SLOTS]):
        if m[at(tracker, slot) + VALID] and m[at(tracker, slot) + LEFT] == 0:
            return slot
    return -1


@part
def is_busy(m: Array) -> bool:
    """Return the busy wire (Controller.scala), without the front end; a preload that waits for its compute is none."""
    entries = m[c.NUMBER] + m[c.NUMBER + 1] + m[c.NUMBER + 2]
    if entries and not (entries == 1 and m[c.NUMBER + 1] == 1 and m[c.LONE]):
        return True
    if m[c.READER + XACTS] or m[c.WRITER + XACTS] or m[c.WRITER_STATE]:
        return True
    return count(m, c.DISPATCH) + count(m, c.NORM) + count(m, c.SCALE) + count(m, c.ISSUE) > 0


@called
def next_event(m: Array, t: int) -> int:
    """Return the next cycle in which something is due, if no register changed in cycle `t`."""
    event = NEVER
    if m[c.ROWS_OUT]:
        event = m[at(c.OUT, m[c.FIRST_OUT])]
    if m[c.ANSWERS] and m[at(c.MEMORY, m[c.FIRST_ANSWER])] > t:
        event = min(event, m[at(c.MEMORY, m[c.FIRST_ANSWER])])
    for i in range(count(m, c.SCALING)):
        due = m[at(c.MOVED, peek(m, c.SCALING, i)) + DUE]
        if due > t:
            event = min(event, due)
    return event


@compiled
def run_machine(m: Array, p: Program, front: Front, plan: Plan, accept: Array, memo: Memo, limit: int) -> int:
    """Run a program; return the cycle in which the machine is idle for good, -1 if it stalls, or UNFINISHED."""
    t, last_busy, seen, waited = 0, 0, 0, 0
    while t < limit:
        while front.misc[HOST] == memo.registers[NEXT_CHECK]:
            check(m, p, front, plan, accept, memo, front.misc[HOST], t, last_busy)
            t, last_busy, waited = memo.registers[GOES_ON], memo.registers[LAST_BUSY], 0
        idle = not is_busy(m)
        busy = not idle or front_is_busy(front)
        begin_cycle(m)
        if has_result(m, t):
            step_results(m, t)
        if translates(m):
            translate(m)
        loading, storing = m[c.LOADING] != 0, m[c.STORING] != 0
        if loading and has_rows(m):
            step_writes(m, t)
        if loading and scales(m):
            step_scaling(m, t)
        if loading and merges(m):
            step_merger(m, t)
        if (loading or storing) and bus_works(m, t):
            step_bus(m, t)
        if storing and writer_works(m):
            step_writer(m, t)
        if loading and reader_works(m):
            step_reader(m, t)
        if array_works(m):
            step_array(m, t)
        if m[c.TO_ARRAY + c.UNDER_WAY]:
            step_banks(m, c.TO_ARRAY)
        if m[c.TO_WRITER + c.UNDER_WAY]:
            step_banks(m, c.TO_WRITER)
        if controller_works(m):
            step_execute(m, t)
        if storing and dispatches(m):
            step_dispatch(m, t)
        if count(m, c.TRANSPOSES):
            step_transposes(m, t)
        if loading:
            if count(m, c.LOADS):
                step_loads(m, p, t)
            elif m[c.LOADS_USED] + m[c.READER + XACTS] == 0:
                m[c.LOADING] = has_rows(m) or scales(m) or merges(m) or reader_works(m)
        if storing:
            if count(m, c.STORES):
                step_stores(m, p, t)
            elif m[c.STORES_USED] + m[c.WRITER + XACTS] == 0:
                m[c.STORING] = writer_works(m) or dispatches(m)
        taken = step_station(m, p, front, plan, t)
        moved = step(front, plan, accept, t, taken, idle)
        after = t + 1
        waited = waited + 1 if m[c.PROGRESS] == seen else 0
        seen = m[c.PROGRESS]
        if waited == PATIENCE:
            return -1
        if not moved and m[c.ACTIVE] == 0:
            after = next_event(m, t)
            if after == NEVER:
                return -1 if busy or front.misc[HOST] < accept.shape[0] else last_busy + 1
        if busy:
            last_busy = after - 1
        t = after
    return UNFINISHED
