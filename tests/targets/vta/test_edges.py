"""Programs at the edges of the semantics: values and findings against what upstream's sources say."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tilewright.array import Array
from tilewright.errors import HazardError
from tilewright.program.launch_image import Dram, Segment
from tilewright.sim.findings import OUT_OF_RANGE, RACE, STREAM, UNINITIALISED
from tilewright.sim.passes import RunOptions
from tilewright.targets.vta.config import PRESETS
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.fields import Memory, Opcode
from tilewright.targets.vta.isa.stream import Record, encode
from tilewright.targets.vta.passes import Prepared, run_passes

pytestmark = pytest.mark.usefixtures("brief_search")

UOP = {"opcode": Opcode.LOAD, "memory_type": Memory.UOP, "y_size": 1, "x_size": 1, "x_stride": 1}
INP = {"opcode": Opcode.LOAD, "memory_type": Memory.INP, "y_size": 1, "x_size": 2, "x_stride": 2}
WGT = {"opcode": Opcode.LOAD, "memory_type": Memory.WGT, "y_size": 1, "x_size": 1, "x_stride": 1}
ACC = {"opcode": Opcode.LOAD, "memory_type": Memory.ACC, "y_size": 1, "x_size": 2, "x_stride": 2}
RESET = {"opcode": Opcode.GEMM, "uop_end": 1, "iter_out": 1, "iter_in": 2, "src_factor_in": 1, "reset_reg": 1}
SHR = {"opcode": Opcode.ALU, "uop_end": 1, "iter_out": 1, "iter_in": 1, "alu_opcode": AluOp.SHR, "use_imm": 1}
STORE = {"opcode": Opcode.STORE, "memory_type": Memory.OUT, "y_size": 1, "x_size": 1, "x_stride": 1}
BASES = {"uop": 0x1000, "inp": 0x2000, "wgt": 0x3000, "acc": 0x4000, "out": 0x5000}


def ordered(records: Sequence[Record]) -> list[Record]:
    """The same stream in one order: load, compute and store hand each other a token; FINISH waits for the store."""
    *compute, store = records
    loads = [r for r in compute if r.get("memory_type") in (Memory.INP, Memory.WGT) and r["opcode"] == Opcode.LOAD]
    rest = [r for r in compute if r not in loads]
    if loads:
        loads[-1] = {**loads[-1], "push_next": 1}
        rest[0] = {**rest[0], "pop_prev": 1}
    rest[-1] = {**rest[-1], "push_next": 1}
    return [*loads, *rest, {**store, "pop_prev": 1, "push_prev": 1}, {"opcode": Opcode.FINISH, "pop_next": 1}]


def run(records: Sequence[Record], values: bool = True, **overrides: str) -> tuple[Prepared, Array]:
    """Prepared and the out region, int8; inp tiles hold 3 and 5, wgt is the identity, acc tiles hold 100 and 7."""
    config = PRESETS["pynq"].with_overrides(overrides)
    data = {name: np.zeros((1, 0x1000), np.uint8) for name in BASES}
    data["inp"][0, :32] = np.repeat([3, 5], 16)
    data["wgt"][0, :256] = np.eye(16, dtype=np.uint8).reshape(-1)
    data["acc"].view(np.int32)[0, :32] = np.repeat([100, 7], 16)
    dram = Dram([Segment(n, a, data[n], initialised=n != "out") for n, a in BASES.items()])
    passes = run_passes(encode(records, config), config, dram, BASES, 1, RunOptions(values=values))
    return passes, dram["out"][0].view(np.int8)


def test_a_stored_reset_gives_what_the_last_micro_op_would_have_accumulated() -> None:
    once = {**RESET, "iter_in": 1}
    passes, out = run(ordered([INP, WGT, UOP, ACC, once, STORE]))
    assert (out[:16] == 103).all() and not passes.findings
    passes, out = run(ordered([INP, WGT, UOP, ACC, RESET, STORE]))  # the first micro-op has cleared the tile
    assert (out[:16] == 5).all() and not passes.findings
    assert (run(ordered([INP, WGT, UOP, ACC, RESET, STORE]), semantics="fsim")[1][:16] == 0).all()


def test_a_stored_reset_reads_its_operands() -> None:
    once = {**RESET, "iter_in": 1}
    (finding,) = run(ordered([INP, WGT, UOP, once, STORE]), values=False)[0].findings
    assert (finding.kind, finding.space) == (UNINITIALISED, "acc")
    racing = [
        r if r.get("pop_prev") != 1 or r["opcode"] == Opcode.STORE else {**r, "pop_prev": 0}
        for r in ordered([INP, WGT, UOP, ACC, once, STORE])
    ]
    kinds = {finding.kind for finding in run(racing, values=False)[0].findings}
    assert RACE in kinds


def test_a_load_into_acc_does_not_reach_the_out_memory() -> None:
    program = ordered([UOP, ACC, {**SHR, "imm": 1}, ACC, STORE])
    assert (run(program)[1][:16] == 50).all()
    assert (run(program, semantics="fsim")[1][:16] == 100).all()


@pytest.mark.parametrize(("imm", "hls", "fsim", "chisel"), [(-1, -56, -56, -56), (16, 0, 0, 0), (31, -56, 0, 0)])
def test_shifts_differ_by_implementation(imm: int, hls: int, fsim: int, chisel: int) -> None:
    program = ordered([UOP, ACC, {**SHR, "imm": imm}, STORE])
    for name, value in (("hls", hls), ("fsim", fsim), ("chisel", chisel)):
        assert (run(program, semantics=name)[1][:16] == value).all(), name


def test_fsim_computes_in_32_bits() -> None:
    program = ordered([UOP, ACC, {**SHR, "imm": 16}, STORE])
    narrow = {"LOG_ACC_WIDTH": "4", "LOG_ACC_BUFF_SIZE": "16"}
    assert (run(program, True, semantics="fsim", **narrow)[1][:16] == 0).all()


def test_finish_that_does_not_wait_for_a_store_is_reported() -> None:
    *head, store, finish = ordered([UOP, ACC, {**SHR, "imm": 1}, STORE])
    passes, _ = run([*head, {**store, "push_prev": 0}, {**finish, "pop_next": 0}], values=False)
    (finding,) = passes.findings
    assert finding.kind == STREAM
    assert "does not wait" in finding.message


def test_a_transfer_outside_every_segment_is_reported_and_refused() -> None:
    far = ordered([UOP, ACC, {**SHR, "imm": 1}, {**STORE, "dram_base": 0x1000}])
    finding = next(f for f in run(far, values=False)[0].findings if f.kind == OUT_OF_RANGE)
    assert "not inside one segment" in finding.message
    with pytest.raises(HazardError, match="not inside one segment"):
        run(far)


def test_half_a_tile_of_overlap_in_dram_is_a_race() -> None:
    """The load may see the store's bytes or not: nothing orders them."""
    program = [*ordered([UOP, ACC, {**SHR, "imm": 1}, STORE])[:-1], {**INP, "x_size": 1}]
    dram = Dram([Segment("all", 0, np.zeros((1, 0x8000), np.uint8))])
    bases = {**BASES, "inp": BASES["out"] + 8}
    passes = run_passes(encode(program, PRESETS["pynq"]), PRESETS["pynq"], dram, bases, 1, RunOptions(values=False))
    assert any(f.kind == RACE and f.space == "DRAM" for f in passes.findings)


def test_accumulator_tiles_that_do_not_exist_are_reported_and_refused() -> None:
    """A reset and a store beyond the memory: nothing after the range check may index with them."""
    far = {**RESET, "dst_factor_in": 2047, "iter_out": 2, "dst_factor_out": 2047}
    program = ordered([INP, WGT, UOP, far, {**STORE, "sram_base": 2047, "x_size": 4}])
    assert {f.kind for f in run(program, values=False)[0].findings} == {OUT_OF_RANGE}
    with pytest.raises(HazardError, match="acc has 2048 elements"):
        run(program)
