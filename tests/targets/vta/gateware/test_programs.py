"""Programs on the compiled gateware: every start and end as the timing model says, every byte as the machine's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.targets.vta.gateware.machines import MACHINES, OPTIONS, dram_of
from tests.targets.vta.streams import BASES, random_case
from tilewright.errors import HazardError
from tilewright.program.launch_image import Dram, Segment
from tilewright.sim.findings import RACE
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.conform import memory
from tilewright.targets.vta.gateware.cosim import run
from tilewright.targets.vta.isa.stream import encode
from tilewright.targets.vta.passes import run_passes

pytestmark = pytest.mark.gxx


def compare(seed: int, config: Config) -> bool:
    """Whether the program has no races, so that its bytes count.

    Queues too short for it end in a deadlock, and no run; nor is there one where rows of micro-ops leave their memory.
    """
    case = random_case(np.random.default_rng(seed), config, 1)
    insns, modelled, ran = encode(case.records, config), dram_of(case), dram_of(case)
    try:
        passes = run_passes(insns, config, modelled, BASES, 1, OPTIONS)
    except HazardError:
        return False
    if passes.trace is None:
        return False
    result = run(insns, config, ran, BASES)
    assert result.start.tolist() == passes.trace.start.tolist(), f"seed {seed}"
    assert result.end.tolist() == passes.trace.end.tolist(), f"seed {seed}"
    assert (result.cycles, result.faults) == (passes.trace.cycles, 0)
    if any(finding.kind == RACE for finding in passes.findings):
        return False
    assert np.array_equal(ran["all"], modelled["all"]), f"seed {seed}"
    return True


@pytest.mark.parametrize("name", ["1x4x4", "four, fused", "own"])
def test_50_random_programs(name: str) -> None:
    assert sum(compare(seed, MACHINES[name]) for seed in range(50)) > 20


@pytest.mark.slow
@pytest.mark.parametrize("name", MACHINES)
def test_200_random_programs(name: str) -> None:
    assert sum(compare(seed, MACHINES[name]) for seed in range(1000, 1200)) > 80


@pytest.mark.parametrize(
    ("name", "programs"), [("1x4x4", 10), *(pytest.param(name, 30, marks=pytest.mark.slow) for name in MACHINES)]
)
def test_a_memory_that_stalls_changes_no_bit_and_nothing_hangs(name: str, programs: int) -> None:
    config, compared = MACHINES[name], 0
    for seed in range(programs):
        case = random_case(np.random.default_rng(seed), config, 1)
        insns, modelled = encode(case.records, config), dram_of(case)
        try:
            passes = run_passes(insns, config, modelled, BASES, 1, OPTIONS)
        except HazardError:
            continue
        if passes.trace is None:
            continue
        for stalls in (1, 2):
            ran = dram_of(case)
            result = run(insns, config, ran, BASES, stalls=stalls + 2 * seed)
            assert result.faults == 0, f"seed {seed}"
            assert (result.end > 0).all(), f"seed {seed}: #{np.argmin(result.end)} never ends"
            if not any(finding.kind == RACE for finding in passes.findings):
                assert np.array_equal(ran["all"], modelled["all"]), f"seed {seed}"
                compared += 1
    assert compared > programs / 2


def large(rng: np.random.Generator, config: Config, count: int) -> list[dict[str, int]]:
    """Transfers of many bursts and rows, wide pads, long loops; values and tokens of no meaning."""
    records: list[dict[str, int]] = []
    for _ in range(count):
        kind = int(rng.integers(0, 8))
        if kind < 6:
            memory_type = (0, 1, 2, 2, 3, 4)[kind]
            record = {"opcode": int(memory_type == 4), "memory_type": memory_type}
            record |= {"x_size": int(rng.integers(1, 60)), "y_size": int(rng.integers(1, 5))}
            record |= {"x_stride": int(rng.integers(1, 90)), "dram_base": int(rng.integers(0, 200))}
            if memory_type != 4 and rng.random() < 0.3:
                pads = ("y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")
                record |= {name: int(rng.integers(0, 16)) * int(rng.random() < 0.6) for name in pads}
        else:
            record = {"opcode": 2 if kind == 6 else 4, "uop_end": int(rng.integers(1, 8))}
            record |= {"iter_out": int(rng.integers(1, 9)), "iter_in": int(rng.integers(1, 9))}
            record |= {"use_imm": int(rng.integers(0, 2))} if kind == 7 else {}
        if records and rng.random() < 0.3:  # compute waits for what it has just let go
            record |= {"push_next": 1} if record["opcode"] == 0 and record["memory_type"] in (1, 2) else {}
        records.append(record)
    waiting = sum(record.get("push_next", 0) for record in records)
    return [*records, *[{"opcode": 3, "pop_prev": 1}] * waiting, {"opcode": 3}]


@pytest.mark.parametrize(
    "name", ["1x4x4", *(pytest.param(name, marks=pytest.mark.slow) for name in ("2x8x8, far", "chisel"))]
)
def test_transfers_of_many_bursts(name: str) -> None:
    from tilewright.sim.order import order
    from tilewright.targets.vta.isa.stream import decode
    from tilewright.targets.vta.steps.elaborate import elaborate
    from tilewright.targets.vta.timing.model import TILEWRIGHT

    config, bases = MACHINES[name], {key: 0x10000 * (number + 1) for number, key in enumerate(BASES)}
    for seed in range(15):
        rng = np.random.default_rng(seed)
        insns = encode(large(rng, config, int(rng.integers(5, 40))), config)
        dram = Dram([Segment("all", 0, np.zeros((1, 1 << 19), np.uint8))])
        program = elaborate(decode(insns, config), config, dram, bases)
        trace = TILEWRIGHT.trace(program, order(program.table))
        result = run(insns, config, dram, bases)
        assert result.start.tolist() == trace.start.tolist(), f"seed {seed}"
        assert result.end.tolist() == trace.end.tolist(), f"seed {seed}"


def test_both_engines_read_the_rtl_alike() -> None:
    config = MACHINES["1x4x4"]
    for seed in range(5):
        case = random_case(np.random.default_rng(seed), config, 1)
        insns = encode(case.records, config)
        drams = dram_of(case), dram_of(case)
        one, other = (
            run(insns, config, dram, BASES, engine) for dram, engine in zip(drams, ("verilator", "cxxrtl"), strict=True)
        )
        assert (one.start.tolist(), one.end.tolist()) == (other.start.tolist(), other.end.tolist()), f"seed {seed}"
        assert np.array_equal(drams[0]["all"], drams[1]["all"]), f"seed {seed}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["tiny", "small", "pynq", "ultra96", "de10nano", "block32", "batch2", "batch4b8", "int4", "acc16", "asym"]
)
def test_golden_vectors(name: str, shared: Path) -> None:
    """Of the HLS model; asym's are fsim's, as HLS decodes micro-ops otherwise where acc is deeper than inp."""
    done = 0
    for path in sorted((shared / "vta_vectors").glob(f"{name}__*.npz")):
        with np.load(path) as archive:
            vector: dict[str, Any] = dict(archive)
        meta = json.loads(str(vector["meta"]))
        if "expect" in meta or meta["primary"] != ("fsim" if name == "asym" else "hls"):
            continue
        config = Config.from_json(json.loads(str(vector["config"])))
        (modelled, bases), (ran, _) = memory(vector), memory(vector)
        trace = run_passes(vector["insn"], config, modelled, bases, 1, OPTIONS).trace
        result = run(vector["insn"], config, ran, bases)
        assert trace is not None
        assert np.array_equal(ran["out"].reshape(vector["out_after"].shape), vector["out_after"]), path.stem
        assert (result.start.tolist(), result.end.tolist()) == (trace.start.tolist(), trace.end.tolist()), path.stem
        done += 1
    assert done >= 5
