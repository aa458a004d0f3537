"""The instruction buffer: where tokens go, when NOPs carry them, and the serial order."""

from __future__ import annotations

import pytest

from tilewright.errors import ProgramError
from tilewright.targets.vta.config import PRESETS, Config
from tilewright.targets.vta.isa import text
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.fields import Memory, Opcode
from tilewright.targets.vta.isa.instructions import ONCE, InstructionBuffer, Loop, serial

PYNQ = PRESETS["pynq"]
FOUR = PYNQ.with_overrides({"stages": 4, "alu": "fused"})
LOAD, COMPUTE, STORE = range(3)


def buffer() -> InstructionBuffer:
    return InstructionBuffer(PYNQ)


def load(to: InstructionBuffer, memory: Memory = Memory.INP) -> int:
    return to.transfer(Opcode.LOAD, memory, 0, 0, (1, 1), 1)


def store(to: InstructionBuffer) -> int:
    return to.transfer(Opcode.STORE, Memory.OUT, 0, 0, (1, 1), 1)


def gemm(to: InstructionBuffer) -> int:
    return to.gemm(range(1), ONCE, ONCE)


def short(of: InstructionBuffer) -> list[str]:
    """One word an instruction (`nop` with its unit), then its tokens."""
    lines = text.instructions(of.encode(), PYNQ)
    found = []
    for line, unit in zip(lines, of.units, strict=True):
        words = line.split()
        nop = words[0] in ("load", "store") and "x_size=0" in words
        name = f"nop-{of.pipeline.units[unit]}" if nop else words[0]
        found.append(" ".join([name, *(word for word in words if word.startswith(("pop:", "push:")))]))
    return found


def test_a_push_goes_onto_the_last_instruction_of_its_unit() -> None:
    made = buffer()
    load(made)
    made.dep_push(LOAD, COMPUTE)
    gemm(made)
    made.dep_push(COMPUTE, STORE)
    made.dep_push(COMPUTE, LOAD)
    assert short(made) == ["load push:compute", "gemm push:load push:store"]


def test_a_push_is_a_nop_where_the_bit_is_taken_or_another_unit_came_last() -> None:
    made = buffer()
    made.dep_push(COMPUTE, LOAD)  # nothing is recorded
    load(made)
    made.dep_push(LOAD, COMPUTE)
    made.dep_push(LOAD, COMPUTE)  # its bit is taken
    made.dep_push(LOAD, COMPUTE)  # a NOP of load is no instruction of load (upstream's kNoneStage)
    store(made)
    made.dep_push(LOAD, COMPUTE)
    made.dep_push(STORE, COMPUTE)
    assert short(made) == [
        "nop-compute push:load",
        "load push:compute",
        "nop-load push:compute",
        "nop-load push:compute",
        "store",
        "nop-load push:compute",
        "nop-store push:compute",
    ]
    made.dep_push(COMPUTE, STORE)
    again = buffer()
    again.transfer(Opcode.STORE, Memory.OUT, 0, 0, (0, 0), 0)
    again.dep_push(STORE, COMPUTE)  # but a STORE that moves nothing is store's
    assert short(again) == ["nop-store push:compute"]


def test_a_pop_waits_for_the_next_instruction_of_its_unit() -> None:
    made = buffer()
    made.dep_pop(LOAD, COMPUTE)
    made.dep_pop(STORE, COMPUTE)
    assert made.pending
    load(made)
    store(made)
    gemm(made)
    assert not made.pending
    gemm(made)
    assert short(made) == ["load", "store", "gemm pop:load pop:store", "gemm"]


def test_a_micro_op_load_takes_the_pending_pops() -> None:
    made = buffer()
    made.dep_pop(LOAD, COMPUTE)
    made.load_uops(Memory.UOP, 0, 0, 1)
    gemm(made)
    assert short(made) == ["load pop:load", "gemm"]


def test_pending_pops_become_nops() -> None:
    made = buffer()
    made.dep_pop(LOAD, COMPUTE)
    made.dep_pop(LOAD, COMPUTE)  # a second one of that queue
    made.dep_push(COMPUTE, STORE)  # what follows in this unit must not be ahead of the pop
    made.dep_pop(COMPUTE, LOAD)
    made.commit(LOAD)
    made.commit(LOAD)
    assert short(made) == [
        "nop-compute pop:load",
        "nop-compute pop:load",
        "nop-compute push:store",
        "nop-load pop:compute",
    ]


@pytest.mark.parametrize(("source", "target"), [(LOAD, STORE), (STORE, LOAD), (COMPUTE, COMPUTE)])
def test_units_that_are_no_neighbours_are_refused(source: int, target: int) -> None:
    for call in ("dep_push", "dep_pop"):
        with pytest.raises(ProgramError, match=rf"{call}\(.*no such token queue; this machine has load->compute"):
            getattr(buffer(), call)(source, target)


