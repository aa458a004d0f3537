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
from tilewright.targets.cfu.config import EXTENSIONS, IMAGE_BYTES, RAM_BASE
from tilewright.targets.cfu.jit import callee

from .gemm import busy_cycles, scaled, work, wrapped
from .state import CHANNELS, FIELDS, IMAGE_WORDS, Misuse, Reg, note

PIPELINE = 3  # latency of requantisation, once per launch: product, high half, shift and clamp
DIVIDE = 34  # cycles of the division of a mean, as in the CPU's divider
#: Like the L2, the DMA reads one line at a time from an open row (LiteDRAM). With `burst` it pays the latency once per
#: row and then reads the port's 64 bits per cycle. This is an assumption: CPU traffic on the same DRAM is ignored.
LINE_BYTES, LINE_CYCLES = 16, 15
ROW_BYTES, ROW_CYCLES, PORT_BYTES = 2048, 20, 8
BURST = 1 << EXTENSIONS.index("burst")
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
    _command(regs, Misuse.WRITE_BUSY, cycle)
    image, word = _image(regs), (regs[Reg.POINTER] & IMAGE_BYTES - 1) >> 2
    buffers[image + word] = a
    buffers[image + (word + 1 & IMAGE_WORDS - 1)] = b
    regs[Reg.POINTER] = (regs[Reg.POINTER] & IMAGE_BYTES - 1) + 8


