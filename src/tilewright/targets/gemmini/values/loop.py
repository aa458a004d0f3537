"""The effect of primitive commands on the memories, for S samples: one compiled loop over the commands.

`machine` builds the tables; here is the meaning of each command. Sums wrap as the config's semantics say.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import called, compiled, part

#: What a row of the tables does; commands without an effect on data are in no table.
LOAD, STORE, POOL, COMPUTE = range(4)
#: Smallest and largest int8, and the constant whose addition to a small float32 rounds it half to even.
LOW, HIGH, ROUNDER = -128, 127, np.float32(12582912.0)
#: Bounds beyond which every scaled value saturates.
FLOOR, CEILING = np.float32(-1000.0), np.float32(1000.0)
RELU = 1


class Loads(NamedTuple):
    """The mvins, one element each: where they write, what they read, and the scale (float32)."""

    row: Array
    rows: Array
    cols: Array
    acc: Array
    accumulate: Array
    zeros: Array
    stride: Array
    block_stride: Array
    shrunk: Array
    pixels: Array
    scale: Array
    place: Array
    pitch: Array


class Stores(NamedTuple):
    """The mvouts, one element each; the fields from `upad` on are those of pooling."""

    row: Array
    rows: Array
    cols: Array
    acc: Array
    full: Array
    stride: Array
    relu: Array
    scale: Array
    place: Array
    pitch: Array
    upad: Array
    lpad: Array
    pool_stride: Array
    pool_size: Array
    out_dim: Array
    porows: Array
    pocols: Array
    orows: Array
    ocols: Array


class Computes(NamedTuple):
    """The computes, one element each: operands A, D (of OS: B), W and C, and what config_ex says."""

    a_row: Array
    a_rows: Array
    a_cols: Array
    a_stride: Array
    a_transposed: Array
    d_row: Array
    d_rows: Array
    d_cols: Array
    d_transposed: Array
    fresh: Array
    w_row: Array
    w_rows: Array
    w_cols: Array
    w_transposed: Array
    c_row: Array
    c_rows: Array
    c_cols: Array
    c_stride: Array
    c_acc: Array
    c_accumulate: Array
    stationary: Array  # 1: weight-stationary, 0: output-stationary
    shift: Array
    relu: Array


class Tables(NamedTuple):
    """What each step of a program does (LOAD .. COMPUTE, -1: nothing), and its place in the table of its kind."""

    action: Array
    entry: Array
    loads: Loads
    stores: Stores
    computes: Computes


class Chips(NamedTuple):
    """The memories: `memory` int8 (DRAM), spad int8 and acc int32 (S, rows, dim), array int32 (S, dim, dim).

    In `array`, element (k, j) multiplies input k for output j; of OS, it is the sum of row k and column j. `sums` int32
    [dim] is scratch memory.
    """

    memory: Array
    spad: Array
    acc: Array
    array: Array
    sums: Array


class Rules(NamedTuple):
    """The semantics of a machine: see config.Semantics. `bits` is the width of sums in the array."""

    relu_first: int
    shift_acc: int
    bits: int


@compiled
def run(sequence: Array, tables: Tables, chips: Chips, rules: Rules) -> None:
    """Execute the steps of a sequence (int64) in order."""
    for at in range(sequence.shape[0]):
        step = sequence[at]
        action, index = tables.action[step], tables.entry[step]
        for sample in range(chips.spad.shape[0]):
            if action == LOAD:
                load(tables.loads, chips, index, sample)
            elif action == STORE:
                store(tables.stores, chips, rules, index, sample)
            elif action == POOL:
                pool(tables.stores, chips, rules, index, sample)
            elif action == COMPUTE:
                compute(tables.computes, chips, rules, index, sample)


@called
def wrapped(value: int, bits: int) -> int:
    """Return the low bits of an integer, in two's complement."""
    half = np.int64(1) << (bits - 1)
    return int(((np.int64(value) + half) & (2 * half - 1)) - half)


@called
def scaled(value: int, scale: float) -> int:
    """Return int32 times float32, rounded to float32, then half to even, saturated to int8."""
    product = np.float32(np.float32(value) * np.float32(scale))
    product = min(max(product, FLOOR), CEILING)
    return min(max(int(np.float32(product + ROUNDER) - ROUNDER), LOW), HIGH)


