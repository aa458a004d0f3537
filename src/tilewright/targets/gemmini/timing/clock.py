"""The machine, cycle by cycle: all units in one loop. A cycle in which no register changes ends a wait at once."""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import compiled, part
from tilewright.targets.gemmini.timing.array import RESULTS, array_works, has_result, step_array, step_results
from tilewright.targets.gemmini.timing.bus import ANSWERS, READER, WRITER, bus_works, step_bus, translate, translates
from tilewright.targets.gemmini.timing.chip import CHIP, TO_ARRAY, TO_WRITER, Program, find_configurations
from tilewright.targets.gemmini.timing.controller import controller_works, step_banks, step_execute, step_transposes
from tilewright.targets.gemmini.timing.load import LOADS, reader_works, step_loads, step_reader
from tilewright.targets.gemmini.timing.memo import MEMO, NEVER, Memo
from tilewright.targets.gemmini.timing.moves import (
    MOVED,
    has_rows,
    merges,
    scales,
    step_merger,
    step_scaling,
    step_writes,
)
from tilewright.targets.gemmini.timing.queues import Q, count, peek
from tilewright.targets.gemmini.timing.records import at
from tilewright.targets.gemmini.timing.repeat import check
from tilewright.targets.gemmini.timing.station import step_station
from tilewright.targets.gemmini.timing.store import STORES, dispatches, step_dispatch, step_stores
from tilewright.targets.gemmini.timing.unroll import front_is_busy, step
from tilewright.targets.gemmini.timing.unroll_state import FRONT, FrontPlan
from tilewright.targets.gemmini.timing.writer import step_writer, writer_works

#: Cycles after which a machine without progress will not make any more. Steps of a loop without a command count too.
PATIENCE = 1 << 20
#: The machine has reached the limit of cycles.
UNFINISHED = -2


@part
def begin_cycle(m: Array) -> None:
    """Reset the wires, and note which commands of the trackers are complete."""
    m[CHIP.active] = m[CHIP.spad_writes] = m[CHIP.acc_writes] = m[CHIP.acc_adds] = m[CHIP.ex_reads] = 0
    m[CHIP.ex_done] = m[CHIP.ld_done] = m[CHIP.st_done] = -1
    if m[CHIP.loads_used]:
        m[CHIP.ld_done] = complete_slot(m, LOADS.valid, LOADS.left)
    if m[CHIP.stores_used]:
        m[CHIP.st_done] = complete_slot(m, STORES.valid, STORES.left)


@part
def complete_slot(m: Array, valid: int, left: int) -> int:
    """Return the first slot of a tracker whose command is complete, -1 if there is none (DMACommandTracker.scala)."""
    for slot in range(m[CHIP.slots]):
        if m[at(valid, slot)] and m[at(left, slot)] == 0:
            return slot
    return -1


@part
def is_busy(m: Array) -> bool:
    """Return the busy wire (Controller.scala), without the front end; a preload that waits for its compute is none."""
    entries = m[CHIP.number] + m[CHIP.number + 1] + m[CHIP.number + 2]
    if entries and not (entries == 1 and m[CHIP.number + 1] == 1 and m[CHIP.lone]):
        return True
    if m[READER.requests] or m[WRITER.requests] or m[WRITER.state]:
        return True
    return count(m, Q.dispatch) + count(m, Q.norm) + count(m, Q.scale) + count(m, Q.issue) > 0


def next_event(m: Array, t: int) -> int:
    """Return the next cycle in which something is due, if no register changed in cycle `t`."""
    event = NEVER
    if m[CHIP.rows_out]:
        event = m[at(RESULTS.cycle, m[CHIP.first_out])]
    if m[CHIP.answers] and m[at(ANSWERS.due, m[CHIP.first_answer])] > t:
        event = min(event, m[at(ANSWERS.due, m[CHIP.first_answer])])
    for i in range(count(m, Q.scaling)):
        due = m[at(MOVED.due, peek(m, Q.scaling, i))]
        if due > t:
            event = min(event, due)
    return event


@part
def step_memory_side(m: Array, t: int) -> None:
    """Step the units between the memories and the bus, from the last consumer to the first producer."""
    if has_result(m, t):
        step_results(m, t)
    if translates(m):
        translate(m)
    loading, storing = m[CHIP.loading] != 0, m[CHIP.storing] != 0
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


@part
def step_controllers(m: Array, p: Program, t: int) -> None:
    """Step the array and the controllers. Without commands, loads and stores end with the last of their rows."""
    loading, storing = m[CHIP.loading] != 0, m[CHIP.storing] != 0
    if array_works(m):
        step_array(m, t)
    if m[TO_ARRAY.under_way]:
        step_banks(m, TO_ARRAY.fetched)
    if m[TO_WRITER.under_way]:
        step_banks(m, TO_WRITER.fetched)
    if controller_works(m):
        step_execute(m, t)
    if storing and dispatches(m):
        step_dispatch(m, t)
    if count(m, Q.transposes):
        step_transposes(m, t)
    if loading:
        if count(m, Q.loads):
            step_loads(m, p, t)
        elif m[CHIP.loads_used] + m[READER.requests] == 0:
            m[CHIP.loading] = has_rows(m) or scales(m) or merges(m) or reader_works(m)
    if storing:
        if count(m, Q.stores):
            step_stores(m, p, t)
        elif m[CHIP.stores_used] + m[WRITER.requests] == 0:
            m[CHIP.storing] = writer_works(m) or dispatches(m)


@compiled
def run_machine(m: Array, p: Program, plan: FrontPlan, accept: Array, memo: Memo, limit: int) -> int:
    """Run a program; return the cycle in which the machine is idle for good, -1 if it stalls, or UNFINISHED."""
    t, last_busy, seen, waited = 0, 0, 0, 0
    find_configurations(m, p)
    while t < limit:
        while m[FRONT.next_host] == memo.registers[MEMO.next_check]:
            check(m, p, plan, accept, memo, m[FRONT.next_host], t, last_busy)
            t, last_busy, waited = memo.registers[MEMO.goes_on], memo.registers[MEMO.last_busy], 0
        idle = not is_busy(m)
        busy = not idle or front_is_busy(m)
        begin_cycle(m)
        step_memory_side(m, t)
        step_controllers(m, p, t)
        taken = step_station(m, p, plan, t)
        moved = step(m, plan, accept, t, taken, idle)
        after = t + 1
        waited = waited + 1 if m[CHIP.progress] == seen else 0
        seen = m[CHIP.progress]
        if waited == PATIENCE:
            return -1
        if not moved and m[CHIP.active] == 0:
            after = next_event(m, t)
            if after == NEVER:
                return -1 if busy or m[FRONT.next_host] < accept.shape[0] else last_busy + 1
        if busy:
            last_busy = after - 1
        t = after
    return UNFINISHED
