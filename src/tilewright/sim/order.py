"""The happens-before relation of steps, from program order in each unit and from tokens, without times.

A token queue is a FIFO with one producer and one consumer, so its k-th pop always receives the token of its k-th push:
the relation is static. For every unit, the vector clock of a step has the number of steps that certainly end before
this step starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import le
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.sim.findings import DEADLOCK, LEAK, Finding
from tilewright.sim.jit import compiled, part
from tilewright.sim.steps import NEVER, NO_STEP, StepTable

#: Microseconds that uncompiled _run_all takes per step.
STEP_US = 6


@dataclass(frozen=True, eq=False)
class Order:
    """The happens-before relation of n steps, and one legal order.

    `sequence` lists the steps that can run, in an order that the tokens allow: all n steps, or fewer if the program
    deadlocks. `giver[s, q]` is the step that pushes the token that step s pops from queue q: NO_STEP if step s pops no
    token, and NEVER if no step pushes the token. `clock[s, u]` is the number of steps of unit u that end before step s
    starts. `rank` [n] is the position of a step in its unit.
    """

    sequence: Array
    giver: Array
    clock: Array
    rank: Array
    findings: tuple[Finding, ...]

    @property
    def complete(self) -> bool:
        return len(self.sequence) == len(self.rank)


def order(table: StepTable) -> Order:
    """Return the happens-before relation of a program, with its findings: a deadlock, and tokens that no step pops."""
    start, steps = table.by_unit
    rank = np.empty(len(table), np.int64)
    rank[steps] = np.arange(len(table)) - start[table.unit[steps]]
    giver, left = match_tokens(table)
    sequence, clock, position = _simulated(table, giver, rank, np.zeros(len(table.units), np.int64))
    findings = [*_deadlock(table, start, steps, giver, position), *_leftovers(table, left)]
    return Order(sequence, giver, clock, rank, tuple(findings))


def match_tokens(table: StepTable) -> tuple[Array, Array]:
    """Return `Order.giver`, and the leftover tokens: for each step, a mask of queues where no step pops its token."""
    giver = np.full((len(table), len(table.queues)), NO_STEP, np.int64)
    left = table.pushes.copy()
    _match.of(len(table) * STEP_US)(table.pops, table.pushes, giver, left)
    return giver, left


@compiled
def _match(pops: Array, pushes: Array, giver: Array, left: Array) -> None:
    """Match pops with pushes in FIFO order, and write the results of `match_tokens`.

    Initially, `giver` is NO_STEP and `left` equals `pushes`. The k-th pop matches the k-th push, even if the pop
    precedes the push in the stream, because the two units run in parallel.
    """
    count = pops.shape[0]
    for q in range(giver.shape[1]):
        source = 0  # all pushes of earlier steps are matched
        for step in range(count):
            if pops[step] >> q & 1:
                while source < count and not pushes[source] >> q & 1:
                    source += 1
                if source < count:
                    giver[step, q] = source
                    left[source] ^= 1 << q
                    source += 1
                else:
                    giver[step, q] = NEVER


def runs_in_stream_order(table: StepTable, order: Order) -> bool:
    """Return whether the program can run one step at a time, in stream order.

    The result is False if a step pops a token that a later step pushes, or if a step pushes a token for which only a
    later step makes room. Such a program may run on the machine without a deadlock, because units run in parallel.
    """
    if not order.complete:
        return False
    step = np.arange(len(table))[:, None]
    room = table.makes_room
    return bool((order.giver < step).all() and (room < step).all() and (room != NEVER).all())


def sequence_by_time(order: Order, start: Array) -> Array:
    """Return the steps sorted by `start`. Steps with the same start stay in a legal order (push before pop)."""
    return order.sequence[np.argsort(start[order.sequence], kind="stable")]


def eager_sequence(table: StepTable, order: Order, priority: Sequence[int]) -> Array:
    """Return a legal order of the steps: the next step is always from the runnable unit with the lowest `priority`."""
    return _simulated(table, order.giver, order.rank, np.array(priority, np.int64)).sequence


class _Program(NamedTuple):
    """The steps of a launch. Unit u executes `steps[start[u]:start[u + 1]]`; `giver` and `rank` are fields of Order."""

    start: Array
    steps: Array
    unit: Array
    giver: Array
    rank: Array


class _Simulation(NamedTuple):
    """The results of `_run_all`: the steps that ran, in order; vector clocks [n, units]; each unit's next position."""

    sequence: Array
    clock: Array
    position: Array


def _simulated(table: StepTable, giver: Array, rank: Array, priority: Array) -> _Simulation:
    start, steps = table.by_unit
    count = len(table)
    results = _Simulation(np.empty(count, np.int64), np.zeros((count, len(table.units)), np.int64), start[:-1].copy())
    done = np.zeros(count, np.bool_)
    ran = _run_all.of(count * STEP_US)(_Program(start, steps, table.unit, giver, rank), priority, done, results)
    return results._replace(sequence=results.sequence[:ran])


