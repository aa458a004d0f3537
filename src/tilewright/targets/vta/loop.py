"""The value pass over a stretch of short instructions, for one sample: one compiled loop, tile by tile.

Machine runs the same instructions as whole arrays, which is faster where they are large. The tests hold the two
against each other; what an instruction means where implementations differ is decided outside, in `stretch`.
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import compiled

#: What a step does. RESET_OUT: a reset whose value in the out memory is stored; RESET_KEEP: one that leaves out alone.
LOAD, STORE, ADD, RESET, RESET_OUT, RESET_KEEP, ALU = range(7)
#: Operations of the ALU; SHIFT by a table of signed amounts, NONE leaves acc alone.
MIN, MAX, SUM, SHIFT, PRODUCT, NONE = range(6)
#: Where LOAD writes.
TO_INP, TO_WGT, TO_ACC = range(3)
#: Columns of `steps`. LOAD and STORE use all but `kernel`, the others only that; `bits` of a value in DRAM.
STEP = ("kind", "kernel", "to", "base", "top", "left", "height", "width", "rows", "columns", "stride", "bits")
#: Columns of `kernels`: their part of `tiles`; then of the ALU only. `table` is a row of `shifts`.
KERNEL = ("start", "stop", "op", "has_imm", "imm", "first_is_src", "table")


@compiled
def run(
    steps: Array,
    places: Array,
    kernels: Array,
    tiles: Array,
    shifts: Array,
    memory: Array,
    inp: Array,
    wgt: Array,
    acc: Array,
    out: Array,
    mirrors: Array,
    out_memory: bool,
) -> None:
    """Execute `steps` int64 [n, STEP] on the machine's memories, and on DRAM as bytes, `memory` uint8 [m].

    `places` int64 [n]: where in `memory` a step begins. `kernels` int64 [k, KERNEL]; `tiles` int64 [3, t]: dst, src
    and wgt of each micro-op. inp, acc and out [depth * batch, block], wgt [depth * block, block], by input channel;
    mirrors as Machine's. Sums are made in 64 bits and wrap where they are written.
    """
    block, batch = acc.shape[1], acc.shape[0] // mirrors.shape[0]
    amounts = shifts.shape[1] // 2
    values = np.zeros(max(batch, block) * block, np.int64)
    first, second, sums = np.zeros(block, np.int64), np.zeros(block, np.int64), np.zeros(block, inp.dtype)
    for step in range(steps.shape[0]):
        kind, kernel = steps[step, 0], steps[step, 1]
        to, base, width, rows, columns = steps[step, 2], steps[step, 3], steps[step, 7], steps[step, 8], steps[step, 9]
        stride, bits = steps[step, 10], steps[step, 11]
        sign = np.int64(1) << (bits - 1)
        if kind == LOAD:
            lines = block if to == TO_WGT else batch
            size = lines * block
            for place in range(steps[step, 6] * width):
                row, column, tile = place // width - steps[step, 4], place % width - steps[step, 5], base + place
                at = places[step] + row * stride + column * (size * bits // 8)
                if not (0 <= row < rows and 0 <= column < columns):  # padding
                    for i in range(size):
                        values[i] = 0
                elif bits == 8:
                    source = memory[at : at + size]
                    for i in range(size):
                        values[i] = (np.int64(source[i]) ^ 128) - 128
                else:
                    for i in range(size):
                        field = np.int64(memory[at + i * bits // 8]) >> (i * bits % 8)
                        for byte in range(1, bits // 8):
                            field |= np.int64(memory[at + i * bits // 8 + byte]) << (8 * byte)
                        values[i] = ((field & (2 * sign - 1)) ^ sign) - sign
                for line in range(lines):
                    if to == TO_WGT:  # in DRAM by output channel
                        weights = wgt[tile * block + line]
                        for j in range(block):
                            weights[j] = values[j * block + line]
                    elif to == TO_INP:
                        inputs = inp[tile * batch + line]
                        for j in range(block):
                            inputs[j] = values[line * block + j]
                    else:
                        target, result = acc[tile * batch + line], out[tile * batch + line]
                        for j in range(block):
                            if out_memory and mirrors[tile]:
                                result[j] = target[j]
                            target[j] = values[line * block + j]
                if to == TO_ACC:
                    mirrors[tile] = mirrors[tile] and not out_memory
        elif kind == STORE:
            size = batch * block
            for place in range(rows * columns):
                at = places[step] + place // columns * stride + place % columns * (size * bits // 8)
                for line in range(batch):
                    target, result = acc[(base + place) * batch + line], out[(base + place) * batch + line]
                    for j in range(block):
                        values[line * block + j] = target[j] if mirrors[base + place] else result[j]
                if bits == 8:
                    copied = memory[at : at + size]
                    for i in range(size):
                        copied[i] = values[i] & 255
                else:
                    for byte in range(size * bits // 8):
                        field = values[byte * 8 // bits] >> (byte * 8 % bits)
                        for i in range(1, 8 // bits):
                            field = (field & ((1 << (i * bits)) - 1)) | values[byte * 8 // bits + i] << (i * bits)
                        memory[at + byte] = field & 255
        elif kind != ALU:  # a GEMM
            for uop in range(kernels[kernel, 0], kernels[kernel, 1]):
                dst, src, tile = tiles[0, uop], tiles[1, uop], tiles[2, uop]
                keeps = kind == RESET_KEEP and out_memory and mirrors[dst]
                mirrors[dst] = kind in (ADD, RESET) or not out_memory
                for line in range(batch):
                    target, result = acc[dst * batch + line], out[dst * batch + line]
                    if kind in (RESET, RESET_KEEP):
                        for j in range(block):
                            if keeps:
                                result[j] = target[j]
                            target[j] = 0
                        continue
                    inputs = inp[src * batch + line]
                    for j in range(block):
                        sums[j] = 0
                    for i in range(block):
                        weights = wgt[tile * block + i]
                        for j in range(block):
                            sums[j] += inputs[i] * weights[j]
                    for j in range(block):
                        target[j] = np.int64(target[j]) + np.int64(sums[j])
                        if kind == RESET_OUT:
                            result[j] = target[j]
                            target[j] = 0
        else:
            op, has_imm, imm, table = kernels[kernel, 2], kernels[kernel, 3], kernels[kernel, 4], kernels[kernel, 6]
            amount = shifts[table, (imm & (amounts - 1)) + (amounts if imm < 0 else 0)]
            for uop in range(kernels[kernel, 0], kernels[kernel, 1]):
                dst, src = tiles[0, uop], tiles[1, uop]
                mirrors[dst] = True
                for line in range(batch):
                    target, other = acc[dst * batch + line], acc[src * batch + line]
                    for j in range(block):
                        first[j] = other[j] if kernels[kernel, 5] else target[j]
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
                        for j in range(block):
                            y = second[j]
                            if not has_imm:
                                amount = shifts[table, (y & (amounts - 1)) + (amounts if y < 0 else 0)]
                            first[j] = first[j] >> amount if amount >= 0 else first[j] << -amount
                    for j in range(block):
                        target[j] = first[j]