def test_drain_and_finish() -> None:
    made = buffer()
    store(made)
    made.dep_pop(COMPUTE, LOAD)
    made.drain()
    made.finish()
    assert not made.pending
    assert short(made) == [
        "store push:compute",
        "nop-load pop:compute",
        "nop-load push:compute",
        "nop-compute pop:load pop:store",
        "finish",
    ]


def test_serial_order_is_one_chain() -> None:
    made = buffer()
    made.dep_push(COMPUTE, LOAD)
    load(made)
    load(made)
    made.dep_pop(STORE, COMPUTE)
    gemm(made)
    store(made)
    load(made)
    store(made)
    before = short(made)
    assert short(serial(made)) == [
        "load",
        "load push:compute",
        "gemm pop:load push:store",
        "store pop:compute push:compute",
        "nop-compute pop:store push:load",  # load and store have no queue
        "load pop:compute push:compute",
        "nop-compute pop:load push:store",
        "store pop:compute push:compute",
        "finish pop:store",
    ]
    assert short(made) == before


def test_another_line_of_units_needs_no_other_code() -> None:
    """Four stages: load, gemm, activate, store; FINISH is the activate unit's, whose NOP loads ALU micro-ops."""
    made = InstructionBuffer(FOUR)
    load(made)
    store(made)
    chain = serial(made)
    assert chain.units == [0, 1, 2, 3, 2]
    no, prev, behind = (0, 0), (1, 0), (0, 1)  # pop_prev and pop_next, push_prev and push_next
    assert [tuple(row[1:3]) for row in chain.rows] == [no, prev, prev, prev, behind]
    assert [tuple(row[3:5]) for row in chain.rows] == [behind, behind, behind, prev, no]
    made.drain()
    made.finish()
    assert made.units == [0, 3, 0, 1, 1, 2, 2]
    last = made.rows[-2]
    assert (last[0], last[5], last[1:5]) == (Opcode.LOAD, Memory.ALU_UOP, [1, 1, 0, 0])
    with pytest.raises(ProgramError, match="gemm->activate"):
        made.dep_push(0, 2)


@pytest.mark.parametrize("config", [PYNQ, FOUR])
def test_every_unit_takes_its_nop(config: Config) -> None:
    line = config.pipeline
    for unit, (opcode, memory) in enumerate(line.nops):
        assert line.takes[opcode, memory] == unit
        assert memory in config.memories


def test_fields_are_where_the_formats_have_them() -> None:
    made = buffer()
    made.transfer(Opcode.LOAD, Memory.INP, 1, 2, (3, 4), 5, (6, 7, 8, 9))
    made.gemm(range(10, 12), Loop(13, 14, 15, 16), Loop(17, 18, 19, 20), True)
    made.alu(AluOp.ADD, range(21, 22), Loop(23, 24, 25), Loop(26, 27, 28), -29)
    made.alu(AluOp.MAX, range(1), ONCE, ONCE, None)
    lines = text.instructions(made.encode(), PYNQ)
    assert lines == [
        "load inp sram_base=1 dram_base=2 y_size=3 x_size=4 x_stride=5 y_pad_0=6 y_pad_1=7 x_pad_0=8 x_pad_1=9",
        "gemm reset_reg=1 uop_bgn=10 uop_end=12 iter_out=13 iter_in=17 dst_factor_out=14 dst_factor_in=18 "
        "src_factor_out=15 src_factor_in=19 wgt_factor_out=16 wgt_factor_in=20",
        "alu add uop_bgn=21 uop_end=22 iter_out=23 iter_in=26 dst_factor_out=24 dst_factor_in=27 "
        "src_factor_out=25 src_factor_in=28 use_imm=1 imm=-29",
        "alu max uop_bgn=0 uop_end=1 iter_out=1 iter_in=1 dst_factor_out=0 dst_factor_in=0 "
        "src_factor_out=0 src_factor_in=0",
    ]


def test_fields_of_extensions() -> None:
    """REQ's loop over factors is where others have the immediate."""
    made = InstructionBuffer(FOUR)
    made.load_uops(Memory.ALU_UOP, 1, 2, 3)
    made.alu(AluOp.REQ, range(1), Loop(3, 14, 15, 16), ONCE, None)
    made.alu(AluOp.MULH, range(1), Loop(3, 14, 15, 16), ONCE, None)
    lines = text.instructions(made.encode(), FOUR)
    assert lines[0] == "load alu_uop sram_base=1 dram_base=2 y_size=1 x_size=3 x_stride=3"
    assert lines[1].endswith("src_factor_out=15 src_factor_in=0 imm=16")
    assert lines[2].endswith("src_factor_out=15 src_factor_in=0")
