"""Values: the data memories of VTA, and what each instruction does to them, for many samples at once.

Meanings follow the config's semantics. Input and weight memories are held as floats in which their products are
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
from tilewright.targets.vta.kernel import INP, UOP, WGT, AluKernel, GemmKernel, Tiles
from tilewright.targets.vta.moves import NOTHING
from tilewright.targets.vta.semantics import SEMANTICS


class Machine:
    """The state of one VTA running `samples` samples in step.

    inp (S, depth, batch, block), wgt (1 or S, depth, block_in, block_out), acc (S, depth, batch, block_out).
    """

    def __init__(self, config: Config, dram: Dram, samples: int) -> None:
        self.config, self.dram, self.samples = config, dram, samples
        self.rules = SEMANTICS[config.semantics]
        self._limits = 1 << (config.inp.width - 1), 1 << (config.wgt.width - 1)
        exact = float_for(*self._limits)
        self.inp = np.zeros((samples, config.inp.depth + 1, *config.inp.shape), exact)  # the last: kernel.NO_TILE
        self.wgt = np.zeros((1, config.wgt.depth, *config.wgt.shape), exact)
        self.acc = np.zeros((samples, config.acc.depth, *config.acc.shape), f"int{config.acc.width}")
        self.out = np.zeros((samples, config.out.depth, *config.out.shape), np.int32)
        # The out memory mirrors the accumulator wherever a GEMM or ALU wrote last; it differs after LOAD ACC.
        self._mirrors = np.ones(config.out.depth, np.bool_)

    def run(self, program: Elaborated, sequence: Array, stored: frozenset[int]) -> None:
        """Execute the steps of `sequence` in that order; `stored` are the reset GEMMs whose out values matter.

        Accumulating GEMMs are put off until something touches their tiles: sums commute, and a few large
        products take less time than many small ones.
        """
        opcode = program.stream.opcode.tolist()
        kernel = program.kernel.tolist()
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
        """Memory (0 acc, 1 inp, 2 wgt), and the tiles between which those that a step changes or stores lie."""
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
        if not self.rules.reset_writes_out:
            self._keep_out(kernel.written)
        elif is_stored:  # the out memory gets what each destination's last micro-op would have accumulated
            last, again = kernel.last_writes
            before = self.acc.copy()
            self.acc[:, again] = 0
            self._accumulate(last)
            self.out[:, kernel.written] = self.acc[:, kernel.written]
            self.acc = before
        self.acc[:, kernel.written] = 0
        self._mirrors[kernel.written] = self.rules.reset_writes_out and not is_stored

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
            first = self.acc[:, src if kernel.first_is_src else dst]
            second = np.array(kernel.imm).astype(self.acc.dtype) if kernel.imm is not None else self.acc[:, src]
            self.acc[:, dst] = operate(kernel, first, second, self.config)
        self._mirrors[kernel.written] = True

    def _load(self, program: Elaborated, step: int) -> None:
        moved, config = program.moves, self.config
        if moved.memory[step] in (NOTHING, Memory.UOP):
            return  # micro-ops are control state
        memory = Memory(int(moved.memory[step]))
        chip = config.sram(memory)
        base, rows, columns = int(moved.base[step]), int(moved.rows[step]), int(moved.columns[step])
        top, bottom, left, right = (int(c[step]) for c in (moved.top, moved.bottom, moved.left, moved.right))
        tiles = None
        if moved.transfers[step]:
            place = (int(moved.address[step]), rows, int(moved.row_bytes[step]), int(moved.stride[step]))
            raw = self.dram.window(*place, f"instruction {step}")
            width = chip.width // 4 if memory == Memory.ACC_8BIT else chip.width
            tiles = unpack_values(raw, width).reshape(raw.shape[0], rows, columns, *chip.shape)
        height, breadth = top + rows + bottom, left + columns + right
        part = slice(base, base + height * breadth)
        if memory == Memory.WGT:
            if tiles is not None and tiles.shape[0] > self.wgt.shape[0]:
                self.wgt = np.repeat(self.wgt, self.samples, axis=0)
            array, tiles = self.wgt, None if tiles is None else tiles.swapaxes(3, 4)
        elif memory == Memory.INP:
            array = self.inp
        else:
            array = self.acc
            self._keep_out(part)
        target = array[:, part].reshape(array.shape[0], height, breadth, *chip.shape)
        if top or bottom or left or right:
            target[:] = 0
        if tiles is not None:
            target[:, top : top + rows, left : left + columns] = tiles

    def _keep_out(self, tiles: Tiles) -> None:
        """The accumulator is about to change and the out memory is not: it no longer mirrors."""
        if not self.rules.out_memory:
            return
        slots = np.arange(self.config.acc.depth)[tiles]
        slots = slots[self._mirrors[slots]]
        self.out[:, slots] = self.acc[:, slots]
        self._mirrors[slots] = False

    def _store(self, program: Elaborated, step: int) -> None:
        moved, chip = program.moves, self.config.out
        if not moved.transfers[step]:
            return
        rows, row_bytes = int(moved.rows[step]), int(moved.row_bytes[step])
        low = int(moved.base[step])
        high = low + int(moved.tiles[step])
        values = self.acc[:, low:high]
        if not self._mirrors[low:high].all():
            values = np.where(self._mirrors[low:high, None, None], values, self.out[:, low:high])
        place = (int(moved.address[step]), rows, row_bytes, int(moved.stride[step]))
        window = self.dram.writable(self.samples, *place, f"instruction {step}")
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


def operate(kernel: AluKernel, first: Array, second: Array, config: Config) -> Array:
    """The operation on accumulator values of their dtype, wrapping; `second` is a scalar in the immediate form."""
    if kernel.op == AluOp.MIN:
        return np.minimum(first, second)
    if kernel.op == AluOp.MAX:
        return np.maximum(first, second)
    if kernel.op == AluOp.ADD:
        return first + second
    if kernel.op == AluOp.SHR:
        left, amount = shift_amount(kernel, second, config)
        if left.ndim == 0:
            return first << amount if left else first >> amount
        return np.where(left, first << amount, first >> amount)
    return first * second if SEMANTICS[config.semantics].multiplies else first


def shift_amount(kernel: AluKernel, operand: Array, config: Config) -> tuple[Array, Array]:
    """Whether SHR shifts to the left, and by how many bits (0 to the accumulator's width - 1)."""
    rule, kind = SEMANTICS[config.semantics].shift, operand.dtype.type
    low = kind(config.acc.width - 1)
    if rule == "low_unsigned":
        left = np.full(operand.shape, kernel.imm is not None and kernel.imm < 0)
        return left, operand & low
    if rule == "low_signed":
        unused = kind(config.acc.width - config.LOG_ACC_WIDTH)
        operand = np.right_shift(np.left_shift(operand, unused), unused)
    return operand < 0, np.abs(operand) & low  # a C shift by 32 or more is undefined; x86 takes it modulo 32


def stored_resets(program: Elaborated, sequence: Array) -> frozenset[int]:
    """Reset GEMMs whose result a STORE reads: only then does the out memory's odd value matter."""
    resets = [isinstance(item, GemmKernel) and item.reset for item in program.kernels]
    if not any(resets) or not SEMANTICS[program.config.semantics].reset_writes_out:
        return frozenset()
    writer = np.full(program.config.out.depth, -1, np.int64)
    stored: set[int] = set()
    kernel, opcode = program.kernel.tolist(), program.stream.opcode.tolist()
    tiles = program.moves.tiles.tolist()
    for step in sequence.tolist():
        if kernel[step] >= 0:
            writer[program.kernels[kernel[step]].written] = step if resets[kernel[step]] else -1
        elif opcode[step] == Opcode.STORE:
            low = int(program.moves.base[step])
            writers = writer[low : low + tiles[step]]
            if writers.max(initial=-1) >= 0:
                stored.update(writers[writers >= 0].tolist())
    return frozenset(stored)
