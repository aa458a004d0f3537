"""The portability lint, on vectors whose references disagree (all flagged) and agree (none), and rule by rule."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.conftest import ROOT
from tests.targets.vta.plain import ALU, GEMM, LOAD, STORE, UOP
from tilewright import targets
from tilewright.array import Array
from tilewright.program.launch_image import Dram, Segment
from tilewright.sim.findings import WRITE_DISTANCE, Finding
from tilewright.sim.passes import RunOptions
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.conform import memory
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.fields import Memory, Opcode, Uops
from tilewright.targets.vta.isa.stream import Record, encode, encode_uops
from tilewright.targets.vta.passes import run_passes
from tilewright.targets.vta.steps.portability import portability, write_distance

pytestmark = pytest.mark.usefixtures("brief_search")

STATIC = RunOptions(values=False)


def test_vectors_are_flagged_where_their_references_disagree(shared: Path) -> None:
    disagreeing = 0
    for path in sorted((shared / "vta_vectors").glob("*.npz")):
        with np.load(path) as archive:
            vector = dict(archive)
        meta, config = json.loads(str(vector["meta"])), Config.from_json(json.loads(str(vector["config"])))
        if "expect" in meta:
            continue
        dram, bases = memory(vector)
        passes = run_passes(vector["insn"], config, dram, bases, 1, STATIC)
        found = portability(passes.elaborated, passes.order.sequence)
        assert bool(found) == ("__div_" in path.stem), path.stem
        disagreeing += bool(found)
    assert disagreeing


def test_compiled_programs_are_portable() -> None:
    program = tw.compile(ROOT / "examples" / "digits" / "digits.tflite", target="vta")
    assert list(targets.get("vta").check(program)) == []


def lint(*records: Record) -> list[Finding]:
    """The findings of a stream that ends in FINISH."""
    insns = encode([*records, {"opcode": Opcode.FINISH}], PRESETS["pynq"])
    dram = Dram([Segment("all", 0, np.zeros((1, 1 << 16), np.uint8))])
    bases = dict.fromkeys(("uop", "inp", "wgt", "acc", "out"), 0)
    passes = run_passes(insns, PRESETS["pynq"], dram, bases, 1, STATIC)
    return portability(passes.elaborated, passes.order.sequence)


def test_a_plain_program_is_portable() -> None:
    assert lint(UOP, LOAD, {**LOAD, "memory_type": Memory.WGT}, {**GEMM, "reset_reg": 1}, GEMM, ALU, STORE) == []


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([{**LOAD, "memory_type": Memory.WGT, "x_pad_0": 1}], "pads micro-ops or weights"),
        ([{**UOP, "y_size": 2}], "micro-ops with y_size other than 1"),
        ([{**LOAD, "x_size": 0, "y_pad_0": 1}], "padding but x_size 0"),
        ([UOP, GEMM, {**STORE, "x_pad_0": 1}], "pads a STORE"),
        ([UOP, GEMM, {**STORE, "memory_type": Memory.ACC}], "memory other than out"),
        ([{**LOAD, "memory_type": Memory.OUT}], "loads out"),
        ([{**LOAD, "memory_type": Memory.ACC_8BIT}], "8-bit accumulators"),
        ([{**LOAD, "push_prev": 1}], "token bit"),
        ([UOP, {**ALU, "alu_opcode": AluOp.MUL}], "multiplies"),
        ([UOP, {**ALU, "alu_opcode": AluOp.SHR, "imm": 16}], "shifts by more"),
        ([UOP, {**GEMM, "uop_end": 0}], "runs no micro-op"),
        ([UOP, {**ALU, "iter_in": 0}], "runs no micro-op"),
        ([{**LOAD, "y_size": 0}], "loads no rows"),
        ([UOP, {**ALU, "iter_in": 4, "dst_factor_in": 1}], "src differs from dst"),
        ([UOP, {**GEMM, "reset_reg": 1}, STORE], "last write of a stored tile"),
        ([{**LOAD, "memory_type": Memory.ACC}, STORE], "last write of a stored tile"),
    ],
)
def test_each_rule_names_the_instruction(records: list[Record], reason: str) -> None:
    (finding,) = lint(*records)
    assert reason in finding.message
    assert f"#{finding.steps[0]} " in finding.message


def near(*records: Record, uop: Array | None = None) -> list[str]:
    """What `write_distance` says of a stream of which instruction 1 matters; `uop` is the micro-op, else zeros."""
    content = np.zeros((1, 1 << 16), np.uint8)
    content[0, :4] = 0 if uop is None else uop
    dram = Dram([Segment("all", 0, content)])
    insns = encode([UOP, *records, {"opcode": Opcode.FINISH}], PRESETS["pynq"])
    bases = dict.fromkeys(("uop", "inp", "wgt", "acc", "out"), 0)
    found = write_distance(run_passes(insns, PRESETS["pynq"], dram, bases, 1, STATIC).elaborated)
    assert all(finding.steps == (1,) and finding.kind == WRITE_DISTANCE for finding in found)
    return [finding.message.partition("micro-ops ")[2] for finding in found]


@pytest.mark.parametrize(("iterations", "found"), [(1, True), (2, True), (3, False), (4, False)])
@pytest.mark.parametrize("operation", [GEMM, ALU], ids=["gemm", "alu"])
def test_writes_too_close_for_the_pipeline_are_named(operation: Record, iterations: int, found: bool) -> None:
    """Two passes over `iterations` tiles: each is written again after as many micro-ops."""
    again = {**operation, "iter_out": 2, "iter_in": iterations, "dst_factor_in": 1, "src_factor_in": 1}
    chisel = ", the Chisel ALU 2" if operation is ALU and iterations == 1 else ""
    needs = f"the HLS pipeline needs 3{chisel}"
    text = f"writes acc[0] {iterations} micro-op(s) after writing it; {needs}: put other tiles between"
    assert near(again) == ([text] if found else [])


def test_a_reset_may_write_a_tile_twice() -> None:
    assert near({**GEMM, "iter_out": 2, "reset_reg": 1}) == []


@pytest.mark.parametrize("apart", [1, 2, 3, 4])
@pytest.mark.parametrize("immediate", [0, 1])
def test_a_source_too_close_behind_its_write_is_named(apart: int, immediate: int) -> None:
    """acc[k + apart] op= acc[k] for a few k: each source has been written `apart` micro-ops before."""
    chain = {**ALU, "use_imm": immediate, "imm": 1, "iter_in": 9, "dst_factor_in": 1, "src_factor_in": 1}
    none = np.zeros(1, np.int64)
    uop = encode_uops(Uops(none + apart, none, none), PRESETS["pynq"])
    early = apart < 3 and not immediate  # the immediate form reads acc[dst] only
    text = f"reads acc[{apart}] {apart} micro-op(s) after writing it"
    assert [message.partition(";")[0] for message in near(chain, uop=uop)] == ([text] if early else [])


def test_instructions_do_not_meet_each_other() -> None:
    """The pipeline drains between instructions."""
    step = {**ALU, "use_imm": 0}
    assert near(step, step, GEMM, GEMM) == []
