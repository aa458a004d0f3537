"""The value pass over a batch of instructions, for one sample: one compiled loop, tile by tile.

Machine runs the same instructions with whole-array operations; the tests compare the loop with Machine. The loop is
faster for short instructions, and for few samples. The tables from `actions` already include the config's semantics.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import compiled, in_llvm, part
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.alu import AluOp
from tilewright.targets.vta.isa.expression import Do
from tilewright.targets.vta.isa.fields import Uops
from tilewright.targets.vta.isa.own import FIRST_OWN
from tilewright.targets.vta.values.tables import Expressions, KernelTable, Steps
from tilewright.targets.vta.values.vectors import BIAS, GROUP, LANES, emit_interleaved, emit_products

#: Kinds of steps. RESET_OUT: a STORE reads the value that the reset wrote to out. RESET_KEEP: out is not written.
LOAD, STORE, ADD, RESET, RESET_OUT, RESET_KEEP, ALU, OWN_ALU = range(8)
NONE = -1  # an ALU operation that does not change acc
TO_INP, TO_WGT, TO_ACC = range(3)  # the memory that a LOAD writes


class Chips(NamedTuple):
    """The memories of one sample, flat. `memory` uint8 is DRAM; the bytes of a step begin at `places`, int64 [n].

    inp, acc and out have depth * batch * block values, wgt depth * block * block (see machine.interleaved). inp of 8
    bits is uint8 with Shape.bias added, because processors multiply unsigned by signed bytes. `mirrors` bool [depth]:
    whether an out tile equals the acc tile, so that `out` does not have the tile.
    """

    memory: Array
    places: Array
    inp: Array
    wgt: Array
    acc: Array
    out: Array
    mirrors: Array


class Shape(NamedTuple):
    """The shape of tiles. `out_memory`: whether STORE reads a separate memory. `in_lanes`: see the function."""

    batch: int
    block: int
    bias: int
    out_memory: bool
    in_lanes: bool

    @classmethod
    def of(cls, config: Config) -> Shape:
        bias = BIAS if narrow(config) else 0
        return cls(config.batch, config.block, bias, config.rules.out_memory, in_lanes(config))


def narrow(config: Config) -> bool:  # values of inp and wgt fit in bytes
    return max(config.inp.width, config.wgt.width) <= 8


def in_lanes(config: Config) -> bool:
    """Return whether `products` supports the machine's tiles and integers."""
    return narrow(config) and config.acc.width == 32 and config.block % LANES == 0


@compiled
def run(
    steps: Steps, kernels: KernelTable, tiles: Uops, shifts: Array, code: Expressions, chips: Chips, shape: Shape
) -> None:
    """Execute the steps on the machine's memories. Integers wrap when they are written."""
    for step in range(steps.kind.shape[0]):
        kind = steps.kind[step]
        kernel = steps.kernel[step]
        if kind == LOAD:
            load(steps, chips, shape, step)
        elif kind == STORE:
            store(steps, chips, shape, step)
        elif kind == ADD:
            multiply(kernels, tiles, chips, shape, kernel)
        elif kind == OWN_ALU:
            change_own(kernels, tiles, code, chips, shape, kernel)
        else:
            change(kernels, tiles, shifts, chips, shape, kernel, kind)


@part
def load(steps: Steps, chips: Chips, shape: Shape, step: int) -> None:
    """Execute a LOAD: copy tiles from DRAM, and surround them with zero tiles (padding)."""
    to = steps.to[step]
    width = steps.width[step]
    left = steps.left[step]
    columns = steps.columns[step]
    for line in range(steps.height[step]):
        row = line - steps.top[step]
        first = steps.base[step] + line * width
        if 0 <= row < steps.rows[step]:
            clear(chips, shape, to, first, left)
            at = chips.places[step] + row * steps.stride[step]
            fill(chips, shape, to, first + left, columns, at, steps.bits[step])
            clear(chips, shape, to, first + left + columns, width - left - columns)
        else:
            clear(chips, shape, to, first, width)


def clear(chips: Chips, shape: Shape, to: int, first: int, count: int) -> None:
    """Write zeros to `count` tiles of memory `to`, from tile `first` on."""
    size = shape.batch * shape.block
    if to == TO_INP:
        chips.inp[first * size : (first + count) * size] = shape.bias
    elif to == TO_WGT:
        size = shape.block * shape.block
        chips.wgt[first * size : (first + count) * size] = 0
    else:
        keep(chips, shape, first, count)
        chips.acc[first * size : (first + count) * size] = 0


