"""Answers about time: why an instruction started when it did, which instructions wait, and what each unit does."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.debug.records import Queue, Unit, Wait
from tilewright.sim.steps import NEVER, NO_STEP, Fetched
from tilewright.sim.walk import Walk


def why(walk: Walk, step: int) -> list[Wait]:
    """Return the waits of instruction `step`: for its unit, for its tokens, and for its command.

    Waits are in descending order of their end, so the first wait decided when the instruction started.
    """
    trace = walk.trace
    table = walk.table
    waits: list[tuple[int, Wait]] = []
    before = previous(walk, step)
    if before is not None:
        end = int(trace.until[before]) if trace else None
        unit = walk.unit_of(step)
        waits.append((end or 0, Wait(step, end, None, f"unit {unit} was busy with #{before} until", before)))
    for queue in table.queues_in(int(table.pops[step])):
        giver = int(walk.order.giver[step, queue])
        name = table.queues[queue].name
        if giver == NEVER:
            # This wait never ends, so it comes first.
            waits.append(
                (1 << 62, Wait(step, None, None, f"no instruction pushes the {name} token that it pops", None))
            )
        elif giver != NO_STEP:
            end = int(trace.end[giver]) if trace else None
            waits.append((end or 0, Wait(step, end, None, f"#{giver} pushed its {name} token at", giver)))
    if trace and trace.cause_names()[int(trace.cause[step])] == "instruction fetch":
        at = int(trace.start[step])
        # at + 1: if other waits end in the same cycle, the cause in the trace comes first.
        waits.append((at + 1, Wait(step, at, None, "its command was fetched and delivered at", None)))
    waits.sort(key=lambda item: -item[0])
    return [wait for _, wait in waits]


def waiting_for(walk: Walk, step: int) -> list[Wait]:
    """Return the instructions that wait for `step` to push a token, to free its unit, or to make room in a queue."""
    trace = walk.trace
    table = walk.table
    waits = []
    # `takers` pop a token that `step` pushes. `room` lists instructions that push into a queue entry that `step` frees.
    takers = np.argwhere(walk.order.giver == step)
    room = np.argwhere(table.makes_room == step)
    for (waiter, queue), what in [*((row, "token") for row in takers), *((row, "room") for row in room)]:
        cause = f"waits for the {table.queues[queue].name} token" if what == "token" else "waits for room in the queue"
        waits.append(_wait(walk, int(waiter), cause, step))
    of_unit = np.flatnonzero(table.unit == table.unit[step])
    after = of_unit[of_unit > step]
    if after.size:
        waits.append(_wait(walk, int(after[0]), f"is next on unit {walk.unit_of(step)}", step))
    if trace is None:
        return waits
    return sorted(waits, key=lambda wait: wait.since or 0)


def _wait(walk: Walk, waiter: int, cause: str, step: int) -> Wait:
    trace = walk.trace
    if trace is None:
        return Wait(waiter, None, None, cause, step)
    idle = int(trace.wait[waiter])
    return Wait(waiter, int(trace.start[waiter]) - idle, idle, cause, step)


def previous(walk: Walk, step: int) -> int | None:
    """Return the previous instruction on the same unit, or None if `step` is the first one."""
    earlier = np.flatnonzero(walk.table.unit[:step] == walk.table.unit[step])
    return int(earlier[-1]) if earlier.size else None


def units(walk: Walk, done: Array, cycle: int | None) -> list[Unit]:
    """Return the work of each unit in cycle `cycle` (None: after the instructions `done`, bool [n])."""
    begun, ended, over = _progress(walk, done, cycle)
    answers = []
    for unit, name in enumerate(walk.table.units):
        of_unit = np.flatnonzero(walk.table.unit == unit)
        started = of_unit[begun[of_unit]]
        rest = of_unit[~begun[of_unit]]
        # A unit starts its instructions in order, so only the instruction that it started last can still be running.
        doing = int(started[-1]) if started.size and not over[started[-1]] else None
        following = int(rest[0]) if rest.size else None
        until = int(walk.trace.until[doing]) if walk.trace and doing is not None else None
        waits = "" if following is None or doing is not None else _waits(walk, following, ended, cycle)
        shown = doing if doing is not None else following
        answers.append(Unit(name, doing, until, following, waits, walk.text(shown) if shown is not None else ""))
    if walk.trace and walk.trace.fetched and cycle is not None:
        answers.append(_fetch(walk, walk.trace.fetched, cycle))
    return answers


def _fetch(walk: Walk, fetched: Fetched, cycle: int) -> Unit:
    """Return the work of fetch in cycle `cycle`: a read of commands, or the next command that it delivers."""
    undelivered = np.flatnonzero(fetched.delivered > cycle)
    following = int(undelivered[0]) if undelivered.size else None
    for first, last, start, end in fetched.reads():
        if start <= cycle < end:
            return Unit("fetch", first, end, following, "", f"reads #{first} to #{last}")
    waits = ""
    if following is not None and any(step == following and start <= cycle for step, start, _ in fetched.blocked()):
        waits = f"waits for room in the queue of {walk.unit_of(following)}"
    return Unit("fetch", None, None, following, waits, walk.text(following) if following is not None else "")


def _progress(walk: Walk, done: Array, cycle: int | None) -> tuple[Array, Array, Array]:
    trace = walk.trace
    if trace is None or cycle is None:
        return done, done, done
    return trace.start <= cycle, trace.end <= cycle, trace.until <= cycle


def _waits(walk: Walk, step: int, ended: Array, cycle: int | None) -> str:
    table = walk.table
    for queue in table.queues_in(int(table.pops[step])):
        giver = int(walk.order.giver[step, queue])
        name = table.queues[queue].name
        if giver == NEVER:
            return f"waits for a {name} token that no instruction pushes"
        if giver != NO_STEP and not ended[giver]:
            return f"waits for the {name} token of #{giver}"
    return "" if walk.trace is None or cycle is None else "waits for its command"


def queues(walk: Walk, done: Array, cycle: int | None) -> list[Queue]:
    """Return the tokens in each queue at the moment that `cycle` and `done` describe (see `units`)."""
    table = walk.table
    answers = []
    begun, ended, _ = _progress(walk, done, cycle)
    for index, queue in enumerate(table.queues):
        pushes = np.flatnonzero(table.pushes >> index & 1)
        popped = int((begun & (table.pops >> index & 1 > 0)).sum())
        # A queue is first in, first out: its remaining tokens are the last tokens pushed.
        inside = pushes[ended[pushes]][popped:]
        answers.append(Queue(queue.name, len(inside), queue.depth, tuple(inside.tolist())))
    return answers
