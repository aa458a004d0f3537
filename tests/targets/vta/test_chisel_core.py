"""What upstream's Chisel core does and other implementations do not: hangs, wrapping counters, its micro-op memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tilewright as tw
from tests.conftest import ROOT
from tests.targets.vta.plain import ALU, GEMM, LOAD, STORE, UOP
from tilewright import targets
from tilewright.errors import ConfigError, HazardError
from tilewright.program.launch_image import Dram, Segment
from tilewright.run import machine_of, timing_model
from tilewright.sim.findings import DEADLOCK, OUT_OF_RANGE
from tilewright.sim.passes import RunOptions
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.fields import Memory, Opcode
from tilewright.targets.vta.isa.stream import Record, encode
from tilewright.targets.vta.passes import Prepared, run_passes

CHISEL = PRESETS["pynq"].with_overrides({"semantics": "chisel"})
DIGITS = ROOT / "examples" / "digits" / "digits.tflite"


def passes(config: Config, *records: Record, values: bool = False) -> Prepared:
    insns = encode([*records, {"opcode": Opcode.FINISH}], config)
    dram = Dram([Segment("all", 0, np.zeros((1, 1 << 18), np.uint8))])
    bases = dict.fromkeys(("uop", "inp", "wgt", "acc", "out"), 0)
    return run_passes(insns, config, dram, bases, 1, RunOptions(values=values, timing="chisel"))


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({**ALU, "alu_opcode": AluOp.MUL}, "is not decoded"),
        ({**LOAD, "memory_type": Memory.ACC_8BIT}, "is not decoded"),
        ({**LOAD, "memory_type": Memory.OUT}, "is not decoded"),
        ({**LOAD, "y_size": 0}, "never ends"),
    ],
)
def test_an_instruction_that_hangs_is_a_deadlock(record: Record, reason: str) -> None:
    prepared = passes(CHISEL, UOP, record)
    (finding,) = [finding for finding in prepared.findings if finding.kind == DEADLOCK]
    assert finding.steps == (1,)
    assert reason in finding.message
    assert "#1 " in finding.message
    assert prepared.trace is None
    with pytest.raises(HazardError, match=reason):
        passes(CHISEL, UOP, record, values=True)
    assert not any(finding.kind == DEADLOCK for finding in passes(PRESETS["pynq"], UOP, record).findings)


def test_a_load_without_tiles_or_rows_only_carries_tokens() -> None:
    assert passes(CHISEL, UOP, {**LOAD, "x_size": 0, "y_size": 0}).findings == ()


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({"uop_end": 0}, 1 << 14),
        ({"uop_bgn": 3, "uop_end": 1}, (1 << 14) - 2),
        ({"iter_in": 0}, 1 << 14),
        ({"iter_out": 0, "iter_in": 2}, 1 << 15),
    ],
)
def test_empty_ranges_and_counts_run_through_the_counter(changes: Record, count: int) -> None:
    """Counters of 14 bits stop at their end - 1. On other implementations, the instruction runs no micro-op."""
    for record in ({**GEMM, "reset_reg": 1}, {**ALU, "use_imm": 1}):
        prepared = passes(CHISEL, UOP, {**record, **changes})
        assert prepared.elaborated.micro_ops[1] == count
        assert prepared.trace is not None
        assert prepared.trace.end[1] - prepared.trace.start[1] >= count
        assert passes(PRESETS["pynq"], UOP, {**record, **changes}).elaborated.micro_ops[1] == 0


def test_a_store_of_no_rows_stores_65536() -> None:
    kinds = [finding.kind for finding in passes(CHISEL, UOP, GEMM, {**STORE, "y_size": 0}).findings]
    assert OUT_OF_RANGE in kinds


def test_micro_ops_beyond_the_memory_are_out_of_range() -> None:
    """The fields address 8,192 micro-ops; upstream's default core has 2,048."""
    program = {**GEMM, "reset_reg": 1, "uop_bgn": 2047, "uop_end": 2049}
    load = {**UOP, "x_size": 2049}
    assert {f.kind for f in passes(CHISEL, load, program).findings} == set()
    small = CHISEL.with_overrides({"uop_depth": 2048})
    spaces = {(f.kind, f.space) for f in passes(small, load, program).findings}
    assert spaces == {(OUT_OF_RANGE, "uop")}


@pytest.mark.parametrize(
    ("depth", "reason"),
    [(16384, "above"), (1000, "power of two"), (1, "not an integer in 2"), (True, "not an integer")],
)
def test_illegal_depths_are_refused(depth: int, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        replace(PRESETS["pynq"], uop_depth=depth)


def test_the_first_timing_model_follows_upstreams_flow() -> None:
    vta = targets.get("vta")
    first = {name: timing_model(vta, None, PRESETS[name]) for name in PRESETS}
    chisel = {"tsim", "de10nano"}
    assert first == {name: "chisel" if name in chisel else "tilewright" for name in PRESETS}
    assert timing_model(vta, None, PRESETS["tsim"].with_overrides({"alu": "fused"})) == "tilewright"
    assert timing_model(vta, "hls", PRESETS["tsim"]) == "hls"


@pytest.mark.usefixtures("brief_search")
def test_a_compiled_program_fits_the_micro_op_memory() -> None:
    program = tw.compile(DIGITS, target="vta", config="tsim", timing="tilewright", overrides={"uop_depth": "32"})
    assert machine_of(program).to_dict()["uop_depth"] == 32
    result = program.run(np.load(ROOT / "examples" / "digits" / "samples.npz")["inputs"][:1])
    assert (result.timing, result.findings, result.matches_reference) == ("chisel", (), True)
