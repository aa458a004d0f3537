"""The command buffer between two synchronisations: instructions, and the micro-ops and buffers of the instructions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.errors import ProgramError
from tilewright.program.launch_image import CARRIED, DramSegment, LaunchImage
from tilewright.program.program import Launch
from tilewright.targets.vta.config import Config, Sram
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.fields import INSN_BYTES, REGIONS, UOP_MEMORIES, Memory, Opcode
from tilewright.targets.vta.isa.instructions import InstructionBuffer, UopCache, UopLists, alone, serial
from tilewright.targets.vta.isa.own import FIRST_OWN
from tilewright.targets.vta.runtime.memory import MAX_TRANSFER, UOPS, Buffer
from tilewright.targets.vta.runtime.uop_kernels import UopKernel

#: The memories that `load_buffer_2d` may fill.
LOADED = (Memory.INP, Memory.WGT, Memory.ACC, Memory.ACC_8BIT, Memory.PAR)
#: Free room to keep, in instructions: more than a call and the end of a launch need together.
RESERVE = 16


class Transfer(NamedTuple):
    """A 2-D load or store of `shape` (rows, tiles per row), between SRAM tiles from `base` on and a buffer.

    In the buffer, the transfer begins at tile `offset`, and its rows are `stride` tiles apart. `pads`: the zero tiles
    above, below, at the left and at the right.
    """

    opcode: Opcode
    memory: Memory
    base: int
    buffer: Buffer
    offset: int
    shape: tuple[int, int]
    stride: int
    pads: tuple[int, int, int, int]

    @property
    def call(self) -> str:
        """The method of Runtime that records this transfer, for error messages."""
        return f"{self.opcode.name.lower()}_buffer_2d"


class Commands:
    """The command buffer of one launch. The micro-op caches start empty. All caches use the same lists in DRAM."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.insns = InstructionBuffer(config)
        self.lists = UopLists()
        self.used: set[Buffer] = set()
        self.stored: set[Buffer] = set()
        memories = {config.pipeline.uop_memory(alu) for alu in (False, True)}
        self._caches = {memory: self._cache(memory) for memory in memories}

    def __bool__(self) -> bool:
        return bool(len(self.insns) or self.insns.pending)

    def room(self, call: str) -> None:
        """Check that the command buffer has room for one more call.

        Raises ProgramError if the buffer may be too small. Upstream synchronises automatically when the buffer is full,
        which may separate a push from its pop.
        """
        if (len(self.insns) + RESERVE) * INSN_BYTES >= MAX_TRANSFER:
            reason = f"the command buffer of {MAX_TRANSFER >> 10} KiB is full ({len(self.insns)} instructions)"
            raise ProgramError(call, reason, "call synchronize() earlier, where every pushed token has been popped")

    def transfer(self, item: Transfer) -> None:
        """Record a LOAD from or a STORE to a buffer. Raises ProgramError as `check_transfer` does."""
        check_transfer(self.config, item)
        opcode, memory, base, buffer, offset, *_ = item
        address = buffer.address // self.config.dram_tile_bytes(memory) + offset
        self.insns.transfer(opcode, memory, base, address, item.shape, item.stride, item.pads)
        self.used.add(buffer)
        if opcode == Opcode.STORE:
            self.stored.add(buffer)

    def run(self, call: str, kernel: UopKernel) -> None:
        """Record the GEMM or ALU instruction of a kernel, after a LOAD of its micro-ops if these are not cached.

        Raises ProgramError if the launch's micro-ops exceed MAX_TRANSFER bytes.
        """
        if (self.lists.offsets[-1] + kernel.uops.shape[1]) * self.config.uop.tile_bytes > MAX_TRANSFER:
            raise ProgramError(call, f"the micro-ops exceed {MAX_TRANSFER >> 10} KiB", "call synchronize() earlier")
        op = kernel.op
        memory = self.config.pipeline.uop_memory(alu=op.opcode is not None)
        uops = self._caches[memory].find(self.lists.add(kernel.uops.tobytes()))
        if op.opcode is None:
            self.insns.gemm(uops, *kernel.nest, op.reset)
        elif op.opcode >= FIRST_OWN:
            opcode = self.config.own_alu[op.opcode - FIRST_OWN].opcode
            self.insns.operate(opcode, uops, *kernel.nest, op.use_imm, op.imm or 0, op.reset)
        else:
            self.insns.alu(AluOp(op.opcode), uops, *kernel.nest, op.imm, op.reset)

    def _cache(self, memory: Memory) -> UopCache:
        first = UOPS // self.config.uop.tile_bytes

        def load(base: int, offset: int, count: int) -> None:
            self.insns.load_uops(memory, base, first + offset, count)

        return UopCache(self.lists.offsets, self.config.sram(memory).depth, load, alone)

    def finished(self, force_serial: bool) -> InstructionBuffer:
        """Return a copy of the instructions with FINISH at the end. FINISH waits for all instructions."""
        if force_serial:
            return serial(self.insns)
        done = self.insns.copy()
        done.drain()
        done.finish()
        return done

    def launch(self, name: str, force_serial: bool) -> Launch:
        """Return the recorded launch, with its data. Base registers are 0, so DRAM indices are addresses in tiles."""
        uops = self.lists.encode(self.config).reshape(-1)
        segments = [DramSegment("uop", UOPS, uops.size, "const")] if uops.size else []
        data = {"uop": uops}
        for buffer in sorted(self.used, key=lambda buffer: buffer.address):
            kind = segment_kind(buffer.filled, buffer in self.stored)
            segments.append(DramSegment(buffer.name, buffer.address, buffer.size, kind))
            if kind in CARRIED:
                data[buffer.name] = buffer.snapshot()
        insns = self.finished(force_serial).encode()
        return LaunchImage(insns, tuple(segments), data, dict.fromkeys(REGIONS, 0)).launch(name)


