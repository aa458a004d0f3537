"""Whether a compiled launch stays inside its memories, worked out here from its instructions alone."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.array import Array
from tilewright.program.program import Launch
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.fields import UOP_MEMORIES, Memory, Opcode, Stream
from tilewright.targets.vta.isa.stream import decode, decode_uops


def highest(part: Any, row: int, listed: Array, operand: str) -> int:
    """The last tile that an instruction names: its loops only add."""
    loops = [
        (getattr(part, f"iter_{where}")[row], getattr(part, f"{operand}_factor_{where}")[row])
        for where in ("out", "in")
    ]
    return int(listed.max() + sum((count - 1) * factor for count, factor in loops))


def check_capacity(launch: Launch, machine: Config) -> None:
    """Every LOAD and STORE inside its memory and one DRAM segment; every micro-op inside the memories it names."""
    s = decode(launch.arrays["insns"], machine)
    (words,) = (segment["address"] // 4 for segment in launch.meta["segments"] if segment["name"] == "uop")
    micro = decode_uops(launch.arrays["dram.uop"].reshape(-1, 4), machine)
    table = np.stack([micro.dst, micro.src, micro.wgt])
    caches = {memory: np.full((3, machine.sram(memory).depth), -1) for memory in UOP_MEMORIES}
    for row, opcode in enumerate(s.opcode.tolist()):
        if opcode in (Opcode.LOAD, Opcode.STORE):
            _check_move(launch, machine, s, row)
            memory = Memory(int(s.mem.memory_type[row]))
            if memory in caches:
                base, count = int(s.mem.sram_base[row]), int(s.mem.x_size[row])
                at = int(s.mem.dram_base[row]) - words
                caches[memory][:, base : base + count] = table[:, at : at + count]
        elif opcode in (Opcode.GEMM, Opcode.ALU):
            own = Memory.ALU_UOP if opcode == Opcode.ALU and machine.stages == 4 else Memory.UOP
            _check_kernel(machine, s, row, caches[own])


def _check_move(launch: Launch, machine: Config, s: Stream, row: int) -> None:
    mem = s.mem
    memory, tile = Memory(int(mem.memory_type[row])), machine.dram_tile_bytes(Memory(int(mem.memory_type[row])))
    rows, columns, stride = int(mem.y_size[row]), int(mem.x_size[row]), int(mem.x_stride[row])
    if not rows * columns:
        return  # carries tokens only
    assert int(mem.sram_base[row]) + rows * columns <= machine.sram(memory).depth, f"#{row} leaves {memory.name}"
    first = int(mem.dram_base[row]) * tile
    last = first + ((rows - 1) * stride + columns) * tile
    inside = [
        seg for seg in launch.meta["segments"] if seg["address"] <= first and last <= seg["address"] + seg["size"]
    ]
    assert len(inside) == 1, f"#{row} moves bytes {first} to {last} of no segment"


def _check_kernel(machine: Config, s: Stream, row: int, cache: Array) -> None:
    gemm = s.opcode[row] == Opcode.GEMM
    part: Any = s.gemm if gemm else s.alu
    begin, end = int(part.uop_bgn[row]), int(part.uop_end[row])
    assert 0 <= begin < end <= cache.shape[1], f"#{row} runs micro-ops {begin} to {end}"
    dst, src, wgt = cache[:, begin:end]
    assert dst.min() >= 0, f"#{row} runs micro-ops that nothing loaded"
    assert highest(part, row, dst, "dst") < machine.acc.depth, f"#{row} leaves acc"
    if gemm and not part.reset_reg[row]:
        assert highest(part, row, src, "src") < machine.inp.depth, f"#{row} leaves inp"
        assert highest(part, row, wgt, "wgt") < machine.wgt.depth, f"#{row} leaves wgt"
    elif not gemm and part.alu_opcode[row] == AluOp.REQ:
        assert highest(part, row, src, "src") < machine.par.depth, f"#{row} leaves par"
        factors = int(wgt[0]) + (int(part.iter_out[row]) - 1) * int(part.imm[row])
        assert factors + 3 <= machine.par.depth, f"#{row} reads factors beyond par"
    elif not gemm and not part.use_imm[row]:
        assert highest(part, row, src, "src") < machine.acc.depth, f"#{row} leaves acc"
