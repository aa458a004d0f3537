"""Random calls of VTA's runtime, for the runtime in Python and, as text, for player.cc."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.fields import Memory
from tilewright.targets.vta.runtime import Buffer, Runtime, UopRecorder

#: An immediate is written with this added, so that the player reads no signs.
IMMEDIATE = 1000


@dataclass(frozen=True)
class Kernel:
    """A kernel of micro-ops: (dst, src, wgt) each, and loops (extent, dst, src, wgt)."""

    alu: bool
    reset: bool
    opcode: AluOp | None
    imm: int | None
    loops: tuple[tuple[int, int, int, int], ...]
    uops: tuple[tuple[int, int, int], ...]

    def record(self, recorder: UopRecorder, _: int) -> None:
        for extent, dst, src, wgt in self.loops:
            recorder.uop_loop_begin(extent, dst, src, wgt)
        for dst, src, wgt in self.uops:
            recorder.uop_push(dst, src, wgt, reset=self.reset, opcode=self.opcode, imm=self.imm)
        for _loop in self.loops:
            recorder.uop_loop_end()

    def text(self, signature: int) -> str:
        imm = IMMEDIATE + (self.imm or 0)
        numbers = [self.alu, self.reset, self.opcode or 0, self.imm is not None, imm, len(self.loops), len(self.uops)]
        numbers += [signature, *sum(self.loops, ()), *sum(self.uops, ())]
        return "kernel " + " ".join(str(int(number)) for number in numbers)


@dataclass
class Script:
    """Plays calls on a Runtime, and keeps them as text."""

    rt: Runtime
    random: random.Random
    lines: list[str] = field(default_factory=list)

    def play(self, calls: int) -> None:
        """Make `calls` random calls; the tokens may let the program deadlock."""
        config = self.rt.config
        buffers = {memory: self.buffer(memory) for memory in (Memory.INP, Memory.WGT, Memory.ACC, Memory.OUT)}
        kernels = [self.kernel(config) for _ in range(8)]
        units = config.pipeline.units
        makers: tuple[Callable[[], None], ...] = (
            lambda: self.load(buffers),
            lambda: self.store(buffers[Memory.OUT]),
            lambda: self.push_kernel(kernels),
            lambda: self.push_kernel(kernels),
            lambda: self.token(units),
            lambda: self.token(units),
        )
        for _ in range(calls):
            self.random.choice(makers)()

    def say(self, *words: object) -> None:
        self.lines.append(" ".join(map(str, words)))

    def buffer(self, memory: Memory) -> Buffer:
        size = 40 * self.rt.config.dram_tile_bytes(memory) + self.random.randrange(3) * 4096
        self.say("buffer", size)
        return self.rt.alloc(size)

    def kernel(self, config: Config) -> Kernel:
        rng, alu = self.random, self.random.random() < 0.5
        first = rng.randrange(8)
        uops = tuple((first + i, rng.randrange(8), 0 if alu else rng.randrange(8)) for i in range(rng.randint(1, 6)))
        loops = tuple(
            (rng.randint(1, 3), rng.randrange(3), rng.randrange(3), 0 if alu else rng.randrange(3))
            for _ in range(rng.randrange(3))
        )
        opcode = rng.choice((AluOp.MIN, AluOp.MAX, AluOp.ADD, AluOp.SHR)) if alu else None
        imm = rng.randint(-99, 99) if alu and rng.random() < 0.5 else None
        return Kernel(alu, not alu and rng.random() < 0.3, opcode, imm, loops, uops)

    def load(self, buffers: dict[Memory, Buffer]) -> None:
        rng = self.random
        memory = rng.choice((Memory.INP, Memory.WGT, Memory.ACC))
        rows, columns, pads = rng.randint(1, 3), rng.randint(1, 4), [rng.randrange(3) for _ in range(4)]
        offset, stride, sram = rng.randrange(10), rng.randint(columns, 8), rng.randrange(8)
        left, above, right, below = pads
        self.say("load", list(buffers).index(memory), offset, columns, rows, stride, *pads, sram, int(memory))
        self.rt.load_buffer_2d(
            buffers[memory], offset, columns, rows, stride, sram, memory, x_pad=(left, right), y_pad=(above, below)
        )

    def store(self, out: Buffer) -> None:
        rng = self.random
        sram, offset, columns, rows, stride = (rng.randint(1, 4) for _ in range(5))
        self.say("store", sram, int(Memory.OUT), 3, offset, columns, rows, stride)
        self.rt.store_buffer_2d(sram, Memory.OUT, out, offset, columns, rows, stride)

    def push_kernel(self, kernels: list[Kernel]) -> None:
        signature = self.random.randrange(len(kernels))
        kernel = kernels[signature]
        self.lines.append(kernel.text(signature))
        (self.rt.push_alu if kernel.alu else self.rt.push_gemm)(kernel.record, signature)

    def token(self, units: tuple[str, ...]) -> None:
        source = self.random.randrange(len(units) - 1)
        ends = self.random.choice(((source, source + 1), (source + 1, source)))
        push = self.random.random() < 0.5
        self.say("push" if push else "pop", ends[0] + 1, ends[1] + 1)
        (self.rt.dep_push if push else self.rt.dep_pop)(units[ends[0]], units[ends[1]])
