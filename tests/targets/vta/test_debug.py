"""The debugger's states, questions and slices on random streams, against the interpreter written apart."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from tests.targets.vta.interpreter import Interpreter
from tests.targets.vta.streams import BASES, END, MACHINES, Case, dram_of, random_case
from tilewright.array import Array
from tilewright.debug import launches
from tilewright.debug.launches import History
from tilewright.debug.places import touching
from tilewright.debug.slices import walk_back
from tilewright.sim.order import random_sequence
from tilewright.sim.passes import RunOptions
from tilewright.sim.steps import WRITE
from tilewright.sim.walk import Walk
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.debug.slices import backward
from tilewright.targets.vta.debug.walk import VtaState, scratchpads
from tilewright.targets.vta.isa.fields import Memory
from tilewright.targets.vta.isa.stream import encode
from tilewright.targets.vta.passes import prepare
from tilewright.targets.vta.steps.micro_kernel import DRAM
from tilewright.targets.vta.steps.moves import granule

SEEDS = 6
CHIPS = ("inp", "wgt", "acc", "out", "par")


class Walked(Walk):
    """A random stream, with the states and slices of VTA."""

    def __init__(self, config: Config, case: Case) -> None:
        self.case = case
        self.prepared = prepare(encode(case.records, config), config, dram_of(case), BASES, RunOptions(values=False))
        super().__init__("case", (), self.prepared.elaborated.table, self.prepared.order)
        self.memories = scratchpads(config, self.table)

    def start(self) -> VtaState:
        return VtaState(self, self.prepared.elaborated, dram_of(self.case))

    def backward(self, step: int, wanted: list[Array]) -> int:
        return backward(self.prepared.elaborated, step, wanted)


def snapshot(oracle: Interpreter, config: Config) -> dict[str, Array]:
    held: dict[str, Array] = {name: getattr(oracle, name) for name in CHIPS}
    held |= {"uop": oracle.cache[Memory.UOP], "alu_uop": oracle.cache[Memory.ALU_UOP]}
    depth = {chip.name: chip.depth for chip in config.chips}
    if not config.rules.out_memory:  # STORE reads acc
        held["out"] = oracle.acc
    return {name: held[name][: depth[name]].copy() for name in depth} | {"DRAM": oracle.dram.copy()}


def straight(config: Config, case: Case, sequence: Array) -> list[dict[str, Array]]:
    """The memories before each instruction, and at the end, of a run straight through."""
    oracle = Interpreter(config, case.records, case.uops, case.dram[0].copy(), BASES)
    found = [snapshot(oracle, config)]
    for step in sequence.tolist():
        oracle.run([step])
        found.append(snapshot(oracle, config))
    return found


def assert_same(state: Any, expected: dict[str, Array], config: Config, where: str) -> None:
    for name, values in expected.items():
        if name == "DRAM":
            edges = [*BASES.values(), END]
            own = np.concatenate([state.dram(a, b - a) for a, b in pairwise(edges)])
            np.testing.assert_array_equal(own, values[edges[0] :], err_msg=f"{where} DRAM")
        else:
            mask = (1 << config.out.width) - 1 if name == "out" else -1
            np.testing.assert_array_equal(
                state.memory(name).astype(np.int64) & mask, values & mask, err_msg=f"{where} {name}"
            )


@pytest.mark.parametrize("name", MACHINES)
def test_a_state_does_not_depend_on_the_way_to_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launches, "CHECKPOINT_DISTANCE", 4)
    config = MACHINES[name]
    for seed in range(SEEDS):
        print("machine", name, "seed", seed)
        rng = np.random.default_rng([seed, *name.encode()])
        monkeypatch.setattr(launches, "BUDGET", 1 << int(rng.integers(10, 30)))
        case = random_case(rng, config, 1)
        walk = Walked(config, case)
        order = walk.prepared.order
        sequence = order.sequence if seed % 2 else random_sequence(walk.table, order, seed)
        expected = straight(config, case, sequence)
        states = History(walk, sequence)
        for _ in range(12):
            near = bool(rng.integers(2))
            step = states.position + int(rng.integers(-2, 3)) if near else int(rng.integers(0, len(expected)))
            position = min(max(step, 0), len(sequence))
            state = states.move(position)
            assert_same(state, expected[position], config, f"at {position}")


@pytest.mark.parametrize("name", MACHINES)
def test_writers_are_those_that_the_interpreter_records(name: str) -> None:
    config = MACHINES[name]
    for seed in range(SEEDS):
        print("machine", name, "seed", seed)
        rng = np.random.default_rng([seed, *name.encode()])
        case = random_case(rng, config, 1)
        walk, unit = Walked(config, case), granule(config)
        oracle = Interpreter(config, case.records, case.uops, case.dram[0].copy(), BASES)
        oracle.run(walk.prepared.order.sequence.tolist())
        for space, each in enumerate(walk.table.spaces):
            if each.name not in ("inp", "wgt", "acc", "out", "par", "DRAM"):
                continue
            for element in rng.integers(0, each.size, 8).tolist():
                of_unit = range(element * unit, (element + 1) * unit) if each.name == "DRAM" else [element]
                wanted = {(each.name, one) for one in of_unit}
                expected = [step for step, (_, writes) in oracle.touched.items() if writes & wanted]
                found = np.flatnonzero(touching(walk.table, [(space, np.array([element]))], WRITE))
                assert found.tolist() == sorted(expected), f"{each.name}[{element}]"


@pytest.mark.parametrize("name", MACHINES)
def test_nothing_outside_a_slice_changes_the_value(name: str) -> None:
    """Every byte of DRAM that is not in the slice gets another value: the sliced bytes stay the same."""
    config, sliced = MACHINES[name], 0
    for seed in range(2 * SEEDS):
        print("machine", name, "seed", seed)
        rng = np.random.default_rng([seed, *name.encode()])
        case = random_case(rng, config, 1)
        walk, unit = Walked(config, case), granule(config)
        sequence = walk.prepared.order.sequence
        before, after = (case.dram[0].copy() for _ in range(2))
        oracle = Interpreter(config, case.records, case.uops, after, BASES)
        oracle.run(sequence.tolist())
        stored = np.unique(
            [at // unit for _, writes in oracle.touched.values() for kind, at in writes if kind == "DRAM"]
        )
        if not stored.size:
            continue
        seed_of = rng.choice(stored, 1)
        found = walk_back(walk, sequence, [[(DRAM, seed_of)]])
        assert set(np.flatnonzero(found.hit)) <= set(sequence.tolist())
        kept = np.repeat(found.left[DRAM] > 0, unit)[:END]
        kept[: BASES["inp"]] = True  # micro-ops are control state, which the streams do not change
        kept = np.pad(kept, (0, END - len(kept)), constant_values=True)
        changed = np.where(kept, before, rng.integers(0, 256, END)).astype(np.uint8)
        again = Interpreter(config, case.records, case.uops, changed, BASES)
        again.run(sequence.tolist())
        at = slice(int(seed_of[0]) * unit, (int(seed_of[0]) + 1) * unit)
        np.testing.assert_array_equal(changed[at], after[at])
        sliced += bool(found.hit.any())
    assert sliced
