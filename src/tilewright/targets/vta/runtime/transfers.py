"""What the arguments of a 2-D load or store must satisfy."""

from __future__ import annotations

import numpy as np

from tilewright.errors import ProgramError
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import UOP_MEMORIES, Memory
from tilewright.targets.vta.runtime.memory import Buffer

LOADED = (Memory.INP, Memory.WGT, Memory.ACC, Memory.ACC_8BIT, Memory.PAR)


def check_transfer(
    call: str,
    config: Config,
    buffer: Buffer,
    offset: int,
    shape: tuple[int, int],
    stride: int,
    base: int,
    memory: Memory,
    pads: tuple[int, int, int, int],
) -> None:
    """Raise ProgramError naming the call and the argument that has no field, memory or bytes to go to."""
    moved = [item for item in LOADED if item in config.memories] if call.startswith("load") else [Memory.OUT]
    if memory not in moved:
        remedy = "push_gemm and push_alu load micro-ops" if memory in UOP_MEMORIES else ""
        if memory == Memory.PAR and len(moved) > 1:
            remedy = "set alu to fused: other machines have no parameters"
        known = ", ".join(item.name for item in moved)
        raise ProgramError(call, f"memory is {Memory(memory).name}", remedy or f"choose {known}")
    if memory == Memory.ACC_8BIT and not config.rules.loads_acc_8bit:
        raise ProgramError(call, f"ACC_8BIT is ignored by {config.semantics}", "use semantics fsim, or ACC")
    for name, value in (("offset", offset), ("sram_index", base)):
        if not isinstance(value, int | np.integer):
            raise ProgramError(call, f"{name} is {value!r}", "give an integer")
    fields = config.formats.mem.by_name
    names = ("y_size", "x_size", "x_stride", "y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")
    for name, value in zip(names, (*shape, stride, *pads), strict=True):
        if not isinstance(value, int | np.integer) or not 0 <= value <= fields[name].high:
            raise ProgramError(call, f"{name} is {value!r}, not an integer in 0..{fields[name].high}")
    chip, (rows, columns) = config.sram(memory), shape
    tiles = (pads[0] + rows + pads[1]) * (pads[2] + columns + pads[3])
    if base < 0 or base + tiles > chip.depth:
        reason = f"sram_index {base} and {tiles} tiles leave {chip.name}"
        raise ProgramError(call, reason, f"it has tiles 0..{chip.depth - 1}")
    if not rows or not columns:
        return
    end, size = offset + (rows - 1) * stride + columns, config.dram_tile_bytes(memory)
    if offset < 0 or end * size > buffer.size:
        reason = f"offset {offset} and {rows} rows of {columns} tiles, {stride} apart, reach tile {end}"
        raise ProgramError(call, reason, f"buffer '{buffer.name}' has {buffer.size // size} tiles of {size} bytes")
