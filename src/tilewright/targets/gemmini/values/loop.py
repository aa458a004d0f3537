"""The effects of primitive commands on the memories, for S samples, in one compiled loop over the commands.

`machine.py` builds the tables, and this file implements each command. All arithmetic is in integers and float32, and
the results are bit-exact: tests compare them with golden data.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import compiled, in_llvm, part

#: The number of sums that `loop.products` computes at once.
LANES = 16


def emit_products(builder: Any, bits: tuple[int, ...], operands: tuple[Any, ...]) -> None:
    """Emit the IR of `loop.products`: a loop over rows with an inner loop over the factors of a row."""
    # As explicit IR, the sums of a row stay in one vector register during the inner loop.
    from llvmlite import ir

    sums, at, pitch, factors, first, stride, rows, depth, weights = operands
    lanes = ir.VectorType(ir.IntType(32), LANES)

    def vector(array: Any, element: Any) -> Any:
        return builder.bitcast(builder.gep(array, [element]), lanes.as_pointer())

    row, close_rows = _loop(builder, rows)
    target = vector(sums, builder.add(at, builder.mul(row, pitch)))
    start = builder.add(first, builder.mul(row, stride))
    held = builder.load(target, align=4)
    before = builder.block
    k, close_depth = _loop(builder, depth)
    total = builder.phi(lanes)
    total.add_incoming(held, before)
    factor = builder.sext(builder.load(builder.gep(factors, [builder.add(start, k)])), ir.IntType(32))
    first_lane = builder.insert_element(ir.Constant(lanes, ir.Undefined), factor, ir.IntType(32)(0))
    spread = builder.shuffle_vector(first_lane, ir.Constant(lanes, ir.Undefined), ir.Constant(lanes, [0] * LANES))
    weight = builder.load(vector(weights, builder.add(at, builder.mul(k, pitch))), align=4)
    more = builder.add(total, builder.mul(spread, weight))
    total.add_incoming(more, builder.block)
    close_depth()
    builder.store(more, target, align=4)
    close_rows()


def _loop(builder: Any, count: Any) -> Any:
    """Emit the start of a loop of `count` iterations (at least 1). Return the counter and an end function."""
    from llvmlite import ir

    index = ir.IntType(64)
    before = builder.block
    body = builder.append_basic_block()
    builder.branch(body)
    builder.position_at_end(body)
    counter = builder.phi(index)
    counter.add_incoming(index(0), before)

    def close() -> None:
        following = builder.add(counter, index(1))
        counter.add_incoming(following, builder.block)
        after = builder.append_basic_block()
        builder.cbranch(builder.icmp_signed("<", following, count), body, after)
        builder.position_at_end(after)

    return counter, close


#: The actions of steps. The action -1 has no effect on data.
LOAD, STORE, POOL, COMPUTE = range(4)
#: Columns of the table of loads. PITCH is the number of bytes between two samples in DRAM.
L_ROW, L_ROWS, L_COLS, L_ACC, L_ACCUMULATE, L_ZEROS, L_STRIDE, L_BLOCK_STRIDE, L_SHRUNK, L_PIXELS = range(10)
L_PLACE, L_PITCH = range(10, 12)
#: Columns of the table of stores.
S_ROW, S_ROWS, S_COLS, S_ACC, S_FULL, S_STRIDE, S_RELU, S_PLACE, S_PITCH = range(9)
S_UPAD, S_LPAD, S_POOL_STRIDE, S_POOL_SIZE, S_OUT_DIM, S_POROWS, S_POCOLS, S_OROWS, S_OCOLS = range(9, 18)
#: Columns of the table of computes: the operands A, D (B in OS), W and C, and the settings of config_ex. WEIGHTS is 1
#: in WS. SUMS is 1 if a WS compute uses sums of an OS compute as weights: it uses their low 8 bits (PE.scala).
A_ROW, A_ROWS, A_COLS, A_STRIDE, A_TRANSPOSED, D_ROW, D_ROWS, D_COLS, D_TRANSPOSED = range(9)
FRESH, W_ROW, W_ROWS, W_COLS, W_TRANSPOSED = range(9, 14)
C_ROW, C_ROWS, C_COLS, C_STRIDE, C_ACC, C_ACCUMULATE, WEIGHTS, SHIFT, C_RELU, SUMS = range(14, 24)

#: The smallest int8, the largest int8, and 1.5 * 2**23: adding this number to a small float32 rounds it half to even.
LOW = -128
HIGH = 127
ROUNDER = np.float32(12582912.0)
#: Scaled values are clipped to these bounds first, which keeps ROUNDER exact. All values beyond them saturate.
FLOOR = np.float32(-1000.0)
CEILING = np.float32(1000.0)


class Tables(NamedTuple):
    """A program: the action of each step, the step's row in the action's table (`entry`), the tables, the scales."""

    action: Array
    entry: Array
    loads: Array
    load_scales: Array
    stores: Array
    store_scales: Array
    computes: Array


class Memories(NamedTuple):
    """The memories: `memory` int8 (DRAM), spad int8 and acc int32 (S, rows, dim), array int32 (S, dim, dim).

    In WS, element (k, j) of `array` is the weight of input k for output j. In OS, this element is the sum of row k and
    column j. Two fields are scratch memory: `sums`, int32 [dim, dim], for a result, and `factors`, int8 [dim], for a
    row of A.
    """

    memory: Array
    spad: Array
    acc: Array
    array: Array
    sums: Array
    factors: Array


class Rules(NamedTuple):
    """The semantics of a machine (see config.Semantics). `bits` is the width of sums in the array.

    With `overflows`, the product of a row and a column, plus D, may exceed this width. A pixel in row `floor` or later
    is not repeated in rows before `floor`.
    """

    relu_first: int
    shift_acc: int
    bits: int
    overflows: int
    floor: int


@compiled
def run(sequence: Array, tables: Tables, memories: Memories, rules: Rules) -> None:
    for at in range(sequence.shape[0]):
        step = sequence[at]
        action = tables.action[step]
        entry = tables.entry[step]
        for sample in range(memories.spad.shape[0]):
            spad = memories.spad[sample]
            acc = memories.acc[sample]
            if action == LOAD:
                load(tables.loads[entry], tables.load_scales[entry], memories.memory, spad, acc, sample, rules.floor)
            elif action == STORE:
                scale = tables.store_scales[entry]
                store(tables.stores[entry], scale, memories.memory, spad, acc, sample, rules.relu_first)
            elif action == POOL:
                scale = tables.store_scales[entry]
                pool(tables.stores[entry], scale, memories.memory, spad, acc, sample, rules.relu_first)
            elif action == COMPUTE:
                compute(
                    tables.computes[entry], spad, acc, memories.array[sample], memories.sums, memories.factors, rules
                )


@part
def wrapped(value: int, bits: int) -> int:
    half = 1 << (bits - 1)
    return ((value + half) & (2 * half - 1)) - half


def scaled(value: int, scale: float) -> int:
    """Multiply int32 by float32, round to float32, round half to even to an integer, and saturate to int8."""
    # The sum with 1.5 * 2**23 has no fraction bits, so the addition rounds half to even. Compiled code has no `rint`.
    product = np.float32(np.float32(value) * np.float32(scale))
    product = min(max(product, FLOOR), CEILING)
    return min(max(int(np.float32(product + ROUNDER) - ROUNDER), LOW), HIGH)


def shifted(value: int, shift: int) -> int:
    if shift == 0:
        return value
    kept = value >> shift
    rest = value - (kept << shift)
    half = 1 << (shift - 1)
    return kept + int(rest > half or (rest == half and kept & 1 == 1))


def word(memory: Array, at: int) -> int:
    low = (int(memory[at]) & 255) | (int(memory[at + 1]) & 255) << 8 | (int(memory[at + 2]) & 255) << 16
    return low | int(memory[at + 3]) << 24


def load(mvin: Array, scale: float, memory: Array, spad: Array, acc: Array, sample: int, floor: int) -> None:
    """Execute an mvin. The argument `mvin` is the command's row of the table."""
    dim = spad.shape[1]
    cols = mvin[L_COLS]
    blocks = (cols + dim - 1) // dim
    # The distance between blocks of `dim` columns is block_stride rows. Copy k of a pixel is k rows above the pixel and
    # k pixels to the right (PixelRepeater.scala). Copies before row `floor` are not written.
    for nth in range(mvin[L_ROWS] * blocks):
        line = nth // blocks
        block = nth % blocks
        source = mvin[L_PLACE] + sample * mvin[L_PITCH] + line * mvin[L_STRIDE]
        first = block * dim
        row = mvin[L_ROW] + line + block * mvin[L_BLOCK_STRIDE]
        width = min(dim, cols - first)
        if mvin[L_ACC]:
            load_acc(mvin, scale, memory, source, first, acc[row], width)
        elif mvin[L_ZEROS] == 0 and scale == 1 and mvin[L_PIXELS] == 1:
            target = spad[row]
            data = memory[source + first : source + first + width]
            for col in range(width):
                target[col] = data[col]
        else:
            for col in range(width):
                value = 0 if mvin[L_ZEROS] else scaled(int(memory[source + first + col]), scale)
                for pixel in range(min(mvin[L_PIXELS], row - (floor if row >= floor else 0) + 1)):
                    spad[row - pixel, col + pixel * cols] = value


