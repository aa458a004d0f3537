"""What is recorded between two synchronisations: instructions, the micro-ops and buffers that they use."""

from __future__ import annotations

from tilewright.errors import ProgramError
from tilewright.program.launch_image import CARRIED, DramSegment, LaunchImage
from tilewright.program.program import Launch
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import INSN_BYTES, REGIONS, Memory, Opcode
from tilewright.targets.vta.runtime.instructions import InstructionBuffer, UopCache, UopLists, alone, serial
from tilewright.targets.vta.runtime.memory import MAX_TRANSFER, UOPS, Buffer
from tilewright.targets.vta.runtime.uop_kernels import UopKernel

#: One call, and the end of the launch after it, add fewer instructions than that.
RESERVE = 16


class Commands:
    """The command buffer of one launch; it starts with empty micro-op caches, which share the lists in DRAM."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.insns, self.lists = InstructionBuffer(config), UopLists()
        self.used: set[Buffer] = set()
        self.stored: set[Buffer] = set()
        self._caches = {memory: self._cache(memory) for memory in config.pipeline.uop_memories}

    def __bool__(self) -> bool:
        return bool(len(self.insns) or self.insns.pending)

    def room(self, call: str) -> None:
        """Raise ProgramError where one more call might not fit.

        Upstream synchronises by itself there, between tokens that belong together; that loses or misses some.
        """
        if (len(self.insns) + RESERVE) * INSN_BYTES >= MAX_TRANSFER:
            reason = f"the command buffer of {MAX_TRANSFER >> 10} KiB is full ({len(self.insns)} instructions)"
            raise ProgramError(call, reason, "synchronize() where no token is under way")

    def transfer(
        self,
        opcode: Opcode,
        memory: Memory,
        base: int,
        buffer: Buffer,
        offset: int,
        shape: tuple[int, int],
        stride: int,
        pads: tuple[int, int, int, int],
    ) -> None:
        """A LOAD from or STORE to tiles of a buffer from `offset` on."""
        address = buffer.address // self.config.dram_tile_bytes(memory) + offset
        self.insns.transfer(opcode, memory, base, address, shape, stride, pads)
        self.used.add(buffer)
        if opcode == Opcode.STORE:
            self.stored.add(buffer)

    def run(self, call: str, kernel: UopKernel) -> None:
        """The GEMM or ALU of a kernel, after a LOAD of its micro-ops where the cache lacks them."""
        if (self.lists.offsets[-1] + kernel.uops.shape[1]) * self.config.uop.tile_bytes > MAX_TRANSFER:
            raise ProgramError(call, f"the micro-ops exceed {MAX_TRANSFER >> 10} KiB", "synchronize() earlier")
        dst, src, wgt = kernel.uops
        op = kernel.op
        memory = self.config.pipeline.uop_memory(alu=op.opcode is not None)
        uops = self._caches[memory].find(self.lists.add(dst, src, wgt))
        if op.opcode is None:
            self.insns.gemm(uops, *kernel.nest, op.reset)
        else:
            self.insns.alu(op.opcode, uops, *kernel.nest, op.imm, op.reset)

    def _cache(self, memory: Memory) -> UopCache:
        first = UOPS // self.config.uop.tile_bytes

        def load(base: int, offset: int, count: int) -> None:
            self.insns.load_uops(memory, base, first + offset, count)

        return UopCache(self.lists.offsets, self.config.sram(memory).depth, load, alone)

    def finished(self, force_serial: bool) -> InstructionBuffer:
        """A copy with FINISH at its end, behind all that is recorded."""
        if force_serial:
            return serial(self.insns)
        done = self.insns.copy()
        done.drain()
        done.finish()
        return done

    def launch(self, name: str, force_serial: bool) -> Launch:
        """A bare launch that carries its data; base registers are 0, so DRAM indices are addresses in tiles."""
        uops = self.lists.encode(self.config).reshape(-1)
        segments, data = [DramSegment("uop", UOPS, uops.size, "const")] if uops.size else [], {"uop": uops}
        for buffer in sorted(self.used, key=lambda buffer: buffer.address):
            kind = _kind(buffer, buffer in self.stored)
            segments.append(DramSegment(buffer.name, buffer.address, buffer.size, kind))
            if kind in CARRIED:
                data[buffer.name] = buffer.snapshot()
        insns = self.finished(force_serial).encode()
        return LaunchImage(insns, tuple(segments), data, dict.fromkeys(REGIONS, 0)).launch(name)


def _kind(buffer: Buffer, stored: bool) -> str:
    """The kind of segment; one that nobody has written is an output, even if only read: the check finds it."""
    if not buffer.filled:
        return "output"
    return "inout" if stored else "const"
