"""The data memories of VTA, and the effect of each instruction on them, for many samples at once.

Instructions follow the config's semantics. A GEMM instruction runs as a gather and an exact matrix product in floating
point (see pattern.Pattern.products), or in the compiled loop (see loop).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tilewright.array import Array, exact_matmul
from tilewright.errors import MachineError
from tilewright.program.launch_image import Dram
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa import alu
from tilewright.targets.vta.isa.fields import Memory
from tilewright.targets.vta.isa.own import FIRST_OWN
from tilewright.targets.vta.isa.stream import pack_values, unpack_values
from tilewright.targets.vta.steps.micro_kernel import FACTOR_TILES, Kernel
from tilewright.targets.vta.steps.moves import Move
from tilewright.targets.vta.steps.pattern import Tiles, in_a_row, shifted
from tilewright.targets.vta.values import loop, tables
from tilewright.targets.vta.values.actions import Action, StepBatch
from tilewright.targets.vta.values.vectors import BIAS, GROUP

#: Maximum rows of a product that is computed column by column. For so few rows, rearranging the weights costs more.
FEW_ROWS = 4


class Machine:
    """The state of one VTA for each of S = `samples` samples, which run in lockstep.

    inp is (S, depth, batch, block), wgt (1 or S, depth, *interleaved), acc (S, depth, batch, block_out), par (1 or S,
    depth, 1, block_out). The first axis is 1 while all samples share the same values.
    """

    def __init__(self, config: Config, dram: Dram, samples: int) -> None:
        self.config = config
        self.dram = dram
        self.samples = samples
        self.rules = config.rules
        self._limits = 1 << (config.inp.width - 1), 1 << (config.wgt.width - 1)
        kind = np.dtype(f"int{max(8, config.inp.width, config.wgt.width)}")
        # The extra last tile of inp stays zero. The index pattern.NO_TILE, -1, selects this tile.
        self.inp = np.zeros((samples, config.inp.depth + 1, *config.inp.shape), kind)
        group = min(GROUP, config.block)
        self.wgt = np.zeros((1, config.wgt.depth, config.block // group, config.block, group), kind)
        self.acc = np.zeros((samples, config.acc.depth, *config.acc.shape), f"int{config.acc.width}")
        self.out = np.zeros((samples, config.out.depth, *config.out.shape), np.int32)
        self.par = np.zeros((1, config.par.depth, *config.par.shape), np.int32)
        # For each tile, whether out equals acc because GEMM or the ALU wrote both. The tile in `out` is then not kept
        # up to date. After LOAD ACC, out and acc differ.
        self._mirrors = np.ones(config.out.depth, np.bool_)
        self._differs = False  # whether any tile may differ, which is rare

    def stored_tiles(self) -> Array:
        """Return the values of all tiles as STORE reads them, in the type of acc: (S, depth, batch, block_out)."""
        return np.where(self._mirrors[:, None, None], self.acc, self.out) if self._differs else self.acc

    def run(self, plan: Sequence[Action | StepBatch]) -> None:
        for part in plan:
            if isinstance(part, Action):
                self._act(part)
            elif loop.run.due(part.microseconds):
                self._run_batch(part)
            else:
                self.run(part.actions)

    def _act(self, action: Action) -> None:
        work = action.work
        if isinstance(work, Move):
            (self._store if work.memory == Memory.OUT else self._load)(work, action.where)
        elif work.is_alu:
            (self._alu if work.factors is None else self._requantise)(work)
        elif work.reset:
            self._reset(work, action.stored)
        else:
            self._accumulate(work)

    def _run_batch(self, batch: StepBatch) -> None:
        table = batch.table
        steps = batch.table.steps
        shifts = self._shifts()
        own_steps = tables.Expressions.of(self.config)
        stores = steps.kind == loop.STORE
        loads_wgt = (steps.kind == loop.LOAD) & (steps.to == loop.TO_WGT)
        # `memory` has the bytes of each step. places[:, 1] is the distance between two samples, or 0 if samples share
        # bytes.
        memory, places = self.dram.span(self.samples, table.address, table.end, stores)
        if len(self.wgt) < self.samples and places[loads_wgt, 1].any():
            self.wgt = np.repeat(self.wgt, self.samples, axis=0)
        base = steps.base[loads_wgt]
        end = base + (steps.height * steps.width)[loads_wgt]
        part = slice(base.min(initial=self.config.wgt.depth), end.max(initial=0))
        wgt = self.wgt[:, part].copy()  # samples may share wgt, which the batch of the first sample changes
        mirrors = self._mirrors  # each sample starts from the current state
        for sample in range(self.samples):
            copy = min(sample, len(self.wgt) - 1)
            self._mirrors = mirrors.copy()
            self.wgt[copy, part] = wgt[copy]
            chips = self.inp[sample], self.wgt[copy], self.acc[sample], self.out[sample]
            inp, weights, acc, out = (chip.reshape(-1) for chip in chips)
            at = places[:, 0] + sample * places[:, 1]
            # The vector instructions multiply unsigned by signed bytes: inp has 128 added while the loop runs.
            biased = inp.view(np.uint8) ^ BIAS if loop.narrow(self.config) else inp
            held = loop.Chips(memory, at, biased, weights, acc, out, self._mirrors)
            loop.run.interruptible(
                steps, table.kernels, table.tiles, shifts, own_steps, held, loop.Shape.of(self.config)
            )
            if biased is not inp:
                inp.view(np.uint8)[:] = biased ^ BIAS
        self._differs = not self._mirrors.all()

    def _shifts(self) -> Array:
        """Return the shift amounts of SHR, int64 [2, 2n]; negative amounts shift left.

        Row 1 is for a negative immediate field, row 0 for other fields.
        """
        kind = np.dtype(np.int32) if self.rules.wide_alu else self.acc.dtype
        bits = 8 * kind.itemsize
        # The first n columns are for a second operand of 0 or more, and the last n columns for a negative second
        # operand. In both halves, the low log2(n) bits of the operand are the index.
        operand = np.concatenate([np.arange(bits), np.arange(-bits, 0)]).astype(kind)
        forms = (alu.Form(self.rules, self.config.acc.width, negative_field=negative) for negative in (False, True))
        rows = (alu.shift_amount(operand, form) for form in forms)
        return np.array([np.where(left, -amount.astype(np.int64), amount) for left, amount in rows], np.int64)

    def _reset(self, kernel: Kernel, is_stored: bool) -> None:
        writes_out = self.rules.reset_writes_out and self.config.gemm_writes_out
        if not writes_out:
            self._keep_out(kernel.written)
        elif is_stored:  # a STORE reads the reset's sum
            # The out memory gets, for each destination, the sum that the last micro-op would have accumulated. If
            # several micro-ops write a tile, an earlier micro-op has already cleared the tile.
            last, again = kernel.last_writes
            before = self.acc.copy()
            self.acc[:, again] = 0
            self._accumulate(last)
            self.out[:, kernel.written] = self.acc[:, kernel.written]
            self.acc = before
        self.acc[:, kernel.written] = 0
        if is_stored or not writes_out:
            self._differs = self.rules.out_memory
            self._mirrors[kernel.written] = not self.rules.out_memory
        else:
            self._mirror(kernel.written)

    def _mirror(self, tiles: Tiles) -> None:
        """Record that an instruction has written the same values to `tiles` of the out memory and of acc."""
        if self._differs:
            self._mirrors[tiles] = True

    def _accumulate(self, kernel: Kernel) -> None:
        samples = self.samples
        block = self.config.block
        batch = self.config.batch
        if not self.config.gemm_writes_out:
            self._keep_out(kernel.written)
        for src, wgt, dst in kernel.products:
            places, terms = src.shape
            columns = wgt.shape[0]
            left = self.inp.take(src.reshape(-1), axis=1).reshape(samples, places, terms, batch, block)
            if batch > 1:  # each row of a tile is a row of the product
                left = left.swapaxes(2, 3)
            # The rows are samples, places and batch (samples are a separate axis if their weights differ). The columns
            # are terms and block.
            copies = self.wgt.shape[0]
            left = left.reshape(copies, -1, terms * block)
            if left.shape[1] <= FEW_ROWS:
                product = self._columns(left, wgt)
            else:
                right = self.wgt.take(wgt.reshape(-1), axis=1).reshape(copies, columns, terms, *self.wgt.shape[2:])
                right = right.transpose(0, 2, 3, 5, 1, 4).reshape(copies, terms * block, columns * block)
                product = exact_matmul(left, right, *self._limits)
            product = product.reshape(samples, places, batch, columns, block).astype(self.acc.dtype, copy=False)
            for column, tiles in enumerate(dst):
                self.acc[:, tiles] += product[:, :, :, column]
        if self.config.gemm_writes_out:
            self._mirror(kernel.written)

    def _columns(self, left: Array, wgt: Array) -> Array:
        """Multiply `left` (1 or S, rows, terms * block) by weight tiles `wgt`, one column of tiles at a time."""
        block = self.config.block
        copies = len(self.wgt)
        columns, terms = wgt.shape
        tiles = in_a_row(wgt.reshape(-1))
        right = matrices(self.wgt[:, tiles]).reshape(copies, columns, terms * block, block)
        return exact_matmul(left[:, None], right, *self._limits).swapaxes(1, 2)

    def _requantise(self, kernel: Kernel) -> None:
        for dst, bias, factors in kernel.requantised:
            tiles = (self.par[:, shifted(factors, by)] for by in range(FACTOR_TILES))
            rule = alu.requantise_float if self.config.alu == "float" else alu.requantise
            self.acc[:, dst] = rule(self.acc[:, dst], self.par[:, bias], *tiles)
        self._mirror(kernel.written)

    def _alu(self, kernel: Kernel) -> None:
        form = alu.Form(self.rules, self.config.acc.width, kernel.imm is not None, kernel.field < 0)
        operation = self.config.own_alu[kernel.op - FIRST_OWN] if kernel.op >= FIRST_OWN else None
        for dst, source in self._sources(kernel):
            first = source if kernel.first_is_src else self.acc[:, dst]
            second = source if kernel.imm is None else np.array(kernel.imm, np.int32)
            if self.rules.wide_alu:
                first, second = first.astype(np.int32, copy=False), second.astype(np.int32, copy=False)
            else:
                second = second.astype(self.acc.dtype, copy=False)
            if operation:
                self.acc[:, dst] = operation.on(first, second, kernel.field)
                continue
            # A slice is a view of acc, so the result can be computed in place, without a copy.
            in_place = isinstance(dst, slice) and not kernel.first_is_src and first.dtype == self.acc.dtype
            result = alu.operate(kernel.op, first, second, form, first if in_place else None)
            if result is not first:
                self.acc[:, dst] = result
        self._mirror(kernel.written)

    def _sources(self, kernel: Kernel) -> Iterator[tuple[Tiles, Array]]:
        """Yield the dst tiles of each wave of an ALU operation, and the values of acc[src], in execution order."""
        if not (self.rules.reads_stale and kernel.follows.any()):
            for dst, src in kernel.waves:
                yield dst, self.acc[:, src] if kernel.reads_source else self.acc[:, :0]
            return
        before = self.acc[:, :0]  # the last tile that was written, as it was before the write
        for dst, src, follows in zip(kernel.dst.tolist(), kernel.src.tolist(), kernel.follows.tolist(), strict=True):
            source = before if follows else self.acc[:, src : src + 1]
            before = self.acc[:, dst : dst + 1].copy()
            yield slice(dst, dst + 1), source

    def _load(self, move: Move, where: str) -> None:
        chip = self.config.sram(Memory(move.memory))
        tiles = None
        if move.row_bytes and move.rows:
            raw = self.dram.window(move.address, move.rows, move.row_bytes, move.stride, where)
            width = chip.width // 4 if move.memory == Memory.ACC_8BIT else chip.width
            tiles = unpack_values(raw, width).reshape(raw.shape[0], move.rows, move.columns, *chip.shape)
        part = slice(move.base, move.end)
        array = getattr(self, chip.name)
        if tiles is not None and len(tiles) > len(array):  # from here on, each sample has separate values
            array = np.repeat(array, self.samples, axis=0)
            setattr(self, chip.name, array)
        if array is self.acc:
            self._keep_out(part)
        elif move.memory == Memory.WGT and tiles is not None:
            tiles = interleaved(tiles)
        target = array[:, part].reshape(array.shape[0], move.height, move.width, *array.shape[2:])
        if move.height > move.rows or move.width > move.columns:
            target[:] = 0
        if tiles is not None:
            target[:, move.top : move.top + move.rows, move.left : move.left + move.columns] = tiles

    def _keep_out(self, tiles: Tiles) -> None:
        """Copy the mirrored tiles among `tiles` from acc to out, because an instruction will only change acc."""
        if not self.rules.out_memory:
            return
        slots = np.arange(self.config.acc.depth)[tiles]
        slots = slots[self._mirrors[slots]]
        self.out[:, slots] = self.acc[:, slots]
        self._mirrors[slots] = False
        self._differs = True

    def _store(self, move: Move, where: str) -> None:
        if not move.row_bytes or not move.rows:
            return
        if move.end > self.config.acc.depth:  # the debugger also runs programs that a check refuses
            reason = f"stores acc[{move.base}:{move.end}]; acc has {self.config.acc.depth} elements"
            raise MachineError(where, reason, "see the findings of `tilewright check`")
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


def interleaved(tiles: Array) -> Array:
    """Return a view of weight tiles in DRAM (..., block_out, block_in) in the order of the wgt memory.

    The shape of the view is (..., block_in / 4, block_out, 4). The weights of four input channels alternate, as
    processor instructions for sums of four products need them. A block of less than 4 is one group: (..., 1, block,
    block).
    """
    group = min(GROUP, tiles.shape[-1])
    return tiles.reshape(*tiles.shape[:-1], -1, group).swapaxes(-3, -2)


def matrices(wgt: Array) -> Array:
    """Return weight tiles of the wgt memory as matrices, (..., block_in, block_out)."""
    return wgt.swapaxes(-1, -2).reshape(*wgt.shape[:-3], wgt.shape[-2], wgt.shape[-2])
