"""The value pass over a stretch of short instructions, for one sample: one compiled loop, tile by tile.

Machine runs the same instructions with whole-array operations, which is faster for large ones; the tests compare the
two. `actions` resolves the config's semantics when it builds the tables, so that the loop does not depend on them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import compiled, part
from tilewright.targets.vta.isa.alu import UPSTREAM

#: Kinds of steps. RESET_OUT: a STORE reads the reset's value in the out memory; RESET_KEEP: out is not written.
LOAD, STORE, ADD, RESET, RESET_OUT, RESET_KEEP, ALU = range(7)
#: Operations of the ALU. SHIFT takes signed amounts from a table; NONE leaves acc unchanged.
MIN, MAX, SUM, SHIFT, PRODUCT = map(int, UPSTREAM)
NONE = -1
#: The memory that a LOAD writes.
TO_INP, TO_WGT, TO_ACC = range(3)


class Steps(NamedTuple):
    """The steps of a stretch, int64 [n] each. LOAD and STORE ignore `kernel`; others use only `kind` and `kernel`."""

    kind: Array
    kernel: Array
    to: Array
    base: Array
    top: Array
    left: Array
    height: Array
    width: Array
    rows: Array
    columns: Array
    stride: Array
    bits: Array  # of a value in DRAM


class Kernels(NamedTuple):
    """GEMM and ALU kernels, int64 [k] each: micro-ops start..stop-1 of Tiles; other columns are for the ALU only."""

    start: Array
    stop: Array
    op: Array
    has_imm: Array
    imm: Array
    first_is_src: Array
    table: Array  # the row of `shifts` that SHIFT uses


class Tiles(NamedTuple):
    """The tile numbers of each micro-op, int64 [t] each."""

    dst: Array
    src: Array
    wgt: Array


class Chips(NamedTuple):
    """The memories of one sample. `memory`: DRAM, uint8 [m]; `places`: where each step's bytes begin in it, int64 [n].

    inp, acc and out are [depth * batch, block]; wgt is [depth * block, block], rows by input channel. `mirrors` bool
    [depth]: whether an out tile equals the acc tile, and is therefore not kept in `out`.
    """

    memory: Array
    places: Array
    inp: Array
    wgt: Array
    acc: Array
    out: Array
    mirrors: Array


class Scratch(NamedTuple):
    """Arrays for intermediate values: `values` int64 [max(batch, block) * block], others [block]; `sums` like inp."""

    values: Array
    first: Array
    second: Array
    sums: Array

    @classmethod
    def of(cls, chips: Chips) -> Scratch:
        block, batch = chips.acc.shape[1], chips.acc.shape[0] // chips.mirrors.shape[0]
        integers = (np.zeros(size, np.int64) for size in (max(batch, block) * block, block, block))
        return cls(*integers, np.zeros(block, chips.inp.dtype))


@compiled
def run(
    steps: Steps, kernels: Kernels, tiles: Tiles, shifts: Array, chips: Chips, scratch: Scratch, out_memory: bool
) -> None:
    """Execute the steps on the machine's memories.

    GEMM sums are exact floats; other arithmetic is in 64-bit integers. Results wrap when they are written.
    """
    values, first, second, sums = scratch.values, scratch.first, scratch.second, scratch.sums
    for step in range(steps.kind.shape[0]):
        kind = steps.kind[step]
        if kind == LOAD:
            load(steps, chips, values, step, out_memory)
        elif kind == STORE:
            store(steps, chips, values, step)
        elif kind == ALU:
            operate(kernels, tiles, shifts, chips, first, second, steps.kernel[step])
        else:
            multiply(kernels, tiles, chips, sums, kind, steps.kernel[step], out_memory)


@part
def load(steps: Steps, chips: Chips, values: Array, step: int, out_memory: bool) -> None:
    """Execute a LOAD: copy tiles from DRAM, and surround them with zero tiles (padding)."""
    block, batch = chips.acc.shape[1], chips.acc.shape[0] // chips.mirrors.shape[0]
    to, width, bits = steps.to[step], steps.width[step], steps.bits[step]
    lines = block if to == TO_WGT else batch
    size = lines * block
    for place in range(steps.height[step] * width):
        row, column = place // width - steps.top[step], place % width - steps.left[step]
        if 0 <= row < steps.rows[step] and 0 <= column < steps.columns[step]:
            at = chips.places[step] + row * steps.stride[step] + column * (size * bits // 8)
            unpack(chips.memory, values, at, size, bits)
        else:
            for i in range(size):
                values[i] = 0
        put(chips, values, steps.base[step] + place, to, out_memory)


@part
def unpack(memory: Array, values: Array, at: int, size: int, bits: int) -> None:
    """Read `size` values of `bits` bits, from DRAM byte `at` on, into `values`: two's complement, little-endian."""
    if bits == 8:
        source = memory[at : at + size]
        for i in range(size):
            values[i] = (np.int64(source[i]) ^ 128) - 128
        return
    sign = np.int64(1) << (bits - 1)
    for i in range(size):
        field = np.int64(memory[at + i * bits // 8]) >> (i * bits % 8)
        for byte in range(1, bits // 8):
            field |= np.int64(memory[at + i * bits // 8 + byte]) << (8 * byte)
        values[i] = ((field & (2 * sign - 1)) ^ sign) - sign


@part
def put(chips: Chips, values: Array, tile: int, to: int, out_memory: bool) -> None:
    """Write `values` to a tile of memory `to`. An acc tile that out mirrors is copied to out before it changes."""
    block, batch = chips.acc.shape[1], chips.acc.shape[0] // chips.mirrors.shape[0]
    if to == TO_WGT:  # DRAM has the rows by output channel
        for line in range(block):
            weights = chips.wgt[tile * block + line]
            for j in range(block):
                weights[j] = values[j * block + line]
    elif to == TO_INP:
        for line in range(batch):
            inputs = chips.inp[tile * batch + line]
            for j in range(block):
                inputs[j] = values[line * block + j]
    else:
        for line in range(batch):
            target, result = chips.acc[tile * batch + line], chips.out[tile * batch + line]
            for j in range(block):
                if out_memory and chips.mirrors[tile]:
                    result[j] = target[j]
                target[j] = values[line * block + j]
        chips.mirrors[tile] = chips.mirrors[tile] and not out_memory


@part
def store(steps: Steps, chips: Chips, values: Array, step: int) -> None:
    """Execute a STORE: copy tiles of the out memory to DRAM, each value truncated to its low bits."""
    block, batch = chips.acc.shape[1], chips.acc.shape[0] // chips.mirrors.shape[0]
    columns, bits, size = steps.columns[step], steps.bits[step], batch * block
    for place in range(steps.rows[step] * columns):
        at = chips.places[step] + place // columns * steps.stride[step] + place % columns * (size * bits // 8)
        tile = steps.base[step] + place
        for line in range(batch):
            target, result = chips.acc[tile * batch + line], chips.out[tile * batch + line]
            for j in range(block):
                values[line * block + j] = target[j] if chips.mirrors[tile] else result[j]
        pack(chips.memory, values, at, size, bits)


@part
def pack(memory: Array, values: Array, at: int, size: int, bits: int) -> None:
    """Write `size` values of at most 8 bits to DRAM, from byte `at` on: the inverse of `unpack`."""
    if bits == 8:
        copied = memory[at : at + size]
        for i in range(size):
            copied[i] = values[i] & 255
        return
    for byte in range(size * bits // 8):
        field = values[byte * 8 // bits] >> (byte * 8 % bits)
        for i in range(1, 8 // bits):
            field = (field & ((1 << (i * bits)) - 1)) | values[byte * 8 // bits + i] << (i * bits)
        memory[at + byte] = field & 255


@part
def multiply(
    kernels: Kernels, tiles: Tiles, chips: Chips, sums: Array, kind: int, kernel: int, out_memory: bool
) -> None:
    """Execute a GEMM: add sums of products to accumulator tiles, or reset the tiles."""
    block, batch = chips.acc.shape[1], chips.acc.shape[0] // chips.mirrors.shape[0]
    for uop in range(kernels.start[kernel], kernels.stop[kernel]):
        dst, src, wgt = tiles.dst[uop], tiles.src[uop], tiles.wgt[uop]
        keeps = kind == RESET_KEEP and out_memory and chips.mirrors[dst]
        chips.mirrors[dst] = kind in (ADD, RESET) or not out_memory
        for line in range(batch):
            target, result = chips.acc[dst * batch + line], chips.out[dst * batch + line]
            if kind in (RESET, RESET_KEEP):
                for j in range(block):
                    if keeps:
                        result[j] = target[j]
                    target[j] = 0
                continue
            inputs = chips.inp[src * batch + line]
            for j in range(block):
                sums[j] = 0
            for i in range(block):
                weights = chips.wgt[wgt * block + i]
                for j in range(block):
                    sums[j] += inputs[i] * weights[j]
            for j in range(block):
                target[j] = np.int64(target[j]) + np.int64(sums[j])
                if kind == RESET_OUT:
                    result[j] = target[j]
                    target[j] = 0


@part
def operate(
    kernels: Kernels, tiles: Tiles, shifts: Array, chips: Chips, first: Array, second: Array, kernel: int
) -> None:
    """Execute an ALU instruction: combine an accumulator tile with another one, or with an immediate."""
    block, batch = chips.acc.shape[1], chips.acc.shape[0] // chips.mirrors.shape[0]
    op, has_imm, imm = kernels.op[kernel], kernels.has_imm[kernel], kernels.imm[kernel]
    for uop in range(kernels.start[kernel], kernels.stop[kernel]):
        dst, src = tiles.dst[uop], tiles.src[uop]
        chips.mirrors[dst] = True
        for line in range(batch):
            target, other = chips.acc[dst * batch + line], chips.acc[src * batch + line]
            for j in range(block):
                first[j] = other[j] if kernels.first_is_src[kernel] else target[j]
                second[j] = imm if has_imm else other[j]
            if op == MIN:
                for j in range(block):
                    first[j] = min(first[j], second[j])
            elif op == MAX:
                for j in range(block):
                    first[j] = max(first[j], second[j])
            elif op == SUM:
                for j in range(block):
                    first[j] += second[j]
            elif op == PRODUCT:
                for j in range(block):
                    first[j] *= second[j]
            elif op == SHIFT:
                shift(shifts, first, second, kernels.table[kernel])
            for j in range(block):
                target[j] = first[j]


@part
def shift(shifts: Array, first: Array, second: Array, table: int) -> None:
    """Shift `first` right by the amounts that row `table` of `shifts` gives for `second` (left by negative amounts)."""
    amounts = shifts.shape[1] // 2
    for j in range(first.shape[0]):
        y = second[j]
        amount = shifts[table, (y & (amounts - 1)) + (amounts if y < 0 else 0)]
        first[j] = first[j] >> amount if amount >= 0 else first[j] << -amount
