"""The machines on which programs run as gateware, the memory of a program, and a small program."""

from __future__ import annotations

import numpy as np

from tests.targets.vta.streams import BASES, OWN_ALU, Case, moved, small
from tilewright.program.launch_image import Dram, Segment
from tilewright.program.program import Launch, Program
from tilewright.sim.passes import RunOptions
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.stream import encode

OPTIONS = RunOptions(timing="tilewright")
#: The machine of the program `overwritten`.
SMALL = small(0, 2)
#: The first for every day. Tiles narrower and wider than beats, memories near and far, queues that fill.
MACHINES: dict[str, Config] = {
    "1x4x4": small(0, 2),
    "2x8x8, far": small(1, 3, dram_latency=40, queue_depth=3),
    "1x4x4, 128 bits, near": small(0, 2, LOG_BUS_WIDTH=7, dram_latency=0, queue_depth=1, token_depth=2),
    "4x2x2, 256 bits": small(2, 1, LOG_BUS_WIDTH=8, dram_latency=2, token_depth=1),
    "1x8x8, 4 bits": small(
        0, 3, dram_latency=1, LOG_INP_WIDTH=2, LOG_INP_BUFF_SIZE=7, LOG_WGT_WIDTH=2, LOG_WGT_BUFF_SIZE=8
    ),
    "1x4x4, narrow ports": small(0, 2, alu_lanes=2, wgt_read_bits=64, acc_read_bits=64),
    "chisel": small(0, 2, semantics="chisel"),
    "rounding": small(1, 2, alu="rounding"),
    "fused": small(2, 1, alu="fused", alu_lanes=4, acc_read_bits=128, LOG_BUS_WIDTH=7),
    "float": small(0, 2, alu="float"),
    "four": small(1, 2, stages=4, acc_banks=1),
    "four, fused": small(0, 1, stages=4, alu="fused"),
    # More parts of acc than rows of beats, queues that fill.
    "four, float": small(
        0, 2, stages=4, alu="float", acc_banks=16, LOG_BUS_WIDTH=9, dram_latency=3, queue_depth=2, token_depth=2
    ),
    # Three latencies of the ALU in one core: 0, 2 and that of MULH.
    "own": small(0, 2, own_alu=OWN_ALU, alu_lanes=2),
    "fused, own": small(0, 2, alu="fused", own_alu=moved(OWN_ALU, 8)),
    "four, own": small(1, 2, stages=4, own_alu=OWN_ALU),
    "1x4x4, two products a block": small(0, 2, multipliers="packed"),
    "2x4x4, products in logic": small(1, 2, multipliers="logic"),
}


def dram_of(case: Case) -> Dram:
    return Dram([Segment("all", 0, case.dram.copy())])


def overwritten() -> Program:
    """Four tiles through MIN to DRAM; then again without it, to the same place."""
    pushes, pops = {"push_next": 1}, {"pop_next": 1}
    load = {"opcode": 0, "memory_type": 3, "x_size": 4, "y_size": 1, "x_stride": 4}
    alu = {"opcode": 4, "uop_end": 1, "iter_out": 1, "iter_in": 4, "dst_factor_in": 1, "src_factor_in": 1}
    store = {"opcode": 1, "memory_type": 4, "x_size": 4, "y_size": 1, "x_stride": 4, "pop_prev": 1, "push_prev": 1}
    records = [
        {"opcode": 0, "memory_type": 0, "x_size": 1, "y_size": 1, "x_stride": 1},
        load,
        {**alu, **pushes, "alu_opcode": AluOp.MIN, "use_imm": 1, "imm": 0},
        store,
        {**load, **pops},
        {**alu, **pushes, "alu_opcode": AluOp.ADD, "use_imm": 1, "imm": 1},
        store,
        {"opcode": 3, **pops},
    ]
    memory = np.zeros(0xA000, np.uint8)
    memory[BASES["acc"] : BASES["acc"] + 64] = np.array([-9, 5, -7, 100] * 4, "<i4").view(np.uint8)
    segment = {"name": "all", "address": 0, "size": memory.size, "kind": "inout"}
    arrays = {"insns": encode(records, SMALL), "dram.all": memory}
    launch = Launch("overwritten", (), {"bases": BASES, "segments": [segment]}, arrays)
    return Program("vta", SMALL.to_dict(), SMALL.digest(), "tflm", None, (launch,))
