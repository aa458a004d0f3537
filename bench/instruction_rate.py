"""Instructions a second for streams of short instructions, pass by pass, and how the time grows with the stream.

Each block loads inputs and weights, runs two GEMMs and an ALU instruction of 16 micro-ops and stores, with all tokens.
Loops are compiled before anything is measured. `--json` prints one object. Growth is the time for each instruction of
the longest stream over that of the one before: 1 is linear.
"""

from __future__ import annotations

import json
import sys
from time import process_time

import numpy as np

from tilewright.array import Array
from tilewright.program.launch_image import Dram, Segment
from tilewright.sim.order import order
from tilewright.sim.passes import RunOptions
from tilewright.targets.vta.config import PRESETS
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.fields import Memory, Opcode
from tilewright.targets.vta.isa.stream import decode, encode
from tilewright.targets.vta.passes import prepare
from tilewright.targets.vta.steps.elaborate import elaborate
from tilewright.targets.vta.timing import MODELS
from tilewright.targets.vta.values.machine import Machine

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


def measure(insns: Array) -> dict[str, float]:
    """CPU seconds of each pass over a stream: others may be using the machine."""
    fill = {name: np.full((1, 1 << 14), name != "uop", np.uint8) for name in ADDRESS}
    dram = Dram([Segment(n, a, fill[n], n != "out", n != "out") for n, a in ADDRESS.items()])
    seconds = {}
    began = process_time()

    def done(name: str) -> None:
        nonlocal began
        now = process_time()
        seconds[name], began = now - began, now

    program = elaborate(decode(insns, CONFIG), CONFIG, dram, ADDRESS)
    done("decode")
    relation = order(program.table)
    done("order")
    known = prepare(insns, CONFIG, dram, ADDRESS, RunOptions())
    assert not known.findings, known.findings[0]
    done("check")
    seconds["check"] -= seconds["decode"] + seconds["order"]  # which `prepare` did once more
    MODELS["hls"].trace(program, relation)
    done("time")
    Machine(CONFIG, dram, 1).run(known.plan(RunOptions(), 1))
    done("values")
    return seconds


def main() -> None:
    measure(stream(SIZES[1]))
    seconds = {size: measure(stream(size)) for size in SIZES}
    rates = {str(size): {name: size / spent for name, spent in row.items()} for size, row in seconds.items()}
    short, long = SIZES[-2:]
    growth = {name: spent / long / (seconds[short][name] / short) for name, spent in seconds[long].items()}
    static = sum(seconds[long].values()) - seconds[long]["values"]
    if "--json" in sys.argv:
        print(json.dumps({"instructions_per_s": rates, "growth": growth, "static_seconds_of_longest": static}))
        return
    print(f"{'instructions/s':>22}" + "".join(f"{name:>12}" for name in growth))
    for size, row in rates.items():
        print(f"{int(size):>22,}" + "".join(f"{value:>12,.0f}" for value in row.values()))
    print(f"{'growth':>22}" + "".join(f"{value:>12.2f}" for value in growth.values()))
    print(f"{long:,} instructions decoded, ordered, checked and timed in {static:.1f} s")


if __name__ == "__main__":
    main()
