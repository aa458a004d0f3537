"""The value pass over a stretch of short instructions, for one sample: one compiled loop, tile by tile.

Machine runs the same instructions as whole arrays, which is faster where they are large. The tests hold the two
against each other; what an instruction means where implementations differ is decided outside, in `actions`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import compiled, part
from tilewright.targets.vta.isa.alu import UPSTREAM

#: What a step does. RESET_OUT: a reset whose value in the out memory is stored; RESET_KEEP: one that leaves out alone.
LOAD, STORE, ADD, RESET, RESET_OUT, RESET_KEEP, ALU = range(7)
#: Operations of the ALU; SHIFT by a table of signed amounts, NONE leaves acc alone.
MIN, MAX, SUM, SHIFT, PRODUCT = map(int, UPSTREAM)
NONE = -1
#: Where LOAD writes.
TO_INP, TO_WGT, TO_ACC = range(3)


class Steps(NamedTuple):
    """The steps of a stretch, int64 [n] each. LOAD and STORE use all but `kernel`, the others only that."""

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
    """GEMM and ALU kernels, int64 [k] each: their part of the tiles; then of the ALU only."""

    start: Array
    stop: Array
    op: Array
    has_imm: Array
    imm: Array
    first_is_src: Array
    table: Array  # a row of the table of shifts


class Tiles(NamedTuple):
    """The tiles of each micro-op, int64 [t]."""

    dst: Array
    src: Array
    wgt: Array


class Chips(NamedTuple):
    """The memories of one sample. `memory` is DRAM, uint8 [m]; `places` int64 [n]: where in it each step begins.

    inp, acc and out [depth * batch, block]; wgt [depth * block, block], by input channel; mirrors as Machine's.
    """

    memory: Array
    places: Array
    inp: Array
    wgt: Array
    acc: Array
    out: Array
    mirrors: Array


@compiled
def run(steps: Steps, kernels: Kernels, tiles: Tiles, shifts: Array, chips: Chips, out_memory: bool) -> None:
    """Execute the steps on the machine's memories. Sums are made in 64 bits and wrap where they are written."""
    block, batch = chips.acc.shape[1], chips.acc.shape[0] // chips.mirrors.shape[0]
    values = np.zeros(max(batch, block) * block, np.int64)
    first, second, sums = np.zeros(block, np.int64), np.zeros(block, np.int64), np.zeros(block, chips.inp.dtype)
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
    """Tiles from DRAM, with tiles of zeros around them."""
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
    """`size` values of `bits` from byte `at`: two's complement, little-endian, low bits first."""
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
    """Write a tile. The accumulator changes and the out memory does not: it keeps what it mirrored."""
    block, batch = chips.acc.shape[1], chips.acc.shape[0] // chips.mirrors.shape[0]
    if to == TO_WGT:  # in DRAM by output channel
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
    """Tiles of the out memory to DRAM, each value cut to its low bits."""
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
    """The inverse of `unpack`, for values of a byte at most."""
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
    """A GEMM: sums of products onto accumulators, or accumulators reset."""
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
    """An ALU instruction: an accumulator tile with another one, or with an immediate."""
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
    """Shifts by the amounts that the table of shifts has for the second operand; left where they are negative."""
    amounts = shifts.shape[1] // 2
    for j in range(first.shape[0]):
        y = second[j]
        amount = shifts[table, (y & (amounts - 1)) + (amounts if y < 0 else 0)]
        first[j] = first[j] >> amount if amount >= 0 else first[j] << -amount
