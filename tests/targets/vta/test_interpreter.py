"""Random instruction streams on three and four stages and every ALU against an interpreter written apart.

Values are compared in the order of the stream and in random legal ones, findings with a brute-force search for
touches that no chain of tokens orders.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from tests.targets.vta.interpreter import (
    Element,
    Interpreter,
    Record,
    divide_by_pot,
    evaluate,
    evaluate_req,
    high_mul,
)
from tests.targets.vta.records import ADD, MULH, RSHR, SHR, unit_of
from tests.targets.vta.streams import BASES, INT_MAX, INT_MIN, MACHINES, Case, dram_of, random_case
from tilewright.array import Array
from tilewright.sim.findings import LEAK, RACE, UNINITIALISED
from tilewright.sim.passes import RunOptions
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.alu import (
    SEMANTICS,
    AluOp,
    Form,
    operate,
    requantise,
)
from tilewright.targets.vta.isa.stream import encode
from tilewright.targets.vta.passes import run_passes
from tilewright.targets.vta.values.machine import Machine

HLS = SEMANTICS["hls"]


def before(config: Config, records: list[Record]) -> list[int]:
    """For each instruction the set (bit mask) of those that surely end first: program order and tokens."""
    units = [unit_of(record, config.stages) for record in records]
    queues: dict[tuple[int, int], list[int]] = {}
    last: dict[int, int] = {}
    known: list[int] = []
    for index, (record, unit) in enumerate(zip(records, units, strict=True)):
        givers = [last[unit]] if unit in last else []
        for other, pop in ((unit - 1, "pop_prev"), (unit + 1, "pop_next")):
            if record.get(pop):
                givers.append(queues[other, unit].pop(0))
        known.append(0)
        for giver in givers:
            known[index] |= known[giver] | 1 << giver
        for other, push in ((unit - 1, "push_prev"), (unit + 1, "push_next")):
            if record.get(push):
                queues.setdefault((unit, other), []).append(index)
        last[unit] = index
    return known


def races(config: Config, case: Case, oracle: Interpreter) -> dict[Element, set[tuple[int, int]]]:
    """For each element the pairs of instructions that touch it, one writing, in no order."""
    known, touched = before(config, case.records), oracle.touched
    found: dict[Element, set[tuple[int, int]]] = {}
    units = [unit_of(record, config.stages) for record in case.records]
    for b, (reads_b, writes_b) in touched.items():
        for a in range(b):
            reads_a, writes_a = touched[a]
            if units[a] != units[b] and not known[b] >> a & 1:
                for element in writes_a & (reads_b | writes_b) | reads_a & writes_b:
                    found.setdefault(element, set()).add((a, b))
    return found


def interpret(config: Config, case: Case, order: Array) -> list[Interpreter]:
    """One interpreter a sample, after the run."""
    samples = []
    for dram in case.dram:
        samples.append(Interpreter(config, case.records, case.uops, dram.copy(), BASES))
        samples[-1].run(order.tolist())
    return samples


def check_case(config: Config, case: Case, rng: np.random.Generator) -> int:
    """Values in three orders, and findings; returns how many races there are."""
    count = len(case.records)
    raw, samples = encode(case.records, config), len(case.dram)
    oracle = interpret(config, case, np.arange(count))
    expected = races(config, case, oracle[0])
    pairs = set().union(*expected.values())
    on_chip = {element for element in expected if element[0] != "DRAM"}  # where findings count in tiles, too
    for order, seed in (("stream", 0), ("random", int(rng.integers(1000))), ("random", int(rng.integers(1000)))):
        dram = dram_of(case)
        options = RunOptions(order=order, seed=seed)
        passes = run_passes(raw, config, dram, BASES, samples, replace(options, values=False))
        found = [finding for finding in passes.findings if finding.kind == RACE]
        assert {tuple(sorted(finding.steps)) for finding in found} <= pairs
        named = {(f.space, at) for f in found for low, high in f.ranges for at in range(low, high)}
        assert {element for element in named if element[0] != "DRAM"} == on_chip
        assert bool(found) == bool(expected)
        assert {f.kind for f in passes.findings} <= {RACE, UNINITIALISED, LEAK, "stream"}
        steps = passes.sequence(options)
        state = Machine(config, dram, samples)
        state.run(passes.plan(options, samples))
        oracle = interpret(config, case, steps)
        for sample, result in enumerate(oracle):
            np.testing.assert_array_equal(state.acc[sample], result.acc, err_msg=f"acc, {order} {seed}")
            if config.stages == 4:  # of three stages, what a reset leaves there is known where it is stored only
                out = np.where(state._mirrors[:, None, None], state.acc[sample], state.out[sample])
                np.testing.assert_array_equal(out & 255, result.out & 255, err_msg=f"out, {order} {seed}")
            for name, base in BASES.items():
                held = dram[name][sample if dram[name].shape[0] > 1 else 0]
                np.testing.assert_array_equal(held, result.dram[base : base + held.size], err_msg=f"DRAM {name}")
    return len(expected)


@pytest.mark.parametrize("name", MACHINES)
def test_random_streams(name: str) -> None:
    clean = 0
    for seed in range(16):
        print("machine", name, "seed", seed)
        rng = np.random.default_rng([seed, *name.encode()])
        case = random_case(rng, MACHINES[name], samples=int(rng.integers(1, 4)))
        clean += not check_case(MACHINES[name], case, rng)
    assert 0 < clean < 16  # both kinds of programs came up


@pytest.mark.slow
@pytest.mark.parametrize("name", MACHINES)
def test_many_random_streams(name: str) -> None:
    for seed in range(100, 180):
        print("machine", name, "seed", seed)
        rng = np.random.default_rng([seed, *name.encode()])
        check_case(MACHINES[name], random_case(rng, MACHINES[name], samples=2), rng)


EDGES = (INT_MIN, INT_MIN + 1, -(1 << 30), -3, -2, -1, 0, 1, 2, 3, 12345, 1 << 30, INT_MAX - 1, INT_MAX)
FUSED = MACHINES["fused"]


@pytest.mark.parametrize("op", [MULH, RSHR, SHR, ADD])
def test_operations_on_edges(op: AluOp) -> None:
    pairs = np.array(list(product(EDGES, (*EDGES, 16, 30, 31, 32, 33, -31, -32, -33))), np.int64)
    a, b = pairs.T.astype(np.int32)
    got = operate(op, a, b, Form(HLS, 32)).astype(np.int32)
    np.testing.assert_array_equal(got, [evaluate(op, x, y, Form(HLS, 32)) for x, y in pairs.tolist()])
    for imm in (-(1 << 15), -33, -32, -31, -16, -1, 0, 1, 15, 16, 30, 31, 32, (1 << 15) - 1):
        form = Form(HLS, 32, True, imm < 0)
        got = operate(op, a, np.array(imm, np.int32), form).astype(np.int32)
        np.testing.assert_array_equal(got, [evaluate(op, x, imm, form) for x, _ in pairs.tolist()], err_msg=str(imm))


def test_ties_of_the_rounding_shift_go_away_from_zero() -> None:
    assert [divide_by_pot(x, 1) for x in (-3, -1, 1, 3)] == [-2, -1, 1, 2]
    assert [divide_by_pot(x, 31) for x in (INT_MIN, -(1 << 30), 1 << 30, INT_MAX)] == [-1, -1, 1, 1]
    assert high_mul(1 << 30, 1) == 1 and high_mul(-(1 << 30), 1) == 0  # those of the product go upwards
    assert high_mul(INT_MIN, INT_MIN) == INT_MAX


def test_requantisation_on_edges() -> None:
    """Shifts 0 and 31, left shifts that wrap, biases that wrap, zero points and bounds of all signs."""
    rng = np.random.default_rng(3)
    count = 4000
    acc, bias, multiplier = (
        np.where(rng.random(count) < 0.5, rng.choice(EDGES, count), rng.integers(INT_MIN, INT_MAX, count))
        for _ in range(3)
    )
    left, right = (rng.choice([0, 1, 7, 20, 30, 31], count) for _ in range(2))
    zero_point, low, high = (rng.choice([-32768, -128, -1, 0, 5, 127, 32767], count) for _ in range(3))
    scaling = left | right << 8 | zero_point << 16
    bounds = (low & 0xFFFF) | high << 16
    words = [values.astype(np.int32) for values in (acc, bias, multiplier, scaling, bounds)]
    got = requantise(words[0].reshape(1, 1, 1, -1), *(word.reshape(1, 1, 1, -1) for word in words[1:]))
    expected = [evaluate_req(*row, is_float=False) for row in zip(*(word.tolist() for word in words), strict=True)]
    np.testing.assert_array_equal(got.reshape(-1), expected)
    assert len({low > high for low, high in zip(low.tolist(), high.tolist(), strict=True)}) == 2
