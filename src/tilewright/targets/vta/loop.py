"""The value pass over a stretch of short instructions: one compiled loop, tile by tile and sample by sample.

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
    batch: int,
    block: int,
    acc_bits: int,
) -> None:
    """Execute `steps` int64 [n, STEP] on the machine's memories, and on DRAM as bytes, `memory` uint8 [m].

    `places` int64 [n, 2]: where in `memory` a step's first sample lies, and how far apart samples are, 0 where they
    share one. `kernels` int64 [k, KERNEL]; `tiles` int64 [3, t]: dst, src and wgt of each micro-op. inp, acc and out
    are [S, depth * batch * block], wgt [1 or S, depth * block * block], by input channel; mirrors as Machine's.
    """
    samples, size, square = acc.shape[0], batch * block, block * block
    half = np.int64(1) << (acc_bits - 1)  # of the accumulator's range: (x + half & 2 half - 1) - half wraps x
    amounts = shifts.shape[1] // 2
    values = np.zeros(max(size, square), np.int64)
    sums = np.zeros(block, inp.dtype)
    for step in range(steps.shape[0]):
        kind, kernel = steps[step, 0], steps[step, 1]
        to, base, width, rows, columns = steps[step, 2], steps[step, 3], steps[step, 7], steps[step, 8], steps[step, 9]
        first_place, pitch, stride, bits = places[step, 0], places[step, 1], steps[step, 10], steps[step, 11]
        sign = np.int64(1) << (bits - 1)
        if kind == LOAD:
            count = square if to == TO_WGT else size
            for place in range(steps[step, 6] * width):
                row, column = place // width - steps[step, 4], place % width - steps[step, 5]
                tile = base + place
                has_data = 0 <= row < rows and 0 <= column < columns
                keeps = to == TO_ACC and out_memory and mirrors[tile]
                for sample in range(wgt.shape[0] if to == TO_WGT else samples):
                    at = first_place + sample * pitch + row * stride + column * (count * bits // 8)
                    for i in range(count):
                        field = np.int64(0)
                        if has_data and bits == 8:
                            field = np.int64(memory[at + i])
                        elif has_data and bits < 8:
                            field = np.int64(memory[at + i * bits // 8]) >> (i * bits % 8) & (2 * sign - 1)
                        elif has_data:
                            for byte in range(bits // 8):
                                field |= np.int64(memory[at + i * bits // 8 + byte]) << (8 * byte)
                        values[i] = (field ^ sign) - sign
                    if to == TO_WGT:  # in DRAM by output channel
                        for i in range(block):
                            for j in range(block):
                                wgt[sample, tile * square + i * block + j] = values[j * block + i]
                    elif to == TO_INP:
                        for i in range(count):
                            inp[sample, tile * size + i] = values[i]
                    else:
                        for i in range(tile * size, tile * size + size):
                            if keeps:
                                out[sample, i] = acc[sample, i]
                            acc[sample, i] = values[i - tile * size]
                if keeps:
                    mirrors[tile] = False
        elif kind == STORE:
            for place in range(rows * columns):
                tile = base + place
                for sample in range(samples):
                    at = first_place + sample * pitch + place // columns * stride + place % columns * (size * bits // 8)
                    for i in range(size):
                        if mirrors[tile]:
                            values[i] = acc[sample, tile * size + i]
                        else:
                            values[i] = out[sample, tile * size + i]
                    if bits >= 8:
                        for i in range(size):
                            for byte in range(bits // 8):
                                memory[at + i * bits // 8 + byte] = values[i] >> (8 * byte) & 255
                    else:
                        for byte in range(size * bits // 8):
                            field = np.int64(0)
                            for i in range(8 // bits):
                                field |= (values[byte * 8 // bits + i] & (2 * sign - 1)) << (i * bits)
                            memory[at + byte] = field
        elif kind != ALU:  # a GEMM
            for uop in range(kernels[kernel, 0], kernels[kernel, 1]):
                dst, src, weights = tiles[0, uop] * size, tiles[1, uop] * size, tiles[2, uop] * square
                keeps = kind == RESET_KEEP and out_memory and mirrors[tiles[0, uop]]
                mirrors[tiles[0, uop]] = kind in (ADD, RESET) or not out_memory
                for sample in range(samples):
                    own = sample if wgt.shape[0] > 1 else 0
                    for i in range(dst, dst + size if kind in (RESET, RESET_KEEP) else dst):
                        if keeps:
                            out[sample, i] = acc[sample, i]
                        acc[sample, i] = 0
                    for row in range(0, size if kind in (ADD, RESET_OUT) else 0, block):
                        for j in range(block):
                            sums[j] = 0
                        for i in range(block):
                            value = inp[sample, src + row + i]
                            for j in range(block):
                                sums[j] += value * wgt[own, weights + i * block + j]
                        for j in range(block):
                            total = np.int64(acc[sample, dst + row + j]) + np.int64(sums[j])
                            total = ((total + half) & (2 * half - 1)) - half
                            if kind == RESET_OUT:
                                out[sample, dst + row + j] = total
                            acc[sample, dst + row + j] = total if kind == ADD else 0
        else:
            op, has_imm, imm = kernels[kernel, 2], kernels[kernel, 3], kernels[kernel, 4]
            for uop in range(kernels[kernel, 0], kernels[kernel, 1]):
                dst, src = tiles[0, uop] * size, tiles[1, uop] * size
                first = src if kernels[kernel, 5] else dst
                mirrors[tiles[0, uop]] = True
                for sample in range(samples):
                    for i in range(size):
                        x = np.int64(acc[sample, first + i])
                        y = imm if has_imm else np.int64(acc[sample, src + i])
                        if op == MIN:
                            x = min(x, y)
                        elif op == MAX:
                            x = max(x, y)
                        elif op == SUM:
                            x += y
                        elif op == SHIFT:
                            amount = shifts[kernels[kernel, 6], (y & (amounts - 1)) + (amounts if y < 0 else 0)]
                            x = x >> amount if amount >= 0 else x << -amount
                        elif op == PRODUCT:
                            x *= y
                        acc[sample, dst + i] = ((x + half) & (2 * half - 1)) - half
