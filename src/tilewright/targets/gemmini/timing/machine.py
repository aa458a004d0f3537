"""The machine, cycle by cycle: all units in one loop. A cycle in which no register changes ends a wait at once."""

from __future__ import annotations

from functools import cache
from typing import Any

from .array import step_array, step_results
from .bus import step_bus, translate
from .execute import step_banks, step_execute, step_preloads
from .jit import callee, native, version
from .load import step_loads, step_reader
from .moves import step_merger, step_scaling, step_writes
from .queues import peek, pop, push, ready
from .state import *
from .station import step_station
from .unroll import front_is_busy, step
from .unroll_state import Front, Plan
from .store import step_dispatch, step_stores, step_writer

FENCE = 127
#: No event is to come.
NEVER = 1 << 62


@callee
def begin_cycle(m: Chip) -> None:
    """Note which trackers are full, and which of their commands are complete."""
    s = m.s
    s[ACTIVE] = 0
    s[EX_DONE] = s[LD_DONE] = s[ST_DONE] = -1
    s[SPAD_WRITES] = s[ACC_WRITES] = s[ACC_ADDS] = 0
    s[LD_ALL] = s[ST_ALL] = 1
    for slot in range(m.p[SLOTS]):
        if not m.loads[slot, L_VALID]:
            s[LD_ALL] = 0
        elif m.loads[slot, L_LEFT] == 0 and s[LD_DONE] < 0:
            s[LD_DONE] = slot
        if not m.store_slots[slot, 0]:
            s[ST_ALL] = 0
        elif m.store_slots[slot, 1] == 0 and s[ST_DONE] < 0:
            s[ST_DONE] = slot


@callee
def step_acc_banks(m: Chip) -> None:
    """Age the writes of the accumulator: two cycles pass before a row can be read or added to."""
    for bank in range(m.acc_bank.shape[0]):
        b = m.acc_bank[bank]
        if b[2] >= 0 or b[3] >= 0 or b[4] >= 0:
            b[3], b[2], b[4] = b[2], b[4], -1
            m.s[ACTIVE] = 1


@callee
def is_busy(m: Chip) -> bool:
    """Return the busy wire (Controller.scala): a lone preload that waits for its compute does not count."""
    s = m.s
    entries = m.valid[0] | m.valid[1] | m.valid[2]
    if entries:
        lone = s[SOLITARY] and m.valid[0] == 0 and m.valid[2] == 0 and entries & (entries - 1) == 0
        if not lone:
            return True
    if s[R_XACTS] or s[W_XACTS] or s[WR_STATE]:
        return True
    return bool(m.n[DISPATCH] or m.n[NORM] or m.n[SCALE] or m.n[WRITE_ISSUE])


@callee
def next_event(m: Chip, t: int) -> int:
    """Return the next cycle in which something is due, if no register changed in cycle `t`."""
    s = m.s
    event = NEVER
    if s[M_OUT_N]:
        event = m.out[s[M_OUT], 0]
    if s[MEM_N] and m.memory[s[MEM_HEAD], 0] > t:
        event = min(event, m.memory[s[MEM_HEAD], 0])
    for i in range(m.n[SPAD_REGS]):
        row = m.rows[peek(m, SPAD_REGS, i)]
        if row[V_DONE] > t:
            event = min(event, row[V_DONE])
    return int(event)


def make_loop(build: int) -> Any:
    """Return the loop, uncompiled. `build` is `jit.version()`, which the disk cache depends on."""

    def loop(m: Chip, front: Front, plan: Plan, limit: int) -> int:
        """Run the program; return the cycle in which the machine is idle for good, -1 if it stalls for ever."""
        _ = build
        t = 0
        s = m.s
        while t < limit:
            idle = not is_busy(m)
            busy = not idle or front_is_busy(front)
            begin_cycle(m)
            step_results(m, t)
            translate(m)
            step_writes(m, t)
            step_scaling(m, t)
            step_merger(m, t)
            step_bus(m, t)
            step_writer(m, t)
            step_reader(m, t)
            step_array(m, t)
            step_banks(m)
            step_execute(m, t)
            step_dispatch(m, t)
            step_acc_banks(m)
            step_preloads(m, t)
            step_loads(m, t)
            step_stores(m, t)
            taken = step_station(m, front, t)
            if step(front, plan, m.accept, t, taken, idle):
                s[ACTIVE] = 1
            after = t + 1
            if not s[ACTIVE]:
                after = next_event(m, t)
                if after == NEVER:
                    if busy or front.misc[0] < m.commands_in.shape[0]:
                        return -1
                    return int(s[LAST_BUSY] + 1)
            if busy:
                s[LAST_BUSY] = after - 1
            t = after
        return -1

    return loop


@cache
def loop() -> Any:
    """Return the compiled loop."""
    return native(make_loop(version()))