def segment_kind(filled: bool, stored: bool) -> str:
    """Return the segment kind of a buffer; "output" before the first write, which shows uninitialised reads."""
    if not filled:
        return "output"
    return "inout" if stored else "const"


def check_transfer(config: Config, item: Transfer) -> None:
    """Check the arguments of a transfer.

    Raises ProgramError, with the call and the argument, in three cases: the call cannot use the memory, a value does
    not fit its field, or tiles are outside the on-chip memory or the buffer.
    """
    _, memory, base, buffer, offset, shape, stride, pads = item
    call = item.call
    chip = _memory(config, item)
    rows, columns = shape
    for name, value in (("offset", offset), ("sram_index", base)):
        if not isinstance(value, int | np.integer):
            raise ProgramError(call, f"{name} is {value!r}", "give an integer")
    fields = config.formats.mem.by_name
    names = ("y_size", "x_size", "x_stride", "y_pad_0", "y_pad_1", "x_pad_0", "x_pad_1")
    for name, value in zip(names, (*shape, stride, *pads), strict=True):
        if not isinstance(value, int | np.integer) or not 0 <= value <= fields[name].high:
            raise ProgramError(call, f"{name} is {value!r}, not an integer in 0..{fields[name].high}")
    tiles = (pads[0] + rows + pads[1]) * (pads[2] + columns + pads[3])
    if base < 0 or base + tiles > chip.depth:
        reason = f"sram_index {base} with {tiles} tiles is outside {chip.name}"
        raise ProgramError(call, reason, f"{chip.name} has tiles 0..{chip.depth - 1}")
    if not rows or not columns:  # such a transfer only writes padding
        return
    end = offset + (rows - 1) * stride + columns
    size = config.dram_tile_bytes(memory)
    if offset < 0 or end * size > buffer.size:
        reason = f"offset {offset} with {rows} rows of {columns} tiles, {stride} apart, reaches to tile {end}"
        raise ProgramError(call, reason, f"buffer '{buffer.name}' has {buffer.size // size} tiles of {size} bytes")


def _memory(config: Config, item: Transfer) -> Sram:
    """Return the on-chip memory of a transfer. Raises ProgramError if the call cannot use this memory."""
    call = item.call
    memory = item.memory
    allowed = [Memory.OUT]
    if item.opcode == Opcode.LOAD:
        allowed = [kind for kind in LOADED if kind in config.memories]
    if memory not in allowed:
        remedy = f"choose {', '.join(kind.name for kind in allowed)}"
        if memory in UOP_MEMORIES:
            remedy = "push_gemm and push_alu load micro-ops"
        elif memory == Memory.PAR and item.opcode == Opcode.LOAD:
            remedy = "set alu to fused: this machine has no parameter memory"
        raise ProgramError(call, f"memory is {Memory(memory).name}", remedy)
    if memory == Memory.ACC_8BIT and not config.rules.loads_acc_8bit:
        raise ProgramError(call, f"ACC_8BIT is ignored by {config.semantics}", "set semantics to fsim, or load ACC")
    return config.sram(memory)
