"""The critical path: every cycle has one cause, and only steps on the path decide when a launch ends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.sim.programs import random_table
from tests.targets.vta.gateware.machines import MACHINES, dram_of
from tests.targets.vta.streams import BASES, random_case
from tilewright.array import Array
from tilewright.errors import HazardError
from tilewright.sim.causes import COMMANDS, FETCH, QUEUE, WORK
from tilewright.sim.costs import Channel, Costs, Fetch, Simulated, Units
from tilewright.sim.order import Order, order
from tilewright.sim.passes import RunOptions
from tilewright.sim.steps import StepTable, Trace
from tilewright.sim.timeline import timeline
from tilewright.targets.vta.isa.stream import encode
from tilewright.targets.vta.passes import run_passes
from tilewright.targets.vta.timing import MODELS


@pytest.mark.parametrize(("model", "name"), [(model, name) for model in MODELS for name in MACHINES])
def test_stretches_lie_in_their_steps_and_fill_the_launch(name: str, model: str) -> None:
    config, kinds = MACHINES[name], set[int]()
    for seed in range(12):
        case = random_case(np.random.default_rng(seed), config, 1)
        options = RunOptions(model, check=False, values=False)
        trace = run_passes(encode(case.records, config), config, dram_of(case), BASES, 1, options).trace
        if trace is None or not trace.cycles:
            continue
        path = trace.path
        assert path is not None
        begin = np.concatenate([[0], path.end[:-1]])
        assert (begin <= path.end).all() and path.end[-1] == trace.cycles, f"seed {seed}"
        inside = ~np.isin(path.kind, (FETCH, QUEUE, COMMANDS)) & (path.end > begin)
        steps = path.step[inside]
        assert (trace.start[steps] <= begin[inside]).all() and (path.end[inside] <= trace.end[steps]).all(), (
            f"seed {seed}"
        )
        assert sum(trace.causes("")[0].values()) == trace.cycles
        half = trace.cycles // 2
        first, second = trace.causes("", [half, trace.cycles])
        assert (sum(first.values()), sum(second.values())) == (half, trace.cycles - half)
        kinds |= set(path.kind.tolist())
    assert WORK in kinds or model == "ideal"


def timed(table: StepTable, relation: Order, busy: Array) -> Trace:
    """Steps that only work: there is no DRAM port, and all commands are there at the start."""
    zero = np.zeros(len(busy), np.int64)
    no_port, no_fetch = Channel(8, 3, burst=0), Fetch(insn_bytes=1, depth=0)
    return timeline(
        table, relation, Simulated(Costs.of(zero, busy, zero, zero, zero), no_port, no_fetch, Units(room=1))
    )


@pytest.mark.parametrize("depth", [1, 2, 9])
def test_only_steps_on_the_path_decide_the_end(depth: int) -> None:
    """A cycle more for a step on the path ends the launch later; one less for any other step does not matter."""
    tried, full = [0, 0], 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        table = random_table(rng, 20)
        table = replace(table, queues=tuple(replace(queue, depth=depth) for queue in table.queues))
        relation, busy = order(table), rng.integers(1, 30, len(table))
        try:
            before = timed(table, relation, busy)
        except HazardError:  # a queue fills for good
            continue
        assert before.path is not None
        cycles = np.diff(before.path.end, prepend=0)
        worked = np.bincount(before.path.step, cycles * (before.path.kind == WORK), len(busy)) > 0
        full += int(cycles[before.path.kind == QUEUE].sum())
        for step in range(len(busy)):
            changed = busy.copy()
            changed[step] += 1 if worked[step] else -1
            assert timed(table, relation, changed).cycles == before.cycles + worked[step], f"seed {seed}, step {step}"
            tried[int(worked[step])] += 1
    assert min(tried) > 300 and (full > 0) == (depth < 9), (tried, full)


def test_the_wait_behind_a_full_command_queue_is_charged_to_the_queue() -> None:
    """Unit 0 has three long steps, then unit 1 its only step: with queues of one command, fetch stops before it."""
    steps = 4
    zero = np.zeros(steps, np.int64)
    unit = np.array([0, 0, 0, 1])
    table = replace(random_table(np.random.default_rng(0), steps), unit=unit, pops=zero, pushes=zero)
    busy = np.array([10, 10, 10, 50])
    costs = Costs.of(zero, busy, zero, zero, zero)
    charged = {}
    for depth in (1, 8):
        fetch = Fetch(insn_bytes=8, depth=depth)
        trace = timeline(table, order(table), Simulated(costs, Channel(8, 3), fetch, Units(room=1)))
        charged[depth] = trace.causes("")[0].get("command queue full", 0), trace.cycles
        assert trace.fetched is not None
        assert [(first, last) for first, last, _, _ in trace.fetched.reads()] == [(0, 3)]
        blocked = {step: end - start for step, start, end in trace.fetched.blocked()}
        assert (blocked.get(2, 0) >= 10 - 3) == (depth == 1)
    assert charged[8][0] == 0
    # The command of step 2 waits in fetch until step 1 starts, 10 cycles after step 0. So does the one behind it.
    assert charged[1][0] >= 10 - 3
    assert charged[1][1] > charged[8][1]