def load_acc(mvin: Array, scale: float, memory: Array, source: int, first: int, target: Array, width: int) -> None:
    for col in range(width):
        value = 0
        if mvin[L_ZEROS] == 0:
            if mvin[L_SHRUNK]:
                value = scaled(int(memory[source + first + col]), scale)
            else:
                value = word(memory, source + 4 * (first + col))
        if mvin[L_ACCUMULATE]:
            value = wrapped(int(target[col]) + value, 32)
        target[col] = value


def stored_code(mvout: Array, scale: float, spad: Array, acc: Array, row: int, col: int, relu_first: int) -> int:
    """Return the int8 code that a store writes for an element of the scratchpad or the accumulator."""
    if mvout[S_ACC] == 0:
        return int(spad[row, col])
    value = int(acc[row, col])
    # The RTL applies ReLU before the scale, and libgemmini after the scale. Negative scales give different results.
    if mvout[S_RELU] and relu_first:
        value = max(value, 0)
    value = scaled(value, scale)
    return max(value, 0) if mvout[S_RELU] and not relu_first else value


def store(mvout: Array, scale: float, memory: Array, spad: Array, acc: Array, sample: int, relu_first: int) -> None:
    """Execute an mvout without pooling. The argument `mvout` is the command's row of the table."""
    dim = spad.shape[1]
    for line in range(mvout[S_ROWS]):
        target = mvout[S_PLACE] + sample * mvout[S_PITCH] + line * mvout[S_STRIDE]
        for col in range(mvout[S_COLS]):
            row = mvout[S_ROW] + line + col // dim * dim
            element = col % dim
            if mvout[S_FULL]:
                value = int(acc[row, element])
                for byte in range(4):
                    memory[target + 4 * col + byte] = wrapped(value >> 8 * byte, 8)
            else:
                memory[target + col] = stored_code(mvout, scale, spad, acc, row, element, relu_first)


