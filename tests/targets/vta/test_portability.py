"""The portability lint, on vectors whose references disagree (all flagged) and agree (none), and rule by rule."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tilewright as tw
from tests.conftest import ROOT
from tilewright import targets
from tilewright.sim.dram import Dram, Segment
from tilewright.sim.findings import Finding
from tilewright.targets.base import RunOptions
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.conform import memory
from tilewright.targets.vta.isa.fields import AluOp, Memory, Opcode
from tilewright.targets.vta.isa.stream import Record, encode
from tilewright.targets.vta.passes import run_passes
from tilewright.targets.vta.portability import portability, write_distance

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


LOAD = {"opcode": Opcode.LOAD, "memory_type": Memory.INP, "y_size": 1, "x_size": 4, "x_stride": 4}
UOP = {"opcode": Opcode.LOAD, "memory_type": Memory.UOP, "y_size": 1, "x_size": 1, "x_stride": 1}
GEMM = {"opcode": Opcode.GEMM, "uop_end": 1, "iter_out": 1, "iter_in": 1}
ALU = {"opcode": Opcode.ALU, "uop_end": 1, "iter_out": 1, "iter_in": 1, "alu_opcode": AluOp.ADD, "use_imm": 1}
STORE = {"opcode": Opcode.STORE, "memory_type": Memory.OUT, "y_size": 1, "x_size": 1, "x_stride": 1}


def test_a_plain_program_is_portable() -> None:
    assert lint(UOP, LOAD, {**LOAD, "memory_type": Memory.WGT}, {**GEMM, "reset_reg": 1}, GEMM, ALU, STORE) == []


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([{**LOAD, "memory_type": Memory.WGT, "x_pad_0": 1}], "pads micro-ops or weights"),
        ([{**UOP, "y_size": 2}], "loads rows of micro-ops"),
        ([{**LOAD, "x_size": 0, "y_pad_0": 1}], "padding but no columns"),
        ([UOP, GEMM, {**STORE, "x_pad_0": 1}], "pads a STORE"),
        ([UOP, GEMM, {**STORE, "memory_type": Memory.ACC}], "memory other than out"),
        ([{**LOAD, "memory_type": Memory.OUT}], "loads out"),
        ([{**LOAD, "memory_type": Memory.ACC_8BIT}], "8-bit accumulators"),
        ([{**LOAD, "push_prev": 1}], "token bit"),
        ([UOP, {**ALU, "alu_opcode": AluOp.MUL}], "multiplies"),
        ([UOP, {**ALU, "alu_opcode": AluOp.SHR, "imm": 16}], "shifts by more"),
        ([UOP, {**GEMM, "uop_end": 0}], "runs no micro-op"),
        ([UOP, {**ALU, "iter_in": 4, "dst_factor_in": 1}], "another source than destination"),
        ([UOP, {**GEMM, "reset_reg": 1}, STORE], "last write of a stored tile"),
        ([{**LOAD, "memory_type": Memory.ACC}, STORE], "last write of a stored tile"),
    ],
)
def test_each_rule_names_the_instruction(records: list[Record], reason: str) -> None:
    (finding,) = lint(*records)
    assert reason in finding.message
    assert f"#{finding.steps[0]} " in finding.message


@pytest.mark.parametrize(("iterations", "distance"), [(1, 1), (2, 2), (3, None)])
def test_writes_too_close_for_the_pipeline_are_named(iterations: int, distance: int | None) -> None:
    """Two passes over `iterations` tiles: each is written again after as many micro-ops."""
    gemm = {**GEMM, "iter_out": 2, "iter_in": iterations, "dst_factor_in": 1}
    dram = Dram([Segment("all", 0, np.zeros((1, 1 << 16), np.uint8))])
    insns = encode([UOP, gemm, {"opcode": Opcode.FINISH}], PRESETS["pynq"])
    bases = dict.fromkeys(("uop", "inp", "wgt", "acc", "out"), 0)
    found = write_distance(run_passes(insns, PRESETS["pynq"], dram, bases, 1, STATIC).elaborated)
    assert [finding.steps for finding in found] == ([(1,)] if distance else [])
    assert all(f"after {distance} micro-op" in finding.message for finding in found)
