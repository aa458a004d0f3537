"""Layers that are marked optimal: the unit that computes them never waits, and no order of their steps is faster."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from tests.targets.vta.networks import Builder
from tests.targets.vta.timed import Record, alu, config_of, elaborated, gemm, random_program, traced
from tilewright.errors import HazardError
from tilewright.graph.ops import Conv2D
from tilewright.program import stages
from tilewright.report.page.static import _optimal
from tilewright.run import run
from tilewright.sim.costs import least_cycles
from tilewright.targets import get
from tilewright.targets.vta.compiler.explain import explain
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.isa.fields import Memory, Opcode
from tilewright.targets.vta.timing import MODELS
from tilewright.targets.vta.timing.limits import arguments, delivered

UOPS: Record = {"opcode": Opcode.LOAD, "memory_type": Memory.UOP, "x_size": 1, "y_size": 1, "x_stride": 1}
INPUT: Record = {**UOPS, "memory_type": Memory.INP, "x_size": 40, "x_stride": 40, "push_next": 1}
STORE: Record = {**UOPS, "opcode": Opcode.STORE, "memory_type": Memory.OUT, "pop_prev": 1, "push_prev": 1}
FINISH: Record = {"opcode": Opcode.FINISH}


def marks(records: list[Record], layers: list[int], name: str, config: Config | None = None) -> list[str]:
    """The argument for each layer of a launch; `layers` has the layer of each record."""
    config = config or config_of()
    program, trace = elaborated(records, config), traced(records, config, name)
    return arguments(program, trace, np.array(layers), max(layers) + 1, name)


@pytest.mark.parametrize("name", MODELS)
def test_a_layer_that_never_waits_is_optimal_and_no_order_of_its_instructions_is_faster(name: str) -> None:
    layer = [gemm(200), alu(50), UOPS, gemm(30)]
    found = marks([gemm(100), *layer, gemm(70), FINISH], [0, 1, 1, 1, 1, 2, 2], name)
    assert found[1].startswith("no order of its instructions takes fewer cycles: compute needs all of its ")
    assert "for products" in found[1] and "for ALU operations" in found[1] and "for its own loads" in found[1]
    cycles = [traced([gemm(100), *order, gemm(70), FINISH], config_of(), name).cycles for order in permutations(layer)]
    assert cycles[0] == min(cycles)


@pytest.mark.parametrize("name", MODELS)
def test_a_layer_that_waits_for_its_input_is_not_optimal(name: str) -> None:
    waits = [gemm(10), INPUT, gemm(200, pop_prev=1), alu(50), gemm(70), FINISH]
    assert marks(waits, [0, 1, 1, 1, 2, 2], name)[1] == ""
    early = [INPUT, gemm(400), gemm(200, pop_prev=1), alu(50), gemm(70), FINISH]
    assert marks(early, [1, 0, 1, 1, 2, 2], name)[1], "the same layer, whose input came during the layer before it"


@pytest.mark.parametrize("name", MODELS)
def test_one_cycle_of_waiting_is_too_much(name: str) -> None:
    waits = {}
    for before in range(1, 140):
        records = [INPUT, gemm(before), gemm(200, pop_prev=1), gemm(70), FINISH]
        waits[int(traced(records, config_of(), name).wait[2])] = bool(marks(records, [1, 0, 1, 2, 2], name)[1])
    assert waits[0] and not waits[1] and sum(waits.values()) == 1


@pytest.mark.parametrize("name", MODELS)
def test_a_whole_launch_is_optimal_with_its_first_instruction_and_its_last_store(name: str) -> None:
    whole = [gemm(50, push_next=1), STORE, {**FINISH, "pop_next": 1}]
    (argument,) = marks(whole, [0, 0, 0], name)
    assert "to fill and drain the machine" in argument
    assert f"of its {traced(whole, config_of(), name).cycles:,}," in argument
    first = {**STORE, "x_size": 50, "push_prev": 0}
    behind = [gemm(50, push_next=1), first, {**STORE, "pop_prev": 0}, {**FINISH, "pop_next": 1}]
    assert marks(behind, [0] * 4, name) == [""], "a store waits for another one"


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("seed", range(12))
def test_no_step_occupies_its_unit_for_less_than_its_least_time(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    config = config_of(dram_latency=int(rng.integers(1, 60)), queue_depth=int(rng.integers(4, 40)))
    records = random_program(rng, int(rng.integers(5, 80)))
    program = elaborated(records, config)
    try:
        trace = traced(records, config, name)
    except HazardError:
        pytest.skip(f"seed {seed}: a deadlock")
    simulated = MODELS[name].simulated(program, MODELS[name])
    needed = least_cycles(simulated)
    assert trace.start.min() >= delivered(simulated), f"seed {seed}"
    first, steps = trace.table.by_unit
    for low, high in zip(first.tolist(), first[1:].tolist(), strict=False):
        mine = steps[low:high]
        occupied = np.append((trace.start - trace.wait)[mine][1:], trace.cycles) - trace.start[mine]
        assert (occupied >= needed[mine]).all(), f"seed {seed}"


def test_explain_run_and_page_show_the_mark() -> None:
    """Four layers in one launch: the input of each but the first is on the chip, and weights come a layer earlier."""
    builder = Builder(np.random.default_rng(2))
    x = builder.given((1, 14, 14, 32))
    for _ in range(4):
        x = builder.linear(Conv2D("none"), x, (32, 1, 1, 32), 0)
    machine = PRESETS["pynq"].with_overrides({"alu": "fused"})
    program = get("vta").compile(builder.graph(), machine, "tflm")
    lines = stages.text(explain(program, "tilewright")).splitlines()
    cycles = next(line for line in lines if "cycles (timing model tilewright)" in line)
    below = [text.split(":")[0].strip() for text in lines[lines.index(cycles) :]]
    assert below[1:8] == ["n0", "n1", "optimal", "n2", "optimal", "n3", "optimal"]
    layers = run(program, np.zeros((1, 1, 14, 14, 32), np.int8)).layers
    assert [bool(layer.optimal) for layer in layers] == [False, True, True, True]
    assert [f"      optimal: {layer.optimal}" in lines for layer in layers[1:]] == [True] * 3
    assert [layer.optimal in _optimal(layer.to_json()) for layer in layers[1:]] == [True] * 3
    assert _optimal(layers[0].to_json()) == ""
