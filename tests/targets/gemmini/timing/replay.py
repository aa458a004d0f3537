"""Replay of the front end against a recorded run: the reservation station is as full as it was in the record."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import compiled
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.loops import Expansion
from tilewright.targets.gemmini.timing import build
from tilewright.targets.gemmini.timing.unroll import NONE, note_finished, offered, plan, step
from tilewright.targets.gemmini.timing.unroll_streams import FRONT, FrontPlan

UNREACHED = -1


def replayed(expansion: Expansion, config: Config, times: Array, accept: Array) -> tuple[Array, Array, Array]:
    """Return the order of the expanded commands, the cycles in which they are taken, and when commands are accepted.

    `times` [m, 3]: when the recorded run took, issued and finished each command, in its own order. `accept` [n]: when
    it accepted each command of the program; only those of fences are used.
    """
    total = len(expansion.prims)
    order, taken, accepted = np.full(total, UNREACHED), np.full(total, UNREACHED), np.full(len(accept), UNREACHED)
    done = times[:, 2].astype(np.int64)
    by_done = np.argsort(done, kind="stable")
    by_done = by_done[done[by_done] >= 0]
    cycles = int(max(times.max(), accept.max())) + 10
    wrong = _replay(
        build(config, config.memory_latency),
        plan(expansion, config),
        expansion.kind.astype(np.int64),
        expansion.unroller.astype(np.int64),
        done,
        by_done,
        accept.astype(np.int64),
        np.array([config.rs_load, config.rs_execute, config.rs_store]),
        cycles,
        order,
        taken,
        accepted,
    )
    assert wrong == UNREACHED, f"cycle {wrong} changed something without a reason"
    return order, taken, accepted


@compiled
def _replay(
    m: Array,
    plan: FrontPlan,
    kind: Array,
    unroller: Array,
    done: Array,
    by_done: Array,
    accept: Array,
    free: Array,
    cycles: int,
    order: Array,
    taken: Array,
    accepted: Array,
) -> int:
    """Return a cycle that changed something although the one before it did not and no input differs; else -1."""
    count, place, moved, was_quiet = 0, 0, True, False
    for cycle in range(cycles):
        offer = offered(m)
        take = offer != NONE and (offer < 0 or free[kind[offer]] > 0)  # below 0: a flush
        first = place
        while place < len(by_done) and done[by_done[place]] == cycle:
            prim = order[by_done[place]]
            if prim >= 0:
                note_finished(m, unroller[prim], kind[prim])
            place += 1
        if take and offer >= 0:
            if count < len(order):
                order[count], taken[count] = offer, cycle
            count += 1
            free[kind[offer]] -= 1
        for earlier in range(first, place):
            prim = order[by_done[earlier]]
            if prim >= 0:
                free[kind[prim]] += 1
        host = m[FRONT.next_host]
        quiet = host < len(accept) and cycle >= accept[host]
        before = moved
        moved = step(m, plan, accepted, cycle, take, quiet)
        if moved and not (before or take or place > first or (quiet and not was_quiet)):
            return cycle
        was_quiet = quiet
    return -1


def merged(expansion: Expansion, config: Config, delay: int) -> Array:
    """Return the order in which the commands are taken if each one is done `delay` cycles later, int64 [m]."""
    total = len(expansion.prims)
    order, taken = np.full(total, UNREACHED), np.full(total, UNREACHED)
    columns = expansion.kind.astype(np.int64), expansion.unroller.astype(np.int64)
    accepted = np.zeros(len(expansion.commands), np.int64)
    free = np.array([config.rs_load, config.rs_execute, config.rs_store])
    _merge(build(config, config.memory_latency), plan(expansion, config), *columns, free, delay, order, taken, accepted)
    assert (order >= 0).all(), "the front end has stopped"
    return order


@compiled
def _merge(
    m: Array,
    plan: FrontPlan,
    kind: Array,
    unroller: Array,
    free: Array,
    delay: int,
    order: Array,
    taken: Array,
    accepted: Array,
) -> None:
    count, done, cycle = 0, 0, 0
    while count < len(order) and cycle < 1000 + (delay + 20) * (len(order) + len(accepted)):
        offer = offered(m)
        take = offer != NONE and (offer < 0 or free[kind[offer]] > 0)
        first, quiet = done, done == count  # a command counts as busy in the cycle in which it is done
        while done < count and taken[done] + delay <= cycle:
            note_finished(m, unroller[order[done]], kind[order[done]])
            done += 1
        if take and offer >= 0:
            order[count], taken[count] = offer, cycle
            count += 1
            free[kind[offer]] -= 1
        for earlier in range(first, done):
            free[kind[order[earlier]]] += 1
        step(m, plan, accepted, cycle, take, quiet)
        cycle += 1
