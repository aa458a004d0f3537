"""The machine, cycle by cycle: all units in one loop.

A cycle runs the units from the last consumer to the first producer, so each unit sees the state of its producers at the
start of the cycle. An inactive unit is not called. After a cycle that changes no register, the loop jumps to the next
known event: a row leaves the array, or the memory responds. Before some commands of the host, `check` may skip a
section that repeats an earlier section (repeat.py).
"""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import compiled, part
from tilewright.targets.gemmini.timing.array import ARRAY, EX_STATE, RESULTS, step_array, step_results
from tilewright.targets.gemmini.timing.bus import ANSWERS, READER, WRITER, step_bus, translate
from tilewright.targets.gemmini.timing.controller import PIPE, step_banks, step_execute, step_transposes
from tilewright.targets.gemmini.timing.layout import at
from tilewright.targets.gemmini.timing.load import LOADS, step_loads, step_reader
from tilewright.targets.gemmini.timing.memo import MEMO, NEVER, Memo
from tilewright.targets.gemmini.timing.moves import (
    INCOMING,
    MERGER,
    REPEATER,
    SCALER,
    step_entries,
    step_merger,
    step_scaling,
    step_writes,
)
from tilewright.targets.gemmini.timing.program import Program, find_configurations
from tilewright.targets.gemmini.timing.queues import Q, count, peek
from tilewright.targets.gemmini.timing.repeat import check
from tilewright.targets.gemmini.timing.state import SHARED, TO_ARRAY, TO_WRITER
from tilewright.targets.gemmini.timing.station import step_station
from tilewright.targets.gemmini.timing.store import STORES, step_dispatch, step_stores
from tilewright.targets.gemmini.timing.unroll import front_is_busy, step
from tilewright.targets.gemmini.timing.unroll_streams import FRONT, FrontPlan
from tilewright.targets.gemmini.timing.writer import step_writer

#: After this number of simulated cycles without progress, the model assumes that the machine is stalled. The number
#: must be large: while a hardware loop skips steps, many thousand cycles pass without progress.
PATIENCE = 1 << 20
#: The result of a run that reached the limit of cycles.
UNFINISHED = -2


@part
def begin_cycle(m: Array) -> None:
    """Reset the wires, then report the commands that the trackers have completed."""
    # A tracker reads its registers before the units change them in this cycle.
    m[SHARED.active] = m[SHARED.spad_writes] = m[SHARED.acc_writes] = m[SHARED.acc_adds] = m[SHARED.ex_reads] = 0
    m[SHARED.ex_done] = m[SHARED.ld_done] = m[SHARED.st_done] = -1
    if m[SHARED.loads_used]:
        m[SHARED.ld_done] = complete_slot(m, LOADS.valid, LOADS.left)
    if m[SHARED.stores_used]:
        m[SHARED.st_done] = complete_slot(m, STORES.valid, STORES.left)


@part
def complete_slot(m: Array, valid: int, left: int) -> int:
    """Return the first slot of a tracker with a complete command, or -1 (DMACommandTracker.scala)."""
    for slot in range(m[SHARED.slots]):
        if m[at(valid, slot)] and m[at(left, slot)] == 0:
            return slot
    return -1


@part
def is_busy(m: Array) -> bool:
    """Return whether any unit after the front end is busy (Controller.scala)."""
    # The machine is idle while its only command is a preload without its compute (ReservationStation.scala:
    # solitary_preload), so a fence may end before such a preload.
    entries = m[SHARED.number] + m[SHARED.number + 1] + m[SHARED.number + 2]
    if entries and not (entries == 1 and m[SHARED.number + 1] == 1 and m[SHARED.lone]):
        return True
    if m[READER.requests] or m[WRITER.requests] or m[WRITER.state]:
        return True
    return count(m, Q.dispatch) + count(m, Q.norm) + count(m, Q.scale) + count(m, Q.issue) > 0


