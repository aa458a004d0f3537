"""Every bit of the accumulators after random ALU instructions: the compiled gateware, the machine and the interpreter.

Random programs (test_programs.py) store few of their results, and only the low byte of each.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.targets.vta.gateware.machines import MACHINES, OPTIONS, dram_of
from tests.targets.vta.interpreter import Interpreter, Record
from tests.targets.vta.records import ACC, ADD, ALU, ALU_UOP, FINISH, LOAD, OUT, SHR, STORE, UOP
from tests.targets.vta.streams import BASES, Case, alu, random_case, uop_load
from tilewright.sim.findings import RACE
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.gateware.cosim import run
from tilewright.targets.vta.isa.fields import Uops
from tilewright.targets.vta.isa.stream import encode, encode_uops
from tilewright.targets.vta.passes import run_passes

pytestmark = pytest.mark.gxx


SLOW = ("rounding", "four", "fused, own", "four, own")


def directed(seed: int, config: Config) -> Case:
    """Load all of acc, run ALU instructions, store all of acc as one byte plane after the other."""
    rng = np.random.default_rng(seed)
    case, depth, four = random_case(rng, config, 1), config.acc.depth, config.stages == 4
    memory, chip = (ALU_UOP, config.alu_uop) if four else (UOP, config.uop)
    body = [alu(rng, config) for _ in range(int(rng.integers(3, 12)))]
    load: Record = {"opcode": LOAD, "memory_type": ACC, "y_size": 1, "x_size": depth, "x_stride": depth}
    if four:
        load["push_next"] = body[0]["pop_prev"] = 1
    records = [uop_load(config, memory, 0, chip.depth), load, *body]
    each = chip.depth - 1  # the micro-op of the loop over all tiles
    for plane in range(config.acc.width // 8):
        records.append({"opcode": ALU, "uop_bgn": each, "uop_end": each + 1, "iter_out": 1, "iter_in": depth})
        records[-1] |= {"dst_factor_in": 1, "src_factor_in": 1, "use_imm": 1, "push_next": 1}
        records[-1] |= {"alu_opcode": SHR, "imm": 8, "pop_next": 1} if plane else {"alu_opcode": ADD, "imm": 0}
        records.append({"opcode": STORE, "memory_type": OUT, "y_size": 1, "x_size": depth, "x_stride": depth})
        records[-1] |= {"dram_base": plane * depth, "pop_prev": 1, "push_prev": 1}
    records.append({"opcode": FINISH, "pop_next": 1})
    uops, dram = case.uops.copy(), case.dram.copy()
    uops[each] = 0
    code = encode_uops(Uops(*uops.T), config)
    dram[0, BASES["uop"] : BASES["uop"] + code.size] = code.reshape(-1)
    return Case(records, uops, dram)


@pytest.mark.parametrize(
    "name", ["1x4x4", "four, fused", "own", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_all_bits_of_alu_results(name: str) -> None:
    config = MACHINES[name]
    for seed in range(20):
        case = directed(seed, config)
        insns, modelled, ran = encode(case.records, config), dram_of(case), dram_of(case)
        passes = run_passes(insns, config, modelled, BASES, 1, OPTIONS)
        assert passes.trace is not None
        assert not any(finding.kind == RACE for finding in passes.findings), f"seed {seed}"
        reference = Interpreter(config, case.records, case.uops, case.dram[0].copy(), BASES)
        reference.run(range(len(case.records)))
        assert np.array_equal(reference.dram, modelled["all"][0]), f"seed {seed}"
        result = run(insns, config, ran, BASES)
        assert np.array_equal(ran["all"], modelled["all"]), f"seed {seed}"
        assert (result.cycles, result.faults) == (passes.trace.cycles, 0), f"seed {seed}"
