"""Happens-before, deadlocks and leftovers; races against a brute-force reading of the definition."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tests.sim.programs import QUEUES, random_table, table
from tilewright.array import Array
from tilewright.sim.findings import DEADLOCK, LEAK, OUT_OF_RANGE, RACE, UNINITIALISED
from tilewright.sim.hazards import MAX_EVENTS, hazards, out_of_range
from tilewright.sim.order import Order, order, random_sequence, runs_in_stream_order, sequence_by_time
from tilewright.sim.steps import READ, WRITE, StepTable, runs

SEED = 20261121
L2C, C2L = 1, 2  # queue bits


def before(steps: StepTable, relation: Order) -> Array:
    """Happens-before by transitive closure, from program order and first-in-first-out token matching."""
    count = len(steps)
    edges = np.zeros((count, count), np.bool_)
    for a, b in itertools.combinations(range(count), 2):
        edges[a, b] = steps.unit[a] == steps.unit[b]
    for index in range(len(QUEUES)):
        pushes = [s for s in range(count) if steps.pushes[s] >> index & 1]
        pops = [s for s in range(count) if steps.pops[s] >> index & 1]
        for a, b in zip(pushes, pops, strict=False):
            edges[a, b] = True
    for middle in range(count):
        edges |= edges[:, [middle]] & edges[[middle], :]
    return edges


def elements(steps: StepTable, step: int, mode: int) -> set[int]:
    rows = steps.footprints.of_step(int(steps.footprint[step]))
    return {e for row in rows if row[1] & mode for e in range(row[2], row[2] + row[3])}


@pytest.mark.parametrize("trial", range(60))
def test_clocks_and_races_equal_the_definition(trial: int) -> None:
    steps = random_table(np.random.default_rng(SEED + trial), 24)
    relation = order(steps)
    assert relation.complete
    closure = before(steps, relation)
    for a in range(len(steps)):
        for b in range(len(steps)):
            known = relation.clock[b, steps.unit[a]] > relation.rank[a]
            assert known == closure[a, b], f"seed {SEED + trial}: {a} before {b}"
    racing = {
        e
        for a, b in itertools.combinations(range(len(steps)), 2)
        if steps.unit[a] != steps.unit[b] and not closure[a, b] and not closure[b, a]
        for e in (elements(steps, a, WRITE) & elements(steps, b, READ | WRITE))
        | (elements(steps, a, READ) & elements(steps, b, WRITE))
    }
    found = hazards(steps, relation)
    reported = {e for f in found if f.kind == RACE for low, high in f.ranges for e in range(low, high)}
    assert reported == racing, f"seed {SEED + trial}"
    for finding in found:
        a, b = finding.steps
        assert not closure[a, b] and not closure[b, a]


@pytest.mark.parametrize("trial", range(10))
def test_random_orders_respect_happens_before(trial: int) -> None:
    steps = random_table(np.random.default_rng(SEED - trial), 24)
    relation = order(steps)
    sequence = random_sequence(steps, relation, trial)
    assert sorted(sequence) == sorted(relation.sequence)
    position = {int(step): place for place, step in enumerate(sequence)}
    closure = before(steps, relation)
    for a, b in itertools.permutations(position, 2):
        assert not closure[a, b] or position[a] < position[b], f"seed {SEED - trial}"


def test_random_orders_leave_out_what_cannot_run() -> None:
    steps = table([0, 1, 1, 0], [0, L2C, 0, 0], [0, 0, 0, 0], [nothing()] * 4)
    relation = order(steps)
    assert {tuple(random_sequence(steps, relation, seed)) for seed in range(9)} == {(0, 3)}


def nothing() -> Array:
    return runs(0, READ, np.zeros(0, np.int64))


def test_a_starved_pop_is_a_deadlock_that_names_who_should_push() -> None:
    steps = table([0, 1], [0, L2C], [0, 0], [nothing(), nothing()])
    relation = order(steps)
    (finding,) = relation.findings
    assert (finding.kind, finding.queue, finding.steps) == (DEADLOCK, "load->compute", (1,))
    assert "no instruction of load pushes it" in finding.message
    assert relation.sequence.tolist() == [0]


def test_a_cycle_is_a_deadlock_that_names_both() -> None:
    steps = table([0, 1], [C2L, L2C], [L2C, C2L], [nothing(), nothing()])
    (finding,) = order(steps).findings
    assert finding.kind == DEADLOCK
    assert "load waits at #0" in finding.message and "compute waits at #1" in finding.message


def test_a_token_left_over_is_named() -> None:
    (finding,) = order(table([0, 1], [0, 0], [L2C, 0], [nothing(), nothing()])).findings
    assert (finding.kind, finding.queue, finding.steps) == (LEAK, "load->compute", (0,))


def test_a_race_names_both_steps_the_range_and_the_missing_token() -> None:
    touch = [runs(0, WRITE, np.arange(0, 4)), runs(0, READ, np.arange(2, 6))]
    steps = table([0, 1], [0, 0], [0, 0], touch)
    (finding,) = [f for f in hazards(steps, order(steps)) if f.kind == RACE]
    assert (finding.steps, finding.space, finding.low, finding.high) == ((0, 1), "sram", 2, 4)
    assert "a load->compute token pushed by #0 or later and popped by #1 or earlier is missing" in finding.message


def test_the_token_removes_the_race() -> None:
    touch = [runs(0, WRITE, np.arange(0, 4)), runs(0, READ, np.arange(2, 6))]
    steps = table([0, 1], [0, L2C], [L2C, 0], touch)
    assert hazards(steps, order(steps)) == []


def test_unwritten_and_outside_elements_are_found() -> None:
    steps = table([0, 1], [0, 0], [0, 0], [runs(0, WRITE, np.arange(2)), runs(0, READ, np.arange(4, 6))], filled=False)
    (finding,) = hazards(steps, order(steps))
    assert (finding.kind, finding.low, finding.high) == (UNINITIALISED, 4, 6)
    (finding,) = out_of_range(table([0], [0], [0], [runs(0, READ, np.arange(6, 9))]))
    assert (finding.kind, finding.low, finding.high) == (OUT_OF_RANGE, 6, 9)


def test_an_instruction_outside_in_very_many_places_is_told_no_more_often_than_the_limit() -> None:
    asked: list[int] = []

    def describe(step: int) -> str:
        asked.append(step)
        return "load"

    steps = table([0, 1], [0, 0], [0, 0], [runs(0, READ, np.arange(9, 100_000, 2))] * 2)
    assert len(out_of_range(replace(steps, describe=describe))) == len(asked) == MAX_EVENTS


@pytest.mark.parametrize("trial", range(40))
def test_steps_run_in_stream_order_where_counting_tokens_says_so(trial: int) -> None:
    rng = np.random.default_rng(SEED + trial)
    steps = random_table(rng, 8)
    if trial % 2:  # any stream order of the same units
        mixed = rng.permutation(len(steps))
        mixed[np.argsort(steps.unit[mixed], kind="stable")] = mixed[np.lexsort((mixed, steps.unit[mixed]))]
        steps = replace(steps, unit=steps.unit[mixed], pops=steps.pops[mixed], pushes=steps.pushes[mixed])
    depth = int(rng.integers(1, 4))
    steps = replace(steps, queues=tuple(replace(queue, depth=depth) for queue in steps.queues))
    counts, possible = np.zeros(len(QUEUES), np.int64), True
    for pops, pushes in zip(steps.pops.tolist(), steps.pushes.tolist(), strict=True):
        counts -= [pops >> index & 1 for index in range(len(QUEUES))]
        possible &= counts.min() >= 0
        counts += [pushes >> index & 1 for index in range(len(QUEUES))]
        possible &= counts.max() <= depth
    relation = order(steps)
    assert relation.complete
    assert runs_in_stream_order(steps, relation) == possible, f"seed {SEED + trial}"


def test_of_steps_that_start_together_the_giver_goes_first() -> None:
    """A step that takes no time gives its token in the cycle in which it starts."""
    nothing = runs(0, READ, np.arange(0))
    steps = table([1, 0, 0], [L2C, 0, 0], [0, L2C, 0], [nothing] * 3)
    assert sequence_by_time(order(steps), np.array([5, 5, 9])).tolist() == [1, 0, 2]
    assert sequence_by_time(order(steps), np.array([9, 5, 5])).tolist() == [1, 2, 0]