def next_event(m: Array, t: int) -> int:
    """Return the cycle of the next event, assuming that no register changed in cycle `t`."""
    event = NEVER
    # Rows and responses are sorted by cycle, so only the first row and the first response need to be checked.
    if m[SHARED.rows_out]:
        event = m[at(RESULTS.cycle, m[SHARED.first_out])]
    if m[SHARED.answers] and m[at(ANSWERS.due, m[SHARED.first_answer])] > t:
        event = min(event, m[at(ANSWERS.due, m[SHARED.first_answer])])
    for i in range(count(m, Q.scaling)):
        due = m[at(INCOMING.due, peek(m, Q.scaling, i))]
        if due > t:
            event = min(event, due)
    return event


@part
def step_units(m: Array, p: Program, t: int) -> None:
    if m[SHARED.rows_out] and m[at(RESULTS.cycle, m[SHARED.first_out])] == t:
        step_results(m, t)
    if m[READER.t_valid] | m[READER.x_valid] | m[WRITER.t_valid] | m[WRITER.x_valid]:
        translate(m)
    if m[REPEATER.valid] | m[SCALER.wide_valid] | m[REPEATER.zeros_valid] | m[SHARED.zeros_valid]:
        step_writes(m, t)
    if m[SCALER.valid] | count(m, Q.scaling):
        step_scaling(m, t)
    if count(m, Q.narrow) | count(m, Q.wide):
        step_entries(m, t)
    if m[MERGER.valid] | count(m, Q.d_read):
        step_merger(m, t)
    requests = count(m, Q.a_read) | count(m, Q.a_write) | count(m, Q.a_out)
    if requests | m[SHARED.answers] | count(m, Q.d_in) | count(m, Q.d_write):
        step_bus(m, t)
    translating = m[WRITER.t_valid] | m[WRITER.x_valid] | m[WRITER.x_asked] | m[WRITER.s_valid]
    if translating | m[WRITER.state] | m[SHARED.pipe] | m[SHARED.full] | count(m, Q.issue):
        step_writer(m, t)
    if m[READER.t_valid] | m[READER.x_valid] | m[READER.busy] | count(m, Q.reads):
        step_reader(m, t)
    if m[ARRAY.valid] or count(m, Q.control) or m[SHARED.ex_state] >= EX_STATE.flushes:
        step_array(m, t)
    for pipe in (TO_ARRAY.fetched, TO_WRITER.fetched):
        if m[pipe + PIPE.under_way]:
            step_banks(m, pipe)
    step_execute(m, t)
    if count(m, Q.dispatch) | count(m, Q.norm) | count(m, Q.scale):
        step_dispatch(m, t)
    if count(m, Q.transposes):
        step_transposes(m, t)
    if count(m, Q.loads):
        step_loads(m, p, t)
    if count(m, Q.stores):
        step_stores(m, p, t)


@compiled
def run_machine(m: Array, p: Program, plan: FrontPlan, accept: Array, memo: Memo, limit: int) -> int:
    """Run a program. Return the cycle from which the machine stays idle, -1 for a stalled machine, or UNFINISHED.

    For each command of the host, the cycle in which the machine accepts the command is written to `accept`, int64 [n].
    """
    t = 0
    last_busy = 0
    seen = 0
    waited = 0
    find_configurations(m, p)
    while t < limit:
        while m[FRONT.next_host] == memo.registers[MEMO.next_check]:
            check(m, p, plan, accept, memo, t, last_busy)
            t = memo.registers[MEMO.resume]
            last_busy = memo.registers[MEMO.last_busy]
            waited = 0
        idle = not is_busy(m)
        busy = not idle or front_is_busy(m)
        begin_cycle(m)
        step_units(m, p, t)
        taken = step_station(m, p, plan, t)
        moved = step(m, plan, accept, t, taken, idle)
        after = t + 1
        waited = waited + 1 if m[SHARED.progress] == seen else 0
        seen = m[SHARED.progress]
        if waited == PATIENCE:
            return -1
        # No register changed. If no event will come, the run is complete, or is stalled with unfinished work.
        if not moved and m[SHARED.active] == 0:
            after = next_event(m, t)
            if after == NEVER:
                return -1 if busy or m[FRONT.next_host] < accept.shape[0] else last_busy + 1
        if busy:
            last_busy = after - 1
        t = after
    return UNFINISHED