@compiled
def _run_all(program: _Program, priority: Array, done: Array, results: _Simulation) -> int:
    """Run all steps that can run, write the `results`, and return the number of steps that ran.

    The next step is always from the runnable unit with the lowest `priority`. For equal priorities, it is the first of
    these steps in the stream. Initially, `done` bool [n] is False, clocks are zero, and each unit is at its first step.
    """
    start = program.start
    steps = program.steps
    unit = program.unit
    giver = program.giver
    rank = program.rank
    units = start.shape[0] - 1
    count = unit.shape[0]
    sequence = results.sequence
    clock = results.clock
    position = results.position
    emitted = 0
    while True:
        best = count
        for u in range(units):
            if position[u] < start[u + 1]:
                step = steps[position[u]]
                first = best == count or (priority[u], step) < (priority[unit[best]], best)
                if first and _ready(giver, done, step):
                    best = step
        if best == count:
            break
        # A step waits for the previous step of its unit, and for the steps that pushed its tokens. Its clock is the
        # maximum of the clocks of these steps, each raised by the step itself: for a step of rank r, the entry of its
        # unit becomes r + 1.
        u = int(unit[best])
        if rank[best] > 0:
            before = steps[position[u] - 1]
            for v in range(units):
                clock[best, v] = clock[before, v]
            clock[best, u] = rank[best]
        for q in range(giver.shape[1]):
            g = giver[best, q]
            if g >= 0:
                for v in range(units):
                    clock[best, v] = max(clock[best, v], clock[g, v])
                clock[best, unit[g]] = max(clock[best, unit[g]], rank[g] + 1)
        done[best] = True
        position[u] += 1
        sequence[emitted] = best
        emitted += 1
    return emitted


@part
def _ready(giver: Array, done: Array, step: int) -> bool:
    for q in range(giver.shape[1]):
        g = giver[step, q]
        if g == NEVER or (g >= 0 and not done[g]):
            return False
    return True


def random_sequence(table: StepTable, order: Order, seed: int) -> Array:
    """Return the steps in a random order that program order and tokens allow. In this order, a race may be harmless."""
    rng = np.random.default_rng(seed)
    # With an alpha below 1, the weights are very different, so that some units run far ahead of others.
    weight = (rng.dirichlet(np.full(len(table.units), 0.3)) + 1e-6).tolist()
    runnable = np.sort(order.sequence)
    queues = [runnable[table.unit[runnable] == unit].tolist() for unit in range(len(table.units))]
    clock = order.clock.tolist()
    done = [0] * len(queues)
    sequence: list[int] = []
    for draw in rng.random(len(runnable)).tolist():
        heads = [(unit, steps[done[unit]]) for unit, steps in enumerate(queues) if done[unit] < len(steps)]
        ready = [head for head in heads if all(map(le, clock[head[1]], done))]  # all preceding steps have ended
        reached = accumulate(weight[unit] for unit, _ in ready)
        target = draw * sum(weight[unit] for unit, _ in ready)
        unit, step = next((head for head, high in zip(ready, reached, strict=True) if target < high), ready[-1])
        sequence.append(step)
        done[unit] += 1
    return np.array(sequence, np.int64)


def _deadlock(table: StepTable, start: Array, steps: Array, giver: Array, position: Array) -> list[Finding]:
    """Return a finding with each blocked step, the token for which it waits, and the unit that should push this token.

    For each unit, `position` is the index in `steps` of the first step that did not run. If all steps ran, there is no
    finding.
    """
    blocked = [u for u in range(len(table.units)) if position[u] < start[u + 1]]
    if not blocked:
        return []
    waits = []
    first_queue = ""
    for u in blocked:
        step = int(steps[position[u]])
        for q in table.queues_in(int(table.pops[step])):
            queue = table.queues[q]
            source = int(giver[step, q])
            if source == NEVER:
                why = f"no instruction of {table.units[queue.producer]} pushes it"
                first_queue = first_queue or queue.name
            elif source in steps[position[queue.producer] : start[queue.producer + 1]]:
                why = f"#{source} {table.describe(source)} would push it but is blocked itself"
            else:
                continue
            waits.append(f"{table.units[u]} waits at #{step} {table.describe(step)} for a {queue.name} token; {why}")
    at = tuple(int(steps[position[u]]) for u in blocked)
    return [Finding(DEADLOCK, "; ".join(waits), at, queue=first_queue)]


def _leftovers(table: StepTable, unused: Array) -> list[Finding]:
    findings = []
    for index in table.queues_in(int(np.bitwise_or.reduce(unused))):
        queue = table.queues[index]
        left = np.flatnonzero(unused >> index & 1)
        pushes, pops = (np.count_nonzero(column >> index & 1) for column in (table.pushes, table.pops))
        message = (
            f"{len(left)} token(s) stay in {queue.name}: {table.units[queue.producer]} pushes {pushes}, "
            f"{table.units[queue.consumer]} pops {pops}; the first without a pop is pushed by "
            f"#{left[0]} {table.describe(int(left[0]))}"
        )
        findings.append(Finding(LEAK, message, tuple(int(step) for step in left[:8]), queue=queue.name))
    return findings