def pool(mvout: Array, scale: float, memory: Array, spad: Array, acc: Array, sample: int, relu_first: int) -> None:
    """Execute an mvout with max pooling. Pixels outside the image count as 0."""
    size = mvout[S_POOL_SIZE]
    columns = mvout[S_OCOLS]
    for place in range(mvout[S_POROWS] * mvout[S_POCOLS]):
        y, x = place // mvout[S_POCOLS], place % mvout[S_POCOLS]
        top = y * mvout[S_POOL_STRIDE] - mvout[S_UPAD]
        side = x * mvout[S_POOL_STRIDE] - mvout[S_LPAD]
        target = mvout[S_PLACE] + sample * mvout[S_PITCH] + (y * mvout[S_OUT_DIM] + x) * mvout[S_STRIDE]
        for channel in range(mvout[S_COLS]):
            most = LOW
            for pixel in range(size * size):
                down = top + pixel // size
                across = side + pixel % size
                value = 0
                if 0 <= down < mvout[S_OROWS] and 0 <= across < columns:
                    row = mvout[S_ROW] + down * columns + across
                    value = stored_code(mvout, scale, spad, acc, row, channel, relu_first)
                most = max(most, value)
            memory[target + channel] = most


def compute(command: Array, spad: Array, acc: Array, array: Array, sums: Array, factors: Array, rules: Rules) -> None:
    """Execute a compute. The argument `command` is the compute's row of the table."""
    if command[FRESH]:
        fill(command, spad, array)
    if command[WEIGHTS] == 0:
        accumulate(command, spad, array, factors, rules.bits)
        for line in range(command[C_ROWS]):
            for col in range(sums.shape[1]):
                sums[line, col] = array[line, col]
    else:
        times(command, spad, array, sums, factors, command[SUMS] and rules.bits < 32)
    for line in range(command[C_ROWS]):  # C may overlap A: the array reads all of A before it writes
        write(command, spad, acc, sums[line], line, rules)