@called
def shifted(value: int, shift: int) -> int:
    """Return an integer shifted right, rounded half to even."""
    if shift == 0:
        return value
    kept = value >> shift
    rest, half = value - (kept << shift), 1 << (shift - 1)
    return kept + int(rest > half or (rest == half and kept & 1 == 1))


@called
def word(memory: Array, at: int) -> int:
    """Return the int32 in DRAM at `at`, little-endian."""
    low = (int(memory[at]) & 255) | (int(memory[at + 1]) & 255) << 8 | (int(memory[at + 2]) & 255) << 16
    return low | int(memory[at + 3]) << 24


@called
def load(loads: Loads, chips: Chips, index: int, sample: int) -> None:
    """Execute an mvin."""
    dim, cols, scale = chips.spad.shape[2], loads.cols[index], loads.scale[index]
    acc, wide = loads.acc[index] != 0, loads.acc[index] != 0 and loads.shrunk[index] == 0
    plain = loads.pixels[index] == 1 and scale == 1 and not acc and loads.zeros[index] == 0
    for line in range(loads.rows[index]):
        source = loads.place[index] + sample * loads.pitch[index] + line * loads.stride[index]
        for first in range(0, cols, dim):
            row = loads.row[index] + line + first // dim * loads.block_stride[index]
            width = min(dim, cols - first)
            if plain:
                for col in range(width):
                    chips.spad[sample, row, col] = chips.memory[source + first + col]
                continue
            for col in range(width):
                value = 0
                if loads.zeros[index] == 0:
                    if wide:
                        value = word(chips.memory, source + 4 * (first + col))
                    else:
                        value = int(chips.memory[source + first + col])
                        if scale != 1:
                            value = scaled(value, scale)
                if acc:
                    if loads.accumulate[index]:
                        value = wrapped(int(chips.acc[sample, row, col]) + value, 32)
                    chips.acc[sample, row, col] = value
                else:
                    for pixel in range(min(loads.pixels[index], row + 1)):
                        chips.spad[sample, row - pixel, col + pixel * cols] = value


@part
def left(stores: Stores, chips: Chips, rules: Rules, index: int, sample: int, row: int, col: int) -> int:
    """Return an element as int8, as it leaves the scratchpad or the accumulator."""
    if stores.acc[index] == 0:
        return int(chips.spad[sample, row, col])
    value, relu = int(chips.acc[sample, row, col]), stores.relu[index] != 0
    if relu and rules.relu_first:
        value = max(value, 0)
    value = scaled(value, stores.scale[index])
    return max(value, 0) if relu and not rules.relu_first else value


@called
def store(stores: Stores, chips: Chips, rules: Rules, index: int, sample: int) -> None:
    """Execute an mvout without pooling."""
    dim = chips.spad.shape[2]
    for line in range(stores.rows[index]):
        target = stores.place[index] + sample * stores.pitch[index] + line * stores.stride[index]
        for col in range(stores.cols[index]):
            row, element = stores.row[index] + line + col // dim * dim, col % dim
            if stores.full[index]:
                value = int(chips.acc[sample, row, element])
                for byte in range(4):
                    chips.memory[target + 4 * col + byte] = wrapped(value >> 8 * byte, 8)
            else:
                chips.memory[target + col] = left(stores, chips, rules, index, sample, row, element)


@called
def pool(stores: Stores, chips: Chips, rules: Rules, index: int, sample: int) -> None:
    """Execute an mvout with max pooling. Pixels outside the image count as 0."""
    size, columns = stores.pool_size[index], stores.ocols[index]
    for place in range(stores.porows[index] * stores.pocols[index]):
        y, x = place // stores.pocols[index], place % stores.pocols[index]
        top = y * stores.pool_stride[index] - stores.upad[index]
        side = x * stores.pool_stride[index] - stores.lpad[index]
        target = stores.place[index] + sample * stores.pitch[index]
        target += (y * stores.out_dim[index] + x) * stores.stride[index]
        for channel in range(stores.cols[index]):
            most = LOW
            for pixel in range(size * size):
                down, across = top + pixel // size, side + pixel % size
                value = 0
                if 0 <= down < stores.orows[index] and 0 <= across < columns:
                    row = stores.row[index] + down * columns + across
                    value = left(stores, chips, rules, index, sample, row, channel)
                most = max(most, value)
            chips.memory[target + channel] = most


