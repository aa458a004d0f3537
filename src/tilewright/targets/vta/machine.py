"""Values: the data memories of VTA, and what each instruction does to them, for many samples at once.

Meanings follow the HLS design. Input and weight memories are held as floats in which their products are
exact, so a GEMM instruction is a gather and a matrix product (see kernel.GemmKernel.products).
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array, exact_matmul, float_for
from tilewright.sim.dram import Dram
from tilewright.sim.steps import BASE, LENGTH, SPACE
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.elaborate import Elaborated
from tilewright.targets.vta.isa.fields import AluOp, Memory, Opcode
from tilewright.targets.vta.isa.tiles import pack_values, unpack_values
from tilewright.targets.vta.kernel import INP, UOP, WGT, AluKernel, GemmKernel


class Machine:
    """The state of one VTA running `samples` samples in step.

    inp (S, depth, batch, block), wgt (1 or S, depth, block_in, block_out), acc (S, depth, batch, block_out).
    """

    def __init__(self, config: Config, dram: Dram, samples: int) -> None:
        self.config, self.dram, self.samples = config, dram, samples
        self._limits = 1 << (config.inp.width - 1), 1 << (config.wgt.width - 1)
        exact = float_for(*self._limits)
        self.inp = np.zeros((samples, config.inp.depth + 1, *config.inp.shape), exact)  # the last: kernel.NO_TILE
        self.wgt = np.zeros((1, config.wgt.depth, *config.wgt.shape), exact)
        self.acc = np.zeros((samples, config.acc.depth, *config.acc.shape), f"int{config.acc.width}")
        self.out = np.zeros((samples, config.out.depth, *config.out.shape), np.int32)
        # The out memory mirrors the accumulator wherever a GEMM or ALU wrote last; it differs after LOAD ACC.
        self._mirrors = np.ones(config.out.depth, np.bool_)

    def run(self, program: Elaborated, sequence: Array) -> None:
        """Execute the steps of `sequence` in that order.

        Accumulating GEMMs are put off until something touches their tiles: sums commute, and a few large
        products take less time than many small ones.
        """
        opcode = program.stream.opcode.tolist()
        kernel = program.kernel.tolist()
        stored = stored_resets(program, sequence)
        pending = _Pending()
        for step in sequence.tolist():
            index = kernel[step]
            if index >= 0 and program.accumulates[index]:
                pending.add(index, program.kernels[index])
                continue
            if pending.kernels and pending.conflicts(self._touched(program, step)):
                self._accumulate(program.fused(tuple(pending.kernels)))
                pending = _Pending()
            if index >= 0:
                item = program.kernels[index]
                if isinstance(item, AluKernel):
                    self._alu(item)
                else:
                    self._reset(item, step in stored)
            elif opcode[step] == Opcode.LOAD:
                self._load(program, step)
            elif opcode[step] == Opcode.STORE:
                self._store(program, step)
        if pending.kernels:
            self._accumulate(program.fused(tuple(pending.kernels)))

    def _touched(self, program: Elaborated, step: int) -> tuple[int, int, int]:
        """Memory (0 acc, 1 inp, 2 wgt), and the tiles between which a step's own lie; resets may read all."""
        index = int(program.kernel[step])
        if index >= 0:
            item = program.kernels[index]
            return (0, *item.touched) if isinstance(item, AluKernel) else (0, *item.spans[0])
        rows = program.table.footprints.of_step(int(program.table.footprint[step]))
        if not len(rows) or rows[0, SPACE] == UOP:
            return 0, 0, 0
        memory = {INP: 1, WGT: 2}.get(int(rows[0, SPACE]), 0)
        return memory, int(rows[0, BASE]), int(rows[0, BASE] + rows[0, LENGTH])

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
            second = self.acc.dtype.type(kernel.imm) if kernel.imm is not None else self.acc[:, src]
            self.acc[:, dst] = operate(kernel.op, first, second, self.config)
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
            values = np.where(self._mirrors[low:high, None, None], values, self.out[:, low:high])
        window = self.dram.window(address, rows, row_bytes, stride, f"instruction {step}")
        if chip.width == 8:  # the usual case, in one pass: an unsafe cast keeps the low byte
            np.copyto(window.view(np.int8), values.reshape(self.samples, rows, row_bytes), casting="unsafe")
        else:
            packed = pack_values(values.reshape(self.samples, -1), chip.width)
            window[:] = packed.reshape(self.samples, rows, row_bytes)


class _Pending:
    """Accumulating GEMMs put off, and the tiles of acc, inp and wgt that they touch."""

    def __init__(self) -> None:
        self.kernels: list[int] = []
        self._low = [1 << 62] * 3
        self._high = [0] * 3

    def add(self, index: int, kernel: GemmKernel | AluKernel) -> None:
        assert isinstance(kernel, GemmKernel)
        self.kernels.append(index)
        for memory, (low, high) in enumerate(kernel.spans):
            self._low[memory] = min(self._low[memory], low)
            self._high[memory] = max(self._high[memory], high)

    def conflicts(self, touched: tuple[int, int, int]) -> bool:
        memory, low, high = touched
        return low < self._high[memory] and high > self._low[memory]


def operate(op: AluOp, first: Array, second: Array, config: Config) -> Array:
    """op(first, second) on accumulator values of their dtype, wrapping; `second` may be a scalar."""
    if op == AluOp.MIN:
        return np.minimum(first, second)
    if op == AluOp.MAX:
        return np.maximum(first, second)
    if op == AluOp.ADD:
        return first + second
    if op == AluOp.SHR:
        # The amount is the low LOG_ACC_WIDTH bits, signed: negative shifts left.
        unused = first.dtype.type(config.acc.width - config.LOG_ACC_WIDTH)
        amount = np.right_shift(np.left_shift(second, unused), unused)
        if amount.ndim == 0:
            return first >> amount if amount >= 0 else first << -amount
        return np.where(amount >= 0, first >> np.maximum(amount, 0), first << np.maximum(-amount, 0))
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
            writers = writer[low : low + int(program.transfers[step, 1] * program.transfers[step, 2]) // tile]
            if writers.max(initial=-1) >= 0:
                stored.update(writers[writers >= 0].tolist())
    return frozenset(stored)