def fill(command: Array, spad: Array, array: Array) -> None:
    """Write W (in OS, the initial sums) to the array. Elements beyond the operand are zero."""
    base = command[W_ROW]
    rows = command[W_ROWS]
    cols = command[W_COLS]
    for line in range(array.shape[0]):
        target = array[line]
        for col in range(array.shape[1]):
            target[col] = 0
    for line in range(rows):
        if command[W_TRANSPOSED]:
            for col in range(cols):
                array[line, col] = spad[base + col, line]
        else:
            target = array[line]
            source = spad[base + line]
            for col in range(cols):
                target[col] = source[col]


def read_a(command: Array, spad: Array, factors: Array, line: int) -> None:
    """Copy row `line` of A to `factors`, and fill the rest of `factors` with zeros."""
    base = command[A_ROW]
    stride = command[A_STRIDE]
    cols = command[A_COLS]
    if line >= command[A_ROWS]:
        cols = 0
    if command[A_TRANSPOSED]:
        for depth in range(cols):
            factors[depth] = spad[base + stride * depth, line]
    elif cols:
        source = spad[base + stride * line]
        for depth in range(cols):
            factors[depth] = source[depth]
    for depth in range(cols, factors.shape[0]):
        factors[depth] = 0


def times(command: Array, spad: Array, array: Array, sums: Array, factors: Array, narrow: bool) -> None:
    """Compute D + A * W in `sums`. With `narrow`, use only the low 8 bits of W."""
    dim = array.shape[0]
    rows = min(command[C_ROWS], command[A_ROWS])
    depth = command[A_COLS]
    for line in range(command[C_ROWS]):
        total = sums[line]
        for col in range(dim):
            total[col] = 0
        if line < command[D_ROWS]:
            source = spad[command[D_ROW] + line]
            for col in range(command[D_COLS]):
                total[col] = source[col]
    if dim % LANES == 0 and not narrow and not command[A_TRANSPOSED] and rows > 0 and depth > 0:
        for low in range(0, dim, LANES):
            place = command[A_ROW] * dim
            stride = command[A_STRIDE] * dim
            products(sums, low, dim, spad, place, stride, rows, depth, array)
        return
    for line in range(rows):
        read_a(command, spad, factors, line)
        total = sums[line]
        for k in range(depth):
            weights = array[k]
            factor = np.int32(factors[k])
            for col in range(dim):
                weight = np.int32(wrapped(int(weights[col]), 8)) if narrow else weights[col]
                total[col] += factor * weight


@in_llvm(emit_products)
def products(
    sums: Array, low: int, pitch: int, factors: Array, first: int, stride: int, rows: int, depth: int, weights: Array
) -> None:
    """Add the matrix product of int8 factors and int32 weights to LANES columns of int32 sums, from column `low` on.

    All arrays have `pitch` columns. The factors of row i are `depth` elements of the flat array, from index
    `first + i * stride` on. `rows` and `depth` are at least 1.
    """
    flat = np.lib.stride_tricks.as_strided(factors.reshape(-1)[first:], (rows, depth), (stride, 1))
    sums[:rows, low : low + LANES] += flat.astype(np.int32) @ weights[:depth, low : low + LANES]


def accumulate(command: Array, spad: Array, array: Array, factors: Array, bits: int) -> None:
    base = command[D_ROW]
    rows = command[D_ROWS]
    for line in range(command[A_ROWS]):
        read_a(command, spad, factors, line)
        for col in range(command[D_COLS]):
            total = int(array[line, col])
            for depth in range(rows):
                factor = spad[base + col, depth] if command[D_TRANSPOSED] else spad[base + depth, col]
                total += int(factors[depth]) * int(factor)
            array[line, col] = wrapped(total, bits)


def write(command: Array, spad: Array, acc: Array, sums: Array, line: int, rules: Rules) -> None:
    """Write row `line` of the result from `sums` [dim] to the scratchpad or the accumulator."""
    row = command[C_ROW] + line * command[C_STRIDE]
    shift = command[SHIFT]
    cols = command[C_COLS]
    if rules.overflows:
        for col in range(cols):
            sums[col] = wrapped(int(sums[col]), rules.bits)
    if command[C_ACC] == 0:
        target = spad[row]
        relu = command[C_RELU]
        for col in range(cols):
            value = min(max(shifted(int(sums[col]), shift), LOW), HIGH)
            target[col] = max(value, 0) if relu else value
        return
    if shift and rules.shift_acc:
        for col in range(cols):
            sums[col] = shifted(int(sums[col]), shift)
    held = acc[row]
    keep = command[C_ACCUMULATE]
    for col in range(cols):
        held[col] = wrapped(int(sums[col]) + keep * int(held[col]), 32)
