"""Instructions a second for streams of short instructions: decode, order, check and time; then values.

Each block loads inputs and weights, runs a GEMM of 16 micro-ops and an ALU instruction and stores, with all tokens.
`--json` prints one object. Linear growth is what to look for.
"""

from __future__ import annotations

import json
import sys
from time import perf_counter

import numpy as np

from tilewright.array import Array
from tilewright.sim.dram import Dram, Segment
from tilewright.targets.base import RunOptions
from tilewright.targets.vta.config import PRESETS
from tilewright.targets.vta.isa.fields import AluOp, Memory, Opcode
from tilewright.targets.vta.isa.stream import encode
from tilewright.targets.vta.machine import Machine
from tilewright.targets.vta.passes import run_passes

CONFIG = PRESETS["pynq"]
SIZES = (10_000, 100_000, 1_000_000)
ADDRESS = {"uop": 0x1000, "inp": 0x10000, "wgt": 0x100000, "acc": 0x200000, "out": 0x300000}


def stream(instructions: int) -> Array:
    """About so many instructions, uint8 [n, 16]."""
    load = {"opcode": Opcode.LOAD, "y_size": 1, "x_size": 16, "x_stride": 16}
    block = [
        {**load, "memory_type": Memory.INP, "pop_next": 1},
        {**load, "memory_type": Memory.WGT, "x_size": 1, "x_stride": 1, "push_next": 1},
        {"opcode": Opcode.GEMM, "uop_end": 1, "iter_out": 1, "iter_in": 16, "dst_factor_in": 1, "pop_next": 1},
        {"opcode": Opcode.GEMM, "uop_end": 1, "iter_out": 1, "iter_in": 16, "dst_factor_in": 1, "src_factor_in": 1},
        {"opcode": Opcode.ALU, "uop_end": 1, "iter_out": 1, "iter_in": 16, "alu_opcode": AluOp.SHR, "use_imm": 1},
        {"opcode": Opcode.STORE, "memory_type": Memory.OUT, "y_size": 1, "x_size": 16, "x_stride": 16, "pop_prev": 1},
    ]
    block[2] |= {"reset_reg": 1}
    block[3] |= {"pop_prev": 1, "push_prev": 1}
    block[4] |= {"imm": 3, "dst_factor_in": 1, "src_factor_in": 1, "push_next": 1}
    block[5] |= {"push_prev": 1}
    head = [
        {**load, "memory_type": Memory.UOP, "x_size": 1, "x_stride": 1, "push_prev": 1},
        {"opcode": Opcode.STORE, "memory_type": Memory.OUT, "push_prev": 1},
    ]
    drain = {"opcode": Opcode.LOAD, "memory_type": Memory.INP, "pop_next": 1, "push_next": 1}
    tail = [drain, {"opcode": Opcode.FINISH, "pop_prev": 1, "pop_next": 1}]
    first, body, last = (encode(part, CONFIG) for part in (head, block, tail))
    return np.concatenate([first, np.tile(body, (instructions // len(block), 1)), last])


def main() -> None:
    figures = {}
    for size in SIZES:
        insns = stream(size)
        fill = {name: np.full((1, 1 << 14), name != "uop", np.uint8) for name in ADDRESS}
        dram = Dram([Segment(n, a, fill[n], n != "out", n != "out") for n, a in ADDRESS.items()])
        began = perf_counter()
        passes = run_passes(insns, CONFIG, dram, ADDRESS, 1, RunOptions("hls", values=False))
        static = perf_counter() - began
        assert not passes.findings, passes.findings[0]
        began = perf_counter()
        Machine(CONFIG, dram, 1).run(passes.plan(RunOptions("hls"), 1))
        values = perf_counter() - began
        figures[str(len(insns))] = {
            "decode_order_check_time_per_s": len(insns) / static,
            "values_per_s": len(insns) / values,
            "cycles": passes.trace.cycles if passes.trace else 0,
        }
    if "--json" in sys.argv:
        print(json.dumps(figures))
        return
    for count, row in figures.items():
        print(f"{int(count):>9,} instructions: " + ", ".join(f"{name} {value:,.0f}" for name, value in row.items()))


if __name__ == "__main__":
    main()
