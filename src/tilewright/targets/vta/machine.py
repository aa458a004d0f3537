"""Values: the data memories of VTA, and what each instruction does to them, for many samples at once.

Meanings follow the HLS design. Input and weight memories are held as floats in which their products are
exact, so a GEMM instruction is a gather and a matrix product (see kernel.GemmKernel.products).
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array, exact_matmul, float_for
from tilewright.sim.dram import Dram
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.elaborate import Elaborated
from tilewright.targets.vta.isa.fields import AluOp, Memory, Opcode
from tilewright.targets.vta.isa.tiles import pack_values, unpack_values
from tilewright.targets.vta.kernel import AluKernel, GemmKernel


class Machine:
    """The state of one VTA running `samples` samples in step.

    inp (S, depth, batch, block), wgt (1 or S, depth, block_in, block_out), acc (S, depth, batch, block_out).
    """

    def __init__(self, config: Config, dram: Dram, samples: int) -> None:
        self.config, self.dram, self.samples = config, dram, samples
        self._limits = 1 << (config.inp.width - 1), 1 << (config.wgt.width - 1)
        exact = float_for(*self._limits)
        self.inp = np.zeros((samples, config.inp.depth, *config.inp.shape), exact)
        self.wgt = np.zeros((1, config.wgt.depth, *config.wgt.shape), exact)
        self.acc = np.zeros((samples, config.acc.depth, *config.acc.shape), f"int{config.acc.width}")
        self.out = np.zeros((samples, config.out.depth, *config.out.shape), np.int32)
        # The out memory mirrors the accumulator wherever a GEMM or ALU wrote last; it differs after LOAD ACC.
        self._mirrors = np.ones(config.out.depth, np.bool_)

    def run(self, program: Elaborated, sequence: Array) -> None:
        """Execute the steps of `sequence` in that order."""
        opcode = program.stream.opcode.tolist()
        kernel = program.kernel.tolist()
        stored = stored_resets(program, sequence)
        fused: list[int] = []  # accumulating GEMMs that follow each other
        for step in sequence.tolist():
            index = kernel[step]
            if index >= 0 and program.accumulates[index]:
                fused.append(index)
                continue
            if fused:
                self._accumulate(program.fused(tuple(fused)))
                fused = []
            if index >= 0:
                self._compute(program.kernels[index], step in stored)
            elif opcode[step] == Opcode.LOAD:
                self._load(program, step)
            elif opcode[step] == Opcode.STORE:
                self._store(program, step)
        if fused:
            self._accumulate(program.fused(tuple(fused)))

    def _compute(self, kernel: GemmKernel | AluKernel, reset_is_stored: bool) -> None:
        if isinstance(kernel, AluKernel):
            self._alu(kernel)
        else:
            self._reset(kernel, reset_is_stored)

    def _reset(self, kernel: GemmKernel, is_stored: bool) -> None:
        if is_stored:  # the out memory gets what would have been accumulated
            before = self.acc.copy()
            self._accumulate(kernel)
            self.out[:, kernel.written] = self.acc[:, kernel.written]
            self.acc = before
        self.acc[:, kernel.written] = 0
        self._mirrors[kernel.written] = not is_stored

    def _accumulate(self, kernel: GemmKernel) -> None:
        samples, block, batch = self.samples, self.config.block, self.config.batch
        for src, wgt, dst in kernel.products:
            places, terms = src.shape
            columns = wgt.shape[0]
            left = self.inp.take(src.reshape(-1), axis=1).reshape(samples, places, terms, batch, block)
            if batch > 1:
                left = left.swapaxes(2, 3)
            # Rows: samples (apart where each has its own weights), places, batch; then terms by block.
            own = self.wgt.shape[0]
            left = left.reshape(own, -1, terms * block)
            right = self.wgt.take(wgt.reshape(-1), axis=1).reshape(own, columns, terms, block, block)
            right = right.transpose(0, 2, 3, 1, 4).reshape(own, terms * block, columns * block)
            product = exact_matmul(left, right, *self._limits)
            product = product.reshape(samples, places, batch, columns, block).astype(self.acc.dtype, copy=False)
            for column, tiles in enumerate(dst):
                self.acc[:, tiles] += product[:, :, :, column]
        self._mirrors[kernel.written] = True

    def _alu(self, kernel: AluKernel) -> None:
        for dst, src in kernel.waves:
            first = self.acc[:, dst]
            second = np.array(kernel.imm, np.int32) if kernel.imm is not None else self.acc[:, src]
            self.acc[:, dst] = _operate(kernel.op, first, second, self.config)
        self._mirrors[kernel.written] = True

    def _load(self, program: Elaborated, step: int) -> None:
        mem, config = program.stream.mem, self.config
        memory = Memory(int(mem.memory_type[step]))
        if memory in (Memory.UOP, Memory.ACC_8BIT, Memory.OUT):
            return  # micro-ops are control state; HLS ignores the others
        chip = config.sram(memory)
        base, rows, columns = int(mem.sram_base[step]), int(mem.y_size[step]), int(mem.x_size[step])
        tiles = None
        if program.transfers[step, 1]:
            address, count, row_bytes, stride = program.transfers[step].tolist()
            raw = self.dram.window(address, count, row_bytes, stride, f"instruction {step}")
            tiles = unpack_values(raw, chip.width).reshape(raw.shape[0], rows, columns, *chip.shape)
        if memory == Memory.WGT:
            if tiles is not None:
                self._load_weights(base, tiles.reshape(tiles.shape[0], rows * columns, *chip.shape).swapaxes(2, 3))
            return
        top, bottom, left, right = (int(c[step]) for c in (mem.y_pad_0, mem.y_pad_1, mem.x_pad_0, mem.x_pad_1))
        height, width = top + rows + bottom, left + columns + right
        array = self.inp if memory == Memory.INP else self.acc
        if memory == Memory.ACC:
            self._keep_out(base, base + height * width)
        target = array[:, base : base + height * width].reshape(self.samples, height, width, *chip.shape)
        if top or bottom or left or right:
            target[:] = 0
        if tiles is not None:
            target[:, top : top + rows, left : left + columns] = tiles

    def _load_weights(self, base: int, tiles: Array) -> None:
        if tiles.shape[0] > self.wgt.shape[0]:
            self.wgt = np.repeat(self.wgt, self.samples, axis=0)
        self.wgt[:, base : base + tiles.shape[1]] = tiles

    def _keep_out(self, low: int, high: int) -> None:
        """A load into the accumulator leaves the out memory as it is: it no longer mirrors."""
        slots = low + np.flatnonzero(self._mirrors[low:high])
        self.out[:, slots] = self.acc[:, slots]
        self._mirrors[slots] = False

    def _store(self, program: Elaborated, step: int) -> None:
        address, rows, row_bytes, stride = program.transfers[step].tolist()
        if not rows:
            return
        chip = self.config.out
        low = int(program.stream.mem.sram_base[step])
        high = low + rows * row_bytes // chip.tile_bytes
        values = self.acc[:, low:high]
        if not self._mirrors[low:high].all():
            mirrors = self._mirrors[low:high, None, None]
            values = np.where(mirrors, values, self.out[:, low:high])
        window = self.dram.window(address, rows, row_bytes, stride, f"instruction {step}")
        window[:] = pack_values(values.reshape(self.samples, -1), chip.width).reshape(self.samples, rows, row_bytes)


def _operate(op: AluOp, first: Array, second: Array, config: Config) -> Array:
    """op(first, second) on accumulator values, wrapping."""
    if op == AluOp.MIN:
        return np.minimum(first, second)
    if op == AluOp.MAX:
        return np.maximum(first, second)
    if op == AluOp.ADD:
        return first + second.astype(first.dtype)
    if op == AluOp.SHR:
        # The amount is the low LOG_ACC_WIDTH bits, signed: negative shifts left.
        bits = config.LOG_ACC_WIDTH
        amount = (second.astype(first.dtype) << (config.acc.width - bits)) >> (config.acc.width - bits)
        return np.where(amount >= 0, first >> np.maximum(amount, 0), first << np.maximum(-amount, 0)).astype(
            first.dtype
        )
    return first  # MUL leaves the accumulator alone (HLS)


def stored_resets(program: Elaborated, sequence: Array) -> frozenset[int]:
    """Reset GEMMs whose result a STORE reads: only then does the out memory's odd value matter."""
    resets = [isinstance(item, GemmKernel) and item.reset for item in program.kernels]
    if not any(resets):
        return frozenset()
    writer = np.full(program.config.out.depth, -1, np.int64)
    stored: set[int] = set()
    kernel, opcode = program.kernel.tolist(), program.stream.opcode.tolist()
    tile = program.config.out.tile_bytes
    for step in sequence.tolist():
        if kernel[step] >= 0:
            writer[program.kernels[kernel[step]].written] = step if resets[kernel[step]] else -1
        elif opcode[step] == Opcode.STORE and program.transfers[step, 1]:
            low = int(program.stream.mem.sram_base[step])
            tiles = int(program.transfers[step, 1] * program.transfers[step, 2]) // tile
            stored.update(writer[low : low + tiles].tolist())
    return frozenset(stored - {-1})
