"""Values: the data memories of VTA, and what each instruction does to them, for many samples at once.

Meanings follow the config's semantics. Input and weight memories are held as floats in which their products are
exact, so a GEMM instruction is a gather and a matrix product (see pattern.Pattern.products).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.array import Array, exact_matmul, float_for
from tilewright.graph.arithmetic import (
    INT32_MAX,
    INT32_MIN,
    round_half_even,
    rounding_divide_by_pot,
    saturating_rounding_doubling_high_mul,
    wrap_int32,
)
from tilewright.sim.dram import Dram
from tilewright.targets.vta import loop
from tilewright.targets.vta.actions import Action
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import AluOp, Memory
from tilewright.targets.vta.isa.tiles import pack_values, unpack_values
from tilewright.targets.vta.kernel import FACTOR_TILES, AluKernel, GemmKernel, Loop
from tilewright.targets.vta.moves import Move
from tilewright.targets.vta.pattern import Pattern, Tiles, behind
from tilewright.targets.vta.semantics import SEMANTICS
from tilewright.targets.vta.stretch import ARRAYS_US, Stretch


class Machine:
    """The state of one VTA running `samples` samples in step.

    inp (S, depth, batch, block), wgt (1 or S, depth, block_in, block_out), acc (S, depth, batch, block_out),
    par (1 or S, depth, 1, block_out).
    """

    def __init__(self, config: Config, dram: Dram, samples: int) -> None:
        self.config, self.dram, self.samples = config, dram, samples
        self.rules = SEMANTICS[config.semantics]
        self._limits = 1 << (config.inp.width - 1), 1 << (config.wgt.width - 1)
        exact = float_for(*self._limits)
        self.inp = np.zeros((samples, config.inp.depth + 1, *config.inp.shape), exact)  # the last: pattern.NO_TILE
        self.wgt = np.zeros((1, config.wgt.depth, *config.wgt.shape), exact)
        self.acc = np.zeros((samples, config.acc.depth, *config.acc.shape), f"int{config.acc.width}")
        self.out = np.zeros((samples, config.out.depth, *config.out.shape), np.int32)
        self.par = np.zeros((1, config.par.depth, *config.par.shape), np.int32)
        # The out memory mirrors the accumulator wherever a GEMM or ALU wrote last; it differs after LOAD ACC.
        self._mirrors = np.ones(config.out.depth, np.bool_)
        self._differs = False  # whether any tile may differ: usually none does

    def run(self, plan: Sequence[Action | Stretch]) -> None:
        """Execute the plan in order."""
        for part in plan:
            if isinstance(part, Action):
                self._act(part)
            elif loop.run.due(ARRAYS_US * len(part.numbers)):
                self._stretch(part)
            else:
                self.run(part.actions)

    def _act(self, action: Action) -> None:
        work = action.work
        if isinstance(work, Move):
            (self._store if work.memory == Memory.OUT else self._load)(work, action.where)
        elif isinstance(work, AluKernel):
            (self._alu if work.factors is None else self._requantise)(work)
        elif work.reset:
            self._reset(work, action.stored)
        else:
            self._accumulate(work)

    def _stretch(self, stretch: Stretch) -> None:
        """The steps in one compiled loop, sample by sample."""
        table, steps, shifts = stretch.table, stretch.table.steps, self._shifts()
        stores, loads_wgt = steps[:, 0] == loop.STORE, (steps[:, 0] == loop.LOAD) & (steps[:, 2] == loop.TO_WGT)
        memory, places = self.dram.pool(self.samples, table.address, table.end, stores)
        if len(self.wgt) < self.samples and places[loads_wgt, 1].any():
            self.wgt = np.repeat(self.wgt, self.samples, axis=0)
        loaded = steps[loads_wgt]
        end = loaded[:, 3] + loaded[:, 6] * loaded[:, 7]
        part = slice(loaded[:, 3].min(initial=self.config.wgt.depth), end.max(initial=0))
        wgt, mirrors = self.wgt[:, part].copy(), self._mirrors  # each sample begins with what there is now
        for sample in range(self.samples):
            own, self._mirrors = min(sample, len(self.wgt) - 1), mirrors.copy()
            self.wgt[own, part] = wgt[own]
            chips = self.inp[sample], self.wgt[own], self.acc[sample], self.out[sample]
            inp, weights, acc, out = (chip.reshape(-1, self.config.block) for chip in chips)
            loop.run(
                steps,
                places[:, 0] + sample * places[:, 1],
                table.kernels,
                table.tiles,
                shifts,
                memory,
                inp,
                weights,
                acc,
                out,
                self._mirrors,
                self.rules.out_memory,
            )
        self._differs = not self._mirrors.all()

    def _shifts(self) -> Array:
        """int64 [2, 2n]: SHR's amount for the low log2(n) bits of a second operand, then for negative ones; left < 0.

        Row 1 is for a negative immediate field.
        """
        kind = np.dtype(np.int32) if self.rules.wide_alu else self.acc.dtype
        bits = 8 * kind.itemsize
        operand = np.concatenate([np.arange(bits), np.arange(-bits, 0)]).astype(kind)
        none = Pattern(*np.zeros((3, 0), np.int64))
        rows = []
        for negative in (False, True):
            kernel = AluKernel(Loop(0, 0, 0, 0, (0, 0), (0, 0)), AluOp.SHR, None, none, negative_field=negative)
            left, amount = shift_amount(kernel, operand, self.config)
            rows.append(np.where(left, -amount.astype(np.int64), amount))
        return np.array(rows, np.int64)

    def _reset(self, kernel: GemmKernel, is_stored: bool) -> None:
        writes_out = self.rules.reset_writes_out and self.config.gemm_writes_out
        if not writes_out:
            self._keep_out(kernel.written)
        elif is_stored:  # the out memory gets what each destination's last micro-op would have accumulated
            last, again = kernel.last_writes
            before = self.acc.copy()
            self.acc[:, again] = 0
            self._accumulate(last)
            self.out[:, kernel.written] = self.acc[:, kernel.written]
            self.acc = before
        self.acc[:, kernel.written] = 0
        if is_stored or not writes_out:
            self._mirrors[kernel.written], self._differs = not self.rules.out_memory, self.rules.out_memory
        else:
            self._mirror(kernel.written)

    def _mirror(self, tiles: Tiles) -> None:
        """The out memory has just been written with the accumulator."""
        if self._differs:
            self._mirrors[tiles] = True

    def _accumulate(self, kernel: GemmKernel) -> None:
        samples, block, batch = self.samples, self.config.block, self.config.batch
        if not self.config.gemm_writes_out:
            self._keep_out(kernel.written)
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
        if self.config.gemm_writes_out:
            self._mirror(kernel.written)

    def _requantise(self, kernel: AluKernel) -> None:
        for dst, bias, factors in kernel.requantised:
            tiles = (self.par[:, behind(factors, by)] for by in range(FACTOR_TILES))
            rule = requantise_float if self.config.alu == "float" else requantise
            self.acc[:, dst] = rule(self.acc[:, dst], self.par[:, bias], *tiles)
        self._mirror(kernel.written)

    def _alu(self, kernel: AluKernel) -> None:
        for dst, src in kernel.waves:
            first = self.acc[:, src if kernel.first_is_src else dst]
            second = self.acc[:, src] if kernel.imm is None else np.array(kernel.imm, np.int32)
            if self.rules.wide_alu:
                first, second = first.astype(np.int32, copy=False), second.astype(np.int32, copy=False)
            else:
                second = second.astype(self.acc.dtype, copy=False)
            in_place = isinstance(dst, slice) and not kernel.first_is_src and first.dtype == self.acc.dtype
            result = operate(kernel, first, second, self.config, first if in_place else None)
            if result is not first:
                self.acc[:, dst] = result
        self._mirror(kernel.written)

    def _load(self, move: Move, where: str) -> None:
        chip = self.config.sram(Memory(move.memory))
        tiles = None
        if move.row_bytes and move.rows:
            raw = self.dram.window(move.address, move.rows, move.row_bytes, move.stride, where)
            width = chip.width // 4 if move.memory == Memory.ACC_8BIT else chip.width
            tiles = unpack_values(raw, width).reshape(raw.shape[0], move.rows, move.columns, *chip.shape)
        part = slice(move.base, move.end)
        array: Array
        if move.memory == Memory.WGT:
            if tiles is not None and tiles.shape[0] > self.wgt.shape[0]:
                self.wgt = np.repeat(self.wgt, self.samples, axis=0)
            array, tiles = self.wgt, None if tiles is None else tiles.swapaxes(3, 4)
        elif move.memory == Memory.PAR:
            if tiles is not None and tiles.shape[0] > self.par.shape[0]:
                self.par = np.repeat(self.par, self.samples, axis=0)
            array = self.par
        elif move.memory == Memory.INP:
            array = self.inp
        else:
            array = self.acc
            self._keep_out(part)
        target = array[:, part].reshape(array.shape[0], move.height, move.width, *chip.shape)
        if move.height > move.rows or move.width > move.columns:
            target[:] = 0
        if tiles is not None:
            target[:, move.top : move.top + move.rows, move.left : move.left + move.columns] = tiles

    def _keep_out(self, tiles: Tiles) -> None:
        """The accumulator is about to change and the out memory is not: it no longer mirrors."""
        if not self.rules.out_memory:
            return
        slots = np.arange(self.config.acc.depth)[tiles]
        slots = slots[self._mirrors[slots]]
        self.out[:, slots] = self.acc[:, slots]
        self._mirrors[slots], self._differs = False, True

    def _store(self, move: Move, where: str) -> None:
        if not move.row_bytes or not move.rows:
            return
        values = self.acc[:, move.base : move.end]
        if self._differs:
            mirrors = self._mirrors[move.base : move.end, None, None]
            values = np.where(mirrors, values, self.out[:, move.base : move.end])
        extent = (move.rows, move.row_bytes)
        window = self.dram.writable(self.samples, move.address, *extent, move.stride, where)
        width = self.config.out.width
        if width == 8:  # the usual case, in one pass: an unsafe cast keeps the low byte
            np.copyto(window.view(np.int8), values.reshape(self.samples, *extent), casting="unsafe")
        else:
            window[:] = pack_values(values.reshape(self.samples, -1), width).reshape(self.samples, *extent)


def requantise(acc: Array, bias: Array, multiplier: Array, scaling: Array, bounds: Array) -> Array:
    """REQ: acc int32 (S, tiles, batch, block), the others int32 (1 or S, tiles, 1, block).

    TFLite's double rounding of acc + bias, which wraps. `scaling` holds, from the low byte, the shifts to the left
    (before the product) and to the right (0 to 31), then the zero point (16 bits, signed); `bounds` the smallest and
    the largest result (16 bits each, signed), no bounds where the smallest is above the largest: those of 32 bits.
    """
    left, right = ((scaling >> 8 * byte & 31).astype(np.int64) for byte in range(2))
    total = wrap_int32((acc + bias).astype(np.int64) << left)
    scaled = rounding_divide_by_pot(saturating_rounding_doubling_high_mul(total, multiplier.astype(np.int64)), right)
    return _bounded(scaled, scaling, bounds)


def requantise_float(acc: Array, bias: Array, multiplier: Array, scaling: Array, bounds: Array) -> Array:
    """REQ of a "float" ALU: the multiplier is a float32, its product with float32(acc + bias) rounded half to even."""
    scaled = round_half_even((acc + bias).astype(np.float32) * multiplier.view(np.float32))
    return _bounded(scaled, scaling, bounds)


def _bounded(scaled: Array, scaling: Array, bounds: Array) -> Array:
    scaled += scaling >> 16
    low, high = bounds << 16 >> 16, bounds >> 16
    bounded = low <= high
    low, high = np.where(bounded, low, INT32_MIN), np.where(bounded, high, INT32_MAX)
    return np.clip(scaled, low, high, out=scaled)


def operate(kernel: AluKernel, first: Array, second: Array, config: Config, out: Array | None = None) -> Array:
    """The operation on accumulator values of their dtype, wrapping; `second` is a scalar in the immediate form.

    `out` may be `first` itself, to be overwritten.
    """
    if kernel.op == AluOp.MIN:
        return np.minimum(first, second, out=out)
    if kernel.op == AluOp.MAX:
        return np.maximum(first, second, out=out)
    if kernel.op == AluOp.ADD:
        return np.add(first, second, out=out)
    if kernel.op == AluOp.SHR:
        left, amount = shift_amount(kernel, second, config)
        if left.ndim == 0:
            return (np.left_shift if left else np.right_shift)(first, amount, out=out)
        return np.where(left, first << amount, first >> amount)
    if kernel.op == AluOp.MULH:
        factor = second.astype(np.int64) << (0 if kernel.imm is None else 16)  # an immediate is the upper half
        return saturating_rounding_doubling_high_mul(first.astype(np.int64), factor)
    if kernel.op == AluOp.RSHR:
        amount = np.abs(second) & 31
        return np.where(second < 0, first << amount, rounding_divide_by_pot(first.astype(np.int64), amount))
    return np.multiply(first, second, out=out) if SEMANTICS[config.semantics].multiplies else first


def shift_amount(kernel: AluKernel, operand: Array, config: Config) -> tuple[Array, Array]:
    """Whether SHR shifts to the left, and by how many bits (0 to the operand's width - 1)."""
    rule, kind = SEMANTICS[config.semantics].shift, operand.dtype.type
    low = kind(8 * operand.dtype.itemsize - 1)
    if rule == "low_unsigned":
        return np.full(operand.shape, kernel.negative_field), (-operand if kernel.negative_field else operand) & low
    if rule == "low_signed":
        unused = kind(config.acc.width - config.LOG_ACC_WIDTH)
        operand = np.right_shift(np.left_shift(operand, unused), unused)
    return operand < 0, np.abs(operand) & low  # a C shift by 32 or more is undefined; x86 takes it modulo 32