@part
def fill(chips: Chips, shape: Shape, to: int, first: int, count: int, at: int, bits: int) -> None:
    """Write `count` tiles of memory `to`, from tile `first` on, with the values in DRAM from byte `at` on."""
    size = shape.batch * shape.block
    memory = chips.memory
    if to == TO_WGT:
        fill_wgt(chips, shape, first, count, at, bits)
    elif to == TO_INP:
        inp = chips.inp[first * size : (first + count) * size]
        if bits == 8:
            raw = memory[at : at + inp.shape[0]]
            for i in range(inp.shape[0]):
                inp[i] = np.int8(raw[i]) + shape.bias
        else:
            for i in range(inp.shape[0]):
                inp[i] = value(memory, at, i, bits) + shape.bias
    else:
        keep(chips, shape, first, count)
        # A LOAD changes acc only, so tiles of out that equal acc had to be copied.
        acc = chips.acc[first * size : (first + count) * size]
        for i in range(acc.shape[0]):
            acc[i] = value(memory, at, i, bits)


@part
def fill_wgt(chips: Chips, shape: Shape, first: int, count: int, at: int, bits: int) -> None:
    """Write weight tiles. DRAM has a row for each output channel; wgt is interleaved (see machine.interleaved)."""
    memory = chips.memory
    block = shape.block
    group = min(GROUP, shape.block)
    for tile in range(count):
        wgt = chips.wgt[(first + tile) * block * block : (first + tile + 1) * block * block]
        begin = tile * block * block
        if bits == 8 and block == LANES:
            interleaved(wgt, memory[at + begin :])
        else:
            for column in range(block):
                for i in range(block):
                    item = value(memory, at, begin + column * block + i, bits)
                    wgt[(i // group * block + column) * group + i % group] = item


@in_llvm(emit_interleaved)
def interleaved(wgt: Array, raw: Array) -> None:
    """Write a wgt tile of LANES**2 values of 8 bits. In DRAM, the row of an output channel is contiguous."""
    rows = raw[: LANES * LANES].view(np.int8).reshape(LANES, LANES // GROUP, GROUP)
    wgt[: LANES * LANES] = rows.swapaxes(0, 1).reshape(-1)


def value(memory: Array, at: int, index: int, bits: int) -> int:
    """Return value number `index` of an array at DRAM byte `at`: two's complement, little-endian, low bits first."""
    sign = np.int64(1) << (bits - 1)
    field = np.int64(memory[at + index * bits // 8]) >> (index * bits % 8)
    for byte in range(1, bits // 8):
        field |= np.int64(memory[at + index * bits // 8 + byte]) << (8 * byte)
    return int(((field & (2 * sign - 1)) ^ sign) - sign)


def keep(chips: Chips, shape: Shape, first: int, count: int) -> None:
    """Copy the mirrored acc tiles to out, before an instruction changes acc but not out."""
    if not shape.out_memory:
        return
    size = shape.batch * shape.block
    for tile in range(first, first + count):
        if chips.mirrors[tile]:
            for i in range(tile * size, (tile + 1) * size):
                chips.out[i] = chips.acc[i]
            chips.mirrors[tile] = False


@part
def store(steps: Steps, chips: Chips, shape: Shape, step: int) -> None:
    """Execute a STORE: copy tiles of the out memory to DRAM, each value truncated to its low bits."""
    size = shape.batch * shape.block
    columns = steps.columns[step]
    bits = steps.bits[step]
    for row in range(steps.rows[step]):
        at = chips.places[step] + row * steps.stride[step]
        first = steps.base[step] + row * columns
        for tile in range(columns):
            low = (first + tile) * size
            to = at + tile * (size * bits // 8)
            if chips.mirrors[first + tile]:
                pack(chips.memory, chips.acc[low : low + size], to, bits)
            else:
                pack(chips.memory, chips.out[low : low + size], to, bits)


@part
def pack(memory: Array, values: Array, at: int, bits: int) -> None:
    """Write values of at most 8 bits to DRAM, from byte `at` on: the inverse of `value`."""
    if bits == 8:
        target = memory[at : at + values.shape[0]]
        for i in range(values.shape[0]):
            target[i] = values[i] & 255
        return
    for byte in range(values.shape[0] * bits // 8):
        field = np.int64(values[byte * 8 // bits]) >> (byte * 8 % bits)
        for i in range(1, 8 // bits):
            field = (field & ((1 << (i * bits)) - 1)) | np.int64(values[byte * 8 // bits + i]) << (i * bits)
        memory[at + byte] = field & 255


@part
def multiply(kernels: KernelTable, tiles: Uops, chips: Chips, shape: Shape, kernel: int) -> None:
    """Execute a GEMM: add products of tiles to accumulator tiles."""
    inner = kernels.iter_in[kernel]
    wgt_step = kernels.wgt_factor_in[kernel]
    count = 1 if wgt_step else max(1, inner)  # products of one wgt tile at once
    to_step = kernels.dst_factor_in[kernel]
    by_step = kernels.src_factor_in[kernel]
    for outer in range(kernels.iter_out[kernel]):
        for uop in range(kernels.start[kernel], kernels.stop[kernel]):
            dst = outer * kernels.dst_factor_out[kernel] + tiles.dst[uop]
            src = outer * kernels.src_factor_out[kernel] + tiles.src[uop]
            wgt = outer * kernels.wgt_factor_out[kernel] + tiles.wgt[uop]
            # The loop over `inner` is the innermost loop, because its iterations mostly use the same wgt tile.
            for first in range(0, inner, count):
                to, by, of = dst + first * to_step, src + first * by_step, wgt + first * wgt_step
                if shape.in_lanes:
                    add_lanes(chips, shape, (to, to_step), (by, by_step), of, count)
                    continue
                for i in range(count):
                    add(chips, shape, to + i * to_step, by + i * by_step, of)
            if to_step == 1:
                chips.mirrors[dst : dst + inner] = True
            else:
                for i in range(inner):
                    chips.mirrors[dst + i * to_step] = True


@part
def add_lanes(chips: Chips, shape: Shape, dst: tuple[int, int], src: tuple[int, int], wgt: int, count: int) -> None:
    """Add products of `count` inp tiles with one wgt tile. `dst`, `src`: the first tile, and the step between tiles."""
    block = shape.block
    size = shape.batch * shape.block
    for line in range(shape.batch):
        for low in range(0, block, LANES):
            for first in range(0, block, LANES):
                to = dst[0] * size + line * block + low
                by = src[0] * size + line * block + first
                of = wgt * block * block + first * block + GROUP * low
                pitch = GROUP * block
                products(chips.acc, to, chips.inp, by, chips.wgt, of, pitch, count, dst[1] * size, src[1] * size)


def add(chips: Chips, shape: Shape, dst: int, src: int, wgt: int) -> None:
    block = shape.block
    group = min(GROUP, shape.block)
    for line in range(shape.batch):
        to = (dst * shape.batch + line) * block
        by = (src * shape.batch + line) * block
        of = wgt * block * block
        for column in range(block):
            total = np.int64(0)
            for i in range(block):
                weight = chips.wgt[of + (i // group * block + column) * group + i % group]
                total += (np.int64(chips.inp[by + i]) - shape.bias) * np.int64(weight)
            chips.acc[to + column] += total


@in_llvm(emit_products)
def products(
    acc: Array, at: int, inp: Array, x: int, wgt: Array, w: int, pitch: int, count: int, to_step: int, by_step: int
) -> None:
    """Multiply LANES inp values by LANES**2 wgt values and add to LANES acc values; row i of wgt is for inp value i.

    `pitch`: the values from one group of GROUP interleaved rows of weights to the next. The product is repeated `count`
    times with the same weights, in steps of `to_step` values of acc and `by_step` values of inp.
    """
    rows = np.lib.stride_tricks.as_strided(wgt[w:], (LANES // GROUP, GROUP, LANES), (pitch, 1, GROUP))
    weights = rows.reshape(LANES, LANES).astype(acc.dtype)
    for i in range(count):
        to = at + i * to_step
        by = x + i * by_step
        acc[to : to + LANES] += (inp[by : by + LANES].astype(acc.dtype) - BIAS) @ weights


@part
def change(
    kernels: KernelTable, tiles: Uops, shifts: Array, chips: Chips, shape: Shape, kernel: int, kind: int
) -> None:
    """Execute an ALU instruction or a reset GEMM. An inner loop over adjacent tiles is a single step."""
    # RESET_OUT handles the tiles one by one, because it adds another product to each tile.
    at_once = kernels.adjacent[kernel] and kind != RESET_OUT
    count = kernels.iter_in[kernel] if at_once else 1
    size = shape.batch * shape.block
    for outer in range(kernels.iter_out[kernel]):
        for inner in range(1 if at_once else kernels.iter_in[kernel]):
            to = outer * kernels.dst_factor_out[kernel] + inner * kernels.dst_factor_in[kernel]
            by = outer * kernels.src_factor_out[kernel] + inner * kernels.src_factor_in[kernel]
            of = outer * kernels.wgt_factor_out[kernel] + inner * kernels.wgt_factor_in[kernel]
            for uop in range(kernels.start[kernel], kernels.stop[kernel]):
                dst, src, wgt = to + tiles.dst[uop], by + tiles.src[uop], of + tiles.wgt[uop]
                if kind == ALU:
                    chips.mirrors[dst : dst + count] = True
                    target = chips.acc[dst * size : (dst + count) * size]
                    operate(kernels, shifts, kernel, target, chips.acc[src * size : (src + count) * size])
                else:
                    reset(chips, shape, kind, dst, src, wgt, count)


@part
def reset(chips: Chips, shape: Shape, kind: int, dst: int, src: int, wgt: int, count: int) -> None:
    """Clear `count` accumulator tiles. For RESET_OUT, `count` is 1, and out gets the old sum plus a product."""
    size = shape.batch * shape.block
    if kind == RESET_OUT:
        add(chips, shape, dst, src, wgt)
    if kind != RESET_KEEP:
        chips.mirrors[dst : dst + count] = True
    if kind != RESET:
        keep(chips, shape, dst, count)
    chips.acc[dst * size : (dst + count) * size] = 0


def change_own(kernels: KernelTable, tiles: Uops, code: Expressions, chips: Chips, shape: Shape, kernel: int) -> None:
    """Execute an ALU operation that the user defined. This code is separate, because it would slow down `change`."""
    count = kernels.iter_in[kernel] if kernels.adjacent[kernel] else 1
    size = shape.batch * shape.block
    for outer in range(kernels.iter_out[kernel]):
        for inner in range(1 if kernels.adjacent[kernel] else kernels.iter_in[kernel]):
            for uop in range(kernels.start[kernel], kernels.stop[kernel]):
                dst = outer * kernels.dst_factor_out[kernel] + inner * kernels.dst_factor_in[kernel] + tiles.dst[uop]
                src = outer * kernels.src_factor_out[kernel] + inner * kernels.src_factor_in[kernel] + tiles.src[uop]
                chips.mirrors[dst : dst + count] = True
                # Several tiles are computed together if no tile reads the result of another.
                several = max(1, code.stack.shape[1] // size)
                several = 1 if 0 < dst - src < count and not kernels.use_imm[kernel] else several
                for tile in range(0, count, several):
                    low, high = tile * size, min(tile + several, count) * size
                    target = chips.acc[dst * size + low : dst * size + high]
                    compute_own(code, kernels, kernel, target, chips.acc[src * size + low : src * size + high])


def compute_own(code: Expressions, kernels: KernelTable, kernel: int, first: Array, second: Array) -> None:
    """Combine accumulators with other operands by an own operation, one step of its expression at a time."""
    size = first.shape[0]
    number = kernels.code[kernel] - FIRST_OWN
    depth = 0  # values on the stack: a step's operands begin at `a`, and the result replaces the first operand
    for step in range(code.start[number], code.stop[number]):
        do = code.do[step]
        value = code.value[step]
        if do <= Do.CONSTANT:
            a = code.stack[depth]
            depth += 1
            if do == Do.DST:
                for j in range(size):
                    a[j] = first[j]
            elif do == Do.SRC and not kernels.use_imm[kernel]:
                for j in range(size):
                    a[j] = second[j]
            else:
                for j in range(size):
                    a[j] = value if do == Do.CONSTANT else kernels.imm[kernel]
        elif do == Do.ABS:
            a = code.stack[depth - 1]
            for j in range(size):
                a[j] = a[j] if a[j] >= 0 else -a[j]
        elif do == Do.WRAP:
            a = code.stack[depth - 1]
            for j in range(size):
                a[j] = a[j] << (64 - value) >> (64 - value)
        elif do == Do.WHERE:
            depth -= 2
            a, b, c = code.stack[depth - 1], code.stack[depth], code.stack[depth + 1]
            for j in range(size):
                a[j] = b[j] if a[j] != 0 else c[j]
        else:
            depth -= 1
            if do <= Do.XOR:
                combine(do, code.stack[depth - 1], code.stack[depth], size)
            else:
                shift_or_compare(do, code.stack[depth - 1], code.stack[depth], size)
    for j in range(size):
        first[j] = code.stack[0, j]


@part
def combine(do: int, a: Array, b: Array, size: int) -> None:
    """Add, subtract, multiply, or combine bits of two values. The result is in `a`."""
    if do == Do.ADD:
        for j in range(size):
            a[j] += b[j]
    elif do == Do.SUB:
        for j in range(size):
            a[j] -= b[j]
    elif do == Do.MUL:
        for j in range(size):
            a[j] *= b[j]
    elif do == Do.AND:
        for j in range(size):
            a[j] &= b[j]
    elif do == Do.OR:
        for j in range(size):
            a[j] |= b[j]
    else:
        for j in range(size):
            a[j] ^= b[j]


@part
def shift_or_compare(do: int, a: Array, b: Array, size: int) -> None:
    """Execute a shift or a comparison of two values. The result is in `a`."""
    if do == Do.SHL:
        for j in range(size):
            a[j] = a[j] << (b[j] & 63) if b[j] >> 6 == 0 else 0  # other amounts than 0..63 shift all bits out
    elif do == Do.SHR:
        for j in range(size):
            a[j] = a[j] >> (b[j] if b[j] >> 6 == 0 else 63)
    elif do == Do.MIN:
        for j in range(size):
            a[j] = min(a[j], b[j])
    elif do == Do.MAX:
        for j in range(size):
            a[j] = max(a[j], b[j])
    elif do == Do.LESS:
        for j in range(size):
            a[j] = a[j] < b[j]
    else:
        for j in range(size):
            a[j] = a[j] == b[j]


@part
def operate(kernels: KernelTable, shifts: Array, kernel: int, target: Array, second: Array) -> None:
    """Combine accumulators with other accumulators or an immediate, in the order of the values."""
    op = kernels.code[kernel]
    imm = np.int32(kernels.imm[kernel])
    table = kernels.table[kernel]
    amounts = shifts.shape[1] // 2
    # Column `amounts + low bits` is for negative operands (see Machine._shifts).
    always = shifts[table, (imm & (amounts - 1)) + (amounts if imm < 0 else 0)]
    if kernels.use_imm[kernel]:
        if kernels.first_is_src[kernel]:
            operate_immediate(target, second, op, imm, always)
        else:  # the same array twice, so that LLVM sees that it works in place
            operate_immediate(target, target, op, imm, always)
    elif op == AluOp.MIN:
        for j in range(target.shape[0]):
            target[j] = min(target[j], second[j])
    elif op == AluOp.MAX:
        for j in range(target.shape[0]):
            target[j] = max(target[j], second[j])
    elif op == AluOp.ADD:
        for j in range(target.shape[0]):
            target[j] = np.int64(target[j]) + np.int64(second[j])
    elif op == AluOp.MUL:
        for j in range(target.shape[0]):
            target[j] = np.int64(target[j]) * np.int64(second[j])
    elif op == AluOp.SHR:
        for j in range(target.shape[0]):
            y = np.int64(second[j])
            amount = shifts[table, (y & (amounts - 1)) + (amounts if y < 0 else 0)]
            x = np.int64(target[j])
            target[j] = x >> amount if amount >= 0 else x << -amount


@part
def operate_immediate(target: Array, first: Array, op: int, imm: np.int32, always: int) -> None:
    """Combine the values of `first` with an immediate. SHR shifts right by `always` (left if negative)."""
    if op == AluOp.MIN:
        for j in range(target.shape[0]):
            target[j] = min(np.int32(first[j]), imm)
    elif op == AluOp.MAX:
        for j in range(target.shape[0]):
            target[j] = max(np.int32(first[j]), imm)
    elif op == AluOp.ADD:
        for j in range(target.shape[0]):
            target[j] = np.int64(first[j]) + imm
    elif op == AluOp.MUL:
        for j in range(target.shape[0]):
            target[j] = np.int64(first[j]) * imm
    elif op == AluOp.SHR and always >= 0:
        for j in range(target.shape[0]):
            target[j] = np.int32(first[j]) >> np.int32(always)
    elif op == AluOp.SHR:
        for j in range(target.shape[0]):
            target[j] = np.int64(first[j]) << -always
