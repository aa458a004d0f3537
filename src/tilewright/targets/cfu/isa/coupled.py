"""Extensions of the CFU: it keeps activations in an image memory and addresses their elements itself.

The image memory has 16 banks, with pixel p of a tensor in bank p mod 16 and four channels per word. Both ports of each
bank together read 16 windows of stride 1 or 2 per cycle, so a launch takes as many array cycles as in the document.
Four results per cycle are then requantised and written back as bytes, after the array has finished. The model computes
values at once, and reports a program that accesses them before the command ends. Meanings of instructions take the
arguments of gemm.py and answer 0 unless their docstring says otherwise.
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.targets.cfu.config import EXTENSIONS, IMAGE_BYTES
from tilewright.targets.cfu.jit import callee

from .gemm import busy_cycles, scaled, work, wrapped
from .memory import command, filling, image_at, tables_at
from .state import CHANNELS, FIELDS, IMAGE_WORDS, Misuse, Reg

PIPELINE = 3  # latency of requantisation, once per launch: product, high half, shift and clamp
DIVIDE = 34  # cycles of the division of a mean, as in the CPU's divider
OVERLAP, ADD4 = 1 << EXTENSIONS.index("overlap"), 1 << EXTENSIONS.index("add4")
BANKS = 16
REGISTERS = len(FIELDS)


@callee
def put(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction put: set layer register number a to b."""
    if 0 <= a < REGISTERS:
        regs[Reg.IN_H + a] = b
    regs[Reg.ANSWER] = 0