@callee
def get_image(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction get_image: answer with the next word of the image memory."""
    _command(regs, Misuse.READ_BUSY, cycle)
    at = regs[Reg.POINTER] & IMAGE_BYTES - 1
    regs[Reg.POINTER] = at + 4
    regs[Reg.ANSWER] = buffers[_image(regs) + (at >> 2)]


@callee
def push_channel(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction push_channel: set the current channel's bias to a and its multiplier to b."""
    _command(regs, Misuse.WRITE_BUSY, cycle)
    entry = _tables(regs) + (regs[Reg.CHANNEL] & CHANNELS - 1)
    buffers[entry], buffers[entry + CHANNELS] = a, b


@callee
def push_shift(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction push_shift: set the current channel's shift to a, and go to the next channel."""
    _command(regs, Misuse.WRITE_BUSY, cycle)
    buffers[_tables(regs) + 2 * CHANNELS + (regs[Reg.CHANNEL] & CHANNELS - 1)] = a
    regs[Reg.CHANNEL] += 1


@callee
def start_conv(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction start_conv: convolve within the image memory, after any running fetch of weights."""
    _command(regs, Misuse.WRITE_BUSY, cycle)
    work(regs, cycle, max(0, regs[Reg.FETCHED] - cycle) + _convolve(regs, buffers, _image(regs)))
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
    b_base, words, tables, offset = rows * lanes // 4, lanes // 4, _tables(regs), regs[Reg.INPUT_OFFSET]
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
            entry = tables + (channel & CHANNELS - 1)
            acc = wrapped(total + buffers[entry])
            code = scaled(acc, int(buffers[entry + CHANNELS]), int(buffers[entry + 2 * CHANNELS]))
            _store(regs, buffers, image, pixel * out_c + channel, code + regs[Reg.OUTPUT_OFFSET])
    return busy_cycles(pixels, out_c, depth, lanes) + PIPELINE + -(-pixels * out_c // 4)


@callee
def start_add(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction start_add: add tensors like TFLite, the second with factor 1/2. Two elements per cycle."""
    _command(regs, Misuse.WRITE_BUSY, cycle)
    size, image = regs[Reg.OUT_H] * regs[Reg.OUT_W] * regs[Reg.OUT_C], _image(regs)
    for index in range(size):
        x = _byte(buffers, image, regs[Reg.INPUT] + index) + regs[Reg.INPUT_OFFSET]
        y = _byte(buffers, image, regs[Reg.INPUT2] + index) + regs[Reg.INPUT2_OFFSET]
        total = scaled(x << 20, regs[Reg.INPUT_MULTIPLIER], regs[Reg.INPUT_SHIFT]) + (y << 19)
        code = scaled(total, regs[Reg.OUTPUT_MULTIPLIER], regs[Reg.OUTPUT_SHIFT])
        _store(regs, buffers, image, index, code + regs[Reg.OUTPUT_OFFSET])
    work(regs, cycle, PIPELINE + -(-size // 4) * 2)


@callee
def start_pool(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction start_pool: compute the mean of each channel, with ties away from zero.
    It adds up four channels per cycle, and then divides once per channel."""
    _command(regs, Misuse.WRITE_BUSY, cycle)
    pixels, channels, image = regs[Reg.IN_H] * regs[Reg.IN_W], regs[Reg.IN_C], _image(regs)
    for channel in range(channels):
        total = 0
        for pixel in range(pixels):
            total += _byte(buffers, image, regs[Reg.INPUT] + pixel * channels + channel)
        half = pixels // 2 if total > 0 else -(pixels // 2)
        mean = abs(total + half) // pixels
        _store(regs, buffers, image, channel, mean if total + half > 0 else -mean)
    work(regs, cycle, -(-channels // 4) * pixels + channels * DIVIDE)


@callee
def fetch(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction fetch: read b bytes at address a into rows of B. Note a misuse if these rows are in use."""
    if fetch_meets_rows(regs, b, cycle):
        note(regs, Misuse.WRITE_BUSY, cycle, regs[Reg.FUNCT7])
    regs[Reg.ANSWER] = 0
    base, size = (a & 0xFFFFFFFF) - RAM_BASE, regs[Reg.ROWS] * regs[Reg.LANES]  # bytes of B
    if 0 <= base <= base + b <= ram.shape[0] and b <= size:
        regs[Reg.FETCHED_BYTES] += b
        first = regs[Reg.FETCH_ROW] * (regs[Reg.LANES] // 4)
        for word in range(b // 4):
            at = base + 4 * word
            low, high = (
                np.int64(ram[at]) | np.int64(ram[at + 1]) << 8,
                np.int64(ram[at + 2]) | np.int64(ram[at + 3]) << 8,
            )
            buffers[size // 4 + (first + word) % (size // 4)] = wrapped(int(low | high << 16))
    cycles = -(-b // LINE_BYTES) * LINE_CYCLES
    if regs[Reg.EXTENSIONS] & BURST:
        cycles = -(-b // PORT_BYTES) + -(-b // ROW_BYTES) * ROW_CYCLES
    regs[Reg.FETCHED] = max(cycle, regs[Reg.FETCHED]) + cycles


@callee
def dot(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction dot: add four products of codes a (zero point -128) and weights b; answer with the sum."""
    _command(regs, Misuse.WRITE_BUSY, cycle)
    total = regs[Reg.DOT]
    for lane in range(4):
        code, weight = (a >> 8 * lane) & 255, (b >> 8 * lane) & 255
        total += ((code + 128) & 255) * (weight - 256 if weight > 127 else weight)
    regs[Reg.DOT] = regs[Reg.ANSWER] = wrapped(total)


@callee
def fetch_meets_rows(regs: Array, nbytes: int, cycle: int) -> bool:
    """Return whether a fetch of `nbytes` would overwrite weights that the running convolution reads."""
    if cycle > regs[Reg.CONVOLVED]:
        return False
    size, tiles = regs[Reg.ROWS], -(-regs[Reg.OUT_C] // regs[Reg.LANES])
    used = tiles * regs[Reg.KERNEL_H] * regs[Reg.KERNEL_W] * regs[Reg.IN_C]
    distance = (regs[Reg.FETCH_ROW] - regs[Reg.ROW]) % size
    return distance < used or distance + nbytes // regs[Reg.LANES] > size


@callee
def _command(regs: Array, misuse: int, cycle: int) -> None:
    """Begin a command of the CFU: set the answer to 0, and note `misuse` if the array is busy."""
    if cycle <= regs[Reg.BUSY_UNTIL]:
        note(regs, misuse, cycle, regs[Reg.FUNCT7])
    regs[Reg.ANSWER] = 0


@callee
def _image(regs: Array) -> int:
    """Return the index of the image memory's first word in the array of all CFU memories (`state.buffers`)."""
    return regs[Reg.ROWS] * regs[Reg.LANES] * 3 // 2


@callee
def _tables(regs: Array) -> int:
    return _image(regs) + IMAGE_WORDS


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