@called
def compute(table: Computes, chips: Chips, rules: Rules, index: int, sample: int) -> None:
    """Execute a compute: load the array if it is fresh, multiply, and write the result."""
    if table.fresh[index]:
        fill(table, chips, index, sample)
    if table.stationary[index] == 0:
        accumulate(table, chips, rules, index, sample)
    dim = chips.spad.shape[2]
    for line in range(table.c_rows[index]):
        if table.stationary[index]:
            row_times(table, chips, index, sample, line)
        else:
            for col in range(dim):
                chips.sums[col] = chips.array[sample, line, col]
        write(table, chips, rules, index, sample, line)


@part
def fill(table: Computes, chips: Chips, index: int, sample: int) -> None:
    """Write W, or the initial sums of OS, to the array; elements beyond the operand are zero."""
    dim, base = chips.spad.shape[2], table.w_row[index]
    for line in range(dim):
        for col in range(dim):
            chips.array[sample, line, col] = 0
    for line in range(table.w_rows[index]):
        for col in range(table.w_cols[index]):
            if table.w_transposed[index]:
                chips.array[sample, line, col] = chips.spad[sample, base + col, line]
            else:
                chips.array[sample, line, col] = chips.spad[sample, base + line, col]


@part
def element(table: Computes, chips: Chips, index: int, sample: int, line: int, depth: int) -> int:
    """Return element (line, depth) of A."""
    base, stride = table.a_row[index], table.a_stride[index]
    if table.a_transposed[index]:
        return int(chips.spad[sample, base + stride * depth, line])
    return int(chips.spad[sample, base + stride * line, depth])


@part
def row_times(table: Computes, chips: Chips, index: int, sample: int, line: int) -> None:
    """Write one row of D + A * W to `sums`."""
    dim, sums, array = chips.spad.shape[2], chips.sums, chips.array[sample]
    for col in range(dim):
        sums[col] = 0
    if line < table.d_rows[index]:
        for col in range(table.d_cols[index]):
            sums[col] = chips.spad[sample, table.d_row[index] + line, col]
    if line < table.a_rows[index]:
        for depth in range(table.a_cols[index]):
            factor = element(table, chips, index, sample, line, depth)
            for col in range(dim):
                sums[col] += np.int32(factor) * array[depth, col]


@part
def accumulate(table: Computes, chips: Chips, rules: Rules, index: int, sample: int) -> None:
    """Add A * B to the sums of an output-stationary array."""
    base = table.d_row[index]
    for line in range(table.a_rows[index]):
        for col in range(table.d_cols[index]):
            total = int(chips.array[sample, line, col])
            for depth in range(min(table.a_cols[index], table.d_rows[index])):
                down, across = (col, depth) if table.d_transposed[index] else (depth, col)
                factor = int(chips.spad[sample, base + down, across])
                total += element(table, chips, index, sample, line, depth) * factor
            chips.array[sample, line, col] = wrapped(total, rules.bits)


@part
def write(table: Computes, chips: Chips, rules: Rules, index: int, sample: int, line: int) -> None:
    """Write one row of the result, which is in `sums`."""
    row, shift = table.c_row[index] + line * table.c_stride[index], table.shift[index]
    for col in range(table.c_cols[index]):
        value = wrapped(int(chips.sums[col]), rules.bits)
        if table.c_acc[index]:
            if shift and rules.shift_acc:
                value = shifted(value, shift)
            if table.c_accumulate[index]:
                value = wrapped(int(chips.acc[sample, row, col]) + value, 32)
            chips.acc[sample, row, col] = value
        else:
            value = min(max(shifted(value, shift), LOW), HIGH)
            chips.spad[sample, row, col] = max(value, 0) if table.relu[index] else value