@callee
def push_image(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction push_image: write a and b as the next two words of the image memory."""
    command(regs, Misuse.WRITE_BUSY, cycle)
    filling(regs, Misuse.WRITE_BUSY, cycle)
    image, word = image_at(regs), (regs[Reg.POINTER] & IMAGE_BYTES - 1) >> 2
    buffers[image + word] = a
    buffers[image + (word + 1 & IMAGE_WORDS - 1)] = b
    regs[Reg.POINTER] = (regs[Reg.POINTER] & IMAGE_BYTES - 1) + 8


@callee
def get_image(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction get_image: answer with the next word of the image memory."""
    command(regs, Misuse.READ_BUSY, cycle)
    filling(regs, Misuse.READ_BUSY, cycle)
    at = regs[Reg.POINTER] & IMAGE_BYTES - 1
    regs[Reg.POINTER] = at + 4
    regs[Reg.ANSWER] = buffers[image_at(regs) + (at >> 2)]


@callee
def push_channel(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction push_channel: set the current channel's bias to a and its multiplier to b."""
    command(regs, Misuse.WRITE_BUSY, cycle)
    entry = tables_at(regs) + (regs[Reg.CHANNEL] & CHANNELS - 1)
    buffers[entry], buffers[entry + CHANNELS] = a, b


@callee
def push_shift(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction push_shift: set the current channel's shift to a, and go to the next channel."""
    command(regs, Misuse.WRITE_BUSY, cycle)
    buffers[tables_at(regs) + 2 * CHANNELS + (regs[Reg.CHANNEL] & CHANNELS - 1)] = a
    regs[Reg.CHANNEL] += 1


@callee
def start_conv(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction start_conv: convolve within the image memory, after any running fetches."""
    command(regs, Misuse.WRITE_BUSY, cycle)
    work(regs, cycle, max(0, regs[Reg.FETCHED] - cycle) + _convolve(regs, buffers, image_at(regs)))
    regs[Reg.CONVOLVED] = regs[Reg.BUSY_UNTIL]
    regs[Reg.MACS] += (
        regs[Reg.OUT_H] * regs[Reg.OUT_W] * regs[Reg.OUT_C] * regs[Reg.KERNEL_H] * regs[Reg.KERNEL_W] * regs[Reg.IN_C]
    )
    regs[Reg.B_ROW] = -1
    regs[Reg.CHANNEL] = 0


@callee
def _convolve(regs: Array, buffers: Array, image: int) -> int:
    """Convolve within the image memory; return the cycles. Weights lie in buffer B by window row, column, channel."""
    in_h, in_w, in_c = regs[Reg.IN_H], regs[Reg.IN_W], regs[Reg.IN_C]
    kernel_h, kernel_w = regs[Reg.KERNEL_H], regs[Reg.KERNEL_W]
    out_w, out_c, lanes, rows = regs[Reg.OUT_W], regs[Reg.OUT_C], regs[Reg.LANES], regs[Reg.ROWS]
    depth, pixels = kernel_h * kernel_w * in_c, regs[Reg.OUT_H] * out_w
    b_base, words, tables, offset = rows * lanes // 4, lanes // 4, tables_at(regs), regs[Reg.INPUT_OFFSET]
    for pixel in range(pixels):
        y_first = pixel // out_w * regs[Reg.STRIDE_H] - regs[Reg.PAD_H]
        x_first = pixel % out_w * regs[Reg.STRIDE_W] - regs[Reg.PAD_W]
        for channel in range(out_c):
            total, row = 0, regs[Reg.ROW] + channel // lanes * depth
            shift = 24 - 8 * (channel & 3)
            column = channel % lanes >> 2
            for y in range(y_first, y_first + kernel_h):
                for x in range(x_first, x_first + kernel_w):
                    if 0 <= y < in_h and 0 <= x < in_w:
                        first = regs[Reg.INPUT] + (y * in_w + x) * in_c
                        for c in range(in_c):
                            word = buffers[b_base + (row + c & rows - 1) * words + column]
                            weight = (word >> shift) & 255
                            weight = weight - 256 if weight > 127 else weight
                            total += (_byte(buffers, image, first + c) + offset) * weight
                    row += in_c
            entry = tables + (regs[Reg.TABLE] + channel & CHANNELS - 1)
            acc = wrapped(total + buffers[entry])
            code = scaled(acc, int(buffers[entry + CHANNELS]), int(buffers[entry + 2 * CHANNELS]))
            _store(regs, buffers, image, pixel * out_c + channel, code + regs[Reg.OUTPUT_OFFSET])
    # A word of four channels serves the array for four cycles, so one port of each bank is left for results. A last
    # word of one channel serves it for one cycle only, in which windows of stride 2 need both ports.
    if regs[Reg.EXTENSIONS] & OVERLAP and (regs[Reg.STRIDE_W] == 1 or in_c % 4 != 1):
        return overlapped_cycles(pixels, out_c, depth, lanes)
    return busy_cycles(pixels, out_c, depth, lanes) + PIPELINE + -(-pixels * out_c // 4)


@callee
def overlapped_cycles(pixels: int, out_c: int, depth: int, lanes: int) -> int:
    """Return the cycles of a convolution that stores each tile while the array computes the next tiles.

    A tile is stored, four results of a row per cycle, when it is in buffer C and all tiles before it are stored.
    """
    computed, stored = 1, 1
    for first_row in range(0, pixels, lanes):
        rows = min(lanes, pixels - first_row)
        for first_column in range(0, out_c, lanes):
            columns = min(lanes, out_c - first_column)
            computed += depth + lanes + rows
            stored = max(stored, computed) + rows * -(-columns // 4)
    return stored + PIPELINE


@callee
def start_add(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction start_add: add tensors like TFLite, the second with factor 1/2. Two elements per cycle.

    With `add4` it adds four elements per cycle. It goes from pixel to pixel, so that it reads two operands in one bank
    while it writes a result in another. Tensors of fewer pixels than banks take twice as long.
    """
    command(regs, Misuse.WRITE_BUSY, cycle)
    size, image = regs[Reg.OUT_H] * regs[Reg.OUT_W] * regs[Reg.OUT_C], image_at(regs)
    for index in range(size):
        x = _byte(buffers, image, regs[Reg.INPUT] + index) + regs[Reg.INPUT_OFFSET]
        y = _byte(buffers, image, regs[Reg.INPUT2] + index) + regs[Reg.INPUT2_OFFSET]
        total = scaled(x << 20, regs[Reg.INPUT_MULTIPLIER], regs[Reg.INPUT_SHIFT]) + (y << 19)
        code = scaled(total, regs[Reg.OUTPUT_MULTIPLIER], regs[Reg.OUTPUT_SHIFT])
        _store(regs, buffers, image, index, code + regs[Reg.OUTPUT_OFFSET])
    fast = regs[Reg.EXTENSIONS] & ADD4 and regs[Reg.OUT_H] * regs[Reg.OUT_W] >= BANKS
    work(regs, cycle, max(0, regs[Reg.FILLED] - cycle) + PIPELINE + -(-size // 4) * (1 if fast else 2))


@callee
def start_pool(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction start_pool: compute the mean of each channel, with ties away from zero.
    It adds up four channels per cycle, and then divides once per channel."""
    command(regs, Misuse.WRITE_BUSY, cycle)
    pixels, channels, image = regs[Reg.IN_H] * regs[Reg.IN_W], regs[Reg.IN_C], image_at(regs)
    for channel in range(channels):
        total = 0
        for pixel in range(pixels):
            total += _byte(buffers, image, regs[Reg.INPUT] + pixel * channels + channel)
        half = pixels // 2 if total > 0 else -(pixels // 2)
        mean = abs(total + half) // pixels
        _store(regs, buffers, image, channel, mean if total + half > 0 else -mean)
    work(regs, cycle, max(0, regs[Reg.FILLED] - cycle) + -(-channels // 4) * pixels + channels * DIVIDE)


@callee
def dot(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction dot: add four products of codes a (zero point -128) and weights b; answer with the sum."""
    command(regs, Misuse.WRITE_BUSY, cycle)
    total = regs[Reg.DOT]
    for lane in range(4):
        code, weight = (a >> 8 * lane) & 255, (b >> 8 * lane) & 255
        total += ((code + 128) & 255) * (weight - 256 if weight > 127 else weight)
    regs[Reg.DOT] = regs[Reg.ANSWER] = wrapped(total)


@callee
def _byte(buffers: Array, image: int, at: int) -> int:
    at &= IMAGE_BYTES - 1
    value = (buffers[image + (at >> 2)] >> 8 * (at & 3)) & 255
    return value - 256 if value > 127 else value


@callee
def _store(regs: Array, buffers: Array, image: int, index: int, value: int) -> None:
    """Write `value`, clamped to the layer's range, as byte number `index` of the output in the image memory."""
    value = min(max(value, regs[Reg.LOW]), regs[Reg.HIGH])
    at = regs[Reg.OUTPUT] + index & IMAGE_BYTES - 1
    place, shift = image + (at >> 2), 8 * (at & 3)
    buffers[place] = wrapped(np.int64(buffers[place]) & ~(255 << shift) | (value & 255) << shift)
