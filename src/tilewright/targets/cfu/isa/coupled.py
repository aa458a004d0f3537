"""Extensions of the CFU: activations are kept in an image memory, and the CFU addresses their elements itself.

Each lane of the array reads one byte of the image memory per cycle, at any address, so a product takes the same array
cycles as without extensions. Four results per cycle are then requantised and written back as bytes. Registers are
latched when a command starts. While the command runs, the CFU ignores all commands that write memories or start work,
and reads answer 0; the model reports such commands. The functions have the arguments of gemm.py. An instruction answers
0 unless its docstring specifies an answer.
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.cfu.config import EXTENSIONS, IMAGE_BYTES

from .gemm import busy_cycles, scaled, work, wrapped
from .memory import B, command, filled, image_at, registers_at, row_at, sums_at, tables_at, tables_idle
from .state import CHANNELS, IMAGE_PENDING, IMAGE_WORDS, LAYER_BITS, Misuse, Reg, note

PIPELINE = 3  # the latency of requantisation, once per launch: product, high half, shift and clamp
DIVIDE = 34  # the cycles of a division, which computes a mean bit by bit like the CPU's divider
OVERLAP = 1 << EXTENSIONS.index("overlap")
ADD4 = 1 << EXTENSIONS.index("add4")
BANKS = 16
REGISTERS = Reg.TABLE + 1 - Reg.IN_H
#: The bits of each register for `put` (negative: signed). A register with 0 bits is not a layer register.
BITS = np.array([LAYER_BITS.get(Reg(Reg.IN_H + number), 0) for number in range(REGISTERS)], np.int64)
SHIFT_BITS = 6  # of a shift in the channel tables
OFFSET_BITS = 9  # of a value plus its offset


def put(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction put: set layer register number a to the low bits of b."""
    if 0 <= a < REGISTERS and BITS[a]:
        regs[Reg.IN_H + a] = signed(b, -BITS[a]) if BITS[a] < 0 else b & (1 << BITS[a]) - 1
    regs[Reg.ANSWER] = 0


def signed(value: int, bits: int) -> int:
    """Return the low `bits` bits of `value` as a signed number."""
    half = 1 << bits - 1
    return (value + half & 2 * half - 1) - half


def push_image(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction push_image: write a and b as the next two words of the image memory."""
    idle = command(regs, Misuse.WRITE_BUSY, cycle)
    if filled(regs, Misuse.WRITE_BUSY, cycle) and idle:
        image = image_at(regs)
        word = (regs[Reg.POINTER] & IMAGE_BYTES - 1) >> 2
        buffers[image + word] = a
        buffers[image + (word + 1 & IMAGE_WORDS - 1)] = b
    regs[Reg.POINTER] = (regs[Reg.POINTER] & IMAGE_BYTES - 1) + 8


def get_image(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction get_image: answer with the next word of the image memory."""
    idle = command(regs, Misuse.READ_BUSY, cycle)
    at = regs[Reg.POINTER] & IMAGE_BYTES - 1
    regs[Reg.POINTER] = at + 4
    # The memory is read in the cycle before the command, in which a fetch may still write its last word.
    if filled(regs, Misuse.READ_BUSY, cycle - 1) and idle:
        regs[Reg.ANSWER] = buffers[image_at(regs) + (at >> 2)]


def push_channel(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction push_channel: set the current channel's bias to a and its multiplier to b."""
    if tables_idle(regs, cycle):
        entry = tables_at(regs) + (regs[Reg.CHANNEL] & CHANNELS - 1)
        buffers[entry] = a
        buffers[entry + CHANNELS] = b


def push_shift(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction push_shift: set the current channel's shift to a, and go to the next channel."""
    if tables_idle(regs, cycle):
        buffers[tables_at(regs) + 2 * CHANNELS + (regs[Reg.CHANNEL] & CHANNELS - 1)] = signed(a, SHIFT_BITS)
    regs[Reg.CHANNEL] += 1


def _begins(regs: Array, cycle: int, empty: bool) -> bool:
    """Begin a command on the image memory. If the CFU is busy or a size is 0, the command is lost; return False."""
    idle = command(regs, Misuse.WRITE_BUSY, cycle)
    if empty:
        note(regs, Misuse.EMPTY, cycle, 0)
    elif idle:
        regs[Reg.PENDING] = IMAGE_PENDING
    return idle and not empty


def start_conv(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction start_conv: convolve within the image memory, after any running fetches."""
    pixels = regs[Reg.OUT_H] * regs[Reg.OUT_W]
    depth = regs[Reg.KERNEL_H] * regs[Reg.KERNEL_W] * regs[Reg.IN_C]
    if not _begins(regs, cycle, pixels * regs[Reg.OUT_C] * depth == 0):
        return
    work(regs, cycle, max(0, regs[Reg.FETCHED] - cycle) + _convolve(regs, buffers, pixels, depth))
    regs[Reg.CONVOLVED] = regs[Reg.BUSY_UNTIL]
    regs[Reg.MACS] += pixels * regs[Reg.OUT_C] * depth
    regs[Reg.B_ROW] = -1
    regs[Reg.B_ENABLED] = regs[Reg.CHANNEL] = 0


def _convolve(regs: Array, buffers: Array, pixels: int, depth: int) -> int:
    # Weights are in buffer B by window row, column, channel. Rows of sums go to C in the order in which the array
    # computes them, and from there to requantisation.
    out_c = regs[Reg.OUT_C]
    lanes = regs[Reg.LANES]
    rows = regs[Reg.ROWS]
    # Results can be written while the array reads if each bank has a free port. Usually a lane reads a word of four
    # channels, and needs no port for the next three cycles. The last word of a pixel may have a single channel. Then
    # the lanes need a port in the next cycle again. With a stride of 2, they need both ports, so no write is possible.
    overlaps = regs[Reg.EXTENSIONS] & OVERLAP and (regs[Reg.STRIDE_W] == 1 or regs[Reg.IN_C] % 4 != 1)
    if overlaps and _aliases(regs, regs[Reg.IN_H] * regs[Reg.IN_W] * regs[Reg.IN_C], pixels * out_c):
        # The hardware would read some results instead of inputs. The model works tile by tile, so its values differ.
        note(regs, Misuse.WRITE_BUSY, regs[Reg.BUSY_UNTIL], regs[Reg.FUNCT7])
    row = 0
    for first in range(0, pixels, lanes):
        height = min(lanes, pixels - first)
        for column in range(0, out_c, lanes):
            for pixel in range(height):
                _sum_window(regs, buffers, first + pixel, column // lanes * depth, sums_at(regs, row + pixel))
            if overlaps:
                _store_tile(regs, buffers, first, height, column, row)
            row += height
    if overlaps:
        return overlapped_cycles(pixels, out_c, depth, lanes)
    if row > rows:
        note(regs, Misuse.ROWS, regs[Reg.BUSY_UNTIL], row)
    row = 0
    for first in range(0, pixels, lanes):
        height = min(lanes, pixels - first)
        for column in range(0, out_c, lanes):
            _store_tile(regs, buffers, first, height, column, row)
            row += height
    return busy_cycles(pixels, out_c, depth, lanes) + PIPELINE + pixels * -(-out_c // 4)


def _sum_window(regs: Array, buffers: Array, pixel: int, row: int, at: int) -> None:
    """Multiply the window of output `pixel` by the rows of B from `row` on, and write the sums to index `at`."""
    in_w = regs[Reg.IN_W]
    in_c = regs[Reg.IN_C]
    y_first = pixel // regs[Reg.OUT_W] * regs[Reg.STRIDE_H] - regs[Reg.PAD_H]
    x_first = pixel % regs[Reg.OUT_W] * regs[Reg.STRIDE_W] - regs[Reg.PAD_W]
    row += regs[Reg.ROW]
    for lane in range(regs[Reg.LANES]):
        buffers[at + lane] = 0
    for y in range(y_first, y_first + regs[Reg.KERNEL_H]):
        for x in range(x_first, x_first + regs[Reg.KERNEL_W]):
            if 0 <= y < regs[Reg.IN_H] and 0 <= x < in_w:
                _add_products(regs, buffers, regs[Reg.INPUT] + (y * in_w + x) * in_c, row, at)
            row += in_c  # padding adds nothing, but B has rows for it


@part
def _add_products(regs: Array, buffers: Array, first: int, row: int, at: int) -> None:
    """Add the products of an input pixel and rows of B. The pixel begins at byte `first` of the image memory."""
    image = image_at(regs)
    for c in range(regs[Reg.IN_C]):
        value = signed(_byte(buffers, image, first + c) + regs[Reg.INPUT_OFFSET], OFFSET_BITS)
        weights = row_at(regs, B, row + c)
        for lane in range(regs[Reg.LANES]):
            weight = int(buffers[weights + (lane >> 2)]) >> 24 - 8 * (lane & 3) & 255
            product = value * (weight - 256 if weight > 127 else weight)
            buffers[at + lane] = wrapped(int(buffers[at + lane]) + product)


def _store_tile(regs: Array, buffers: Array, first: int, height: int, column: int, row: int) -> None:
    """Requantise a tile, which begins at `row` of C. Its results begin at pixel `first` and channel `column`."""
    out_c = regs[Reg.OUT_C]
    tables = tables_at(regs)
    for pixel in range(height):
        sums = sums_at(regs, row + pixel)
        for channel in range(column, min(column + regs[Reg.LANES], out_c)):
            entry = tables + (regs[Reg.TABLE] + channel & CHANNELS - 1)
            acc = wrapped(int(buffers[sums + channel - column]) + int(buffers[entry]))
            code = scaled(acc, int(buffers[entry + CHANNELS]), int(buffers[entry + 2 * CHANNELS]))
            _store(regs, buffers, (first + pixel) * out_c + channel, code + regs[Reg.OUTPUT_OFFSET])


def _aliases(regs: Array, read: int, written: int) -> bool:
    distance = regs[Reg.OUTPUT] - regs[Reg.INPUT]
    return (distance & IMAGE_BYTES - 1) < read or (-distance & IMAGE_BYTES - 1) < written


def overlapped_cycles(pixels: int, out_c: int, depth: int, lanes: int) -> int:
    """Return the cycles of a convolution that stores each tile while the array computes the next tiles.

    A tile is stored when it is in buffer C and all earlier tiles are stored. Each cycle stores four results of a row.
    """
    computed = 1
    stored = 1
    for first_row in range(0, pixels, lanes):
        rows = min(lanes, pixels - first_row)
        for first_column in range(0, out_c, lanes):
            columns = min(lanes, out_c - first_column)
            computed += depth + lanes + rows
            stored = max(stored, computed) + rows * -(-columns // 4)
    return stored + PIPELINE


def start_add(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction start_add: add two tensors like TFLite. The factor of the second tensor is 1/2.

    The unit adds two elements per cycle. With `add4`, it adds four if the tensors have at least 16 pixels. In its
    pipeline, `depth` groups of four elements are read before the results of the first group are stored. The order
    affects the values if the output overlaps an input, so the loop has the same order.
    """
    pixels = regs[Reg.OUT_H] * regs[Reg.OUT_W]
    size = pixels * regs[Reg.OUT_C]
    image = image_at(regs)
    if not _begins(regs, cycle, size == 0):
        return
    four = regs[Reg.EXTENSIONS] & ADD4
    fast = four and pixels >= BANKS
    depth = (4 if fast else 2) if four else 3  # groups in the pipeline
    codes = registers_at(regs, buffers)
    groups = -(-size // 4)
    for group in range(groups + depth - 1):
        for index in range(4 * group, min(4 * group + 4, size)):
            x = signed(_byte(buffers, image, regs[Reg.INPUT] + index) + regs[Reg.INPUT_OFFSET], OFFSET_BITS)
            y = signed(_byte(buffers, image, regs[Reg.INPUT2] + index) + regs[Reg.INPUT2_OFFSET], OFFSET_BITS)
            total = scaled(x << 20, regs[Reg.INPUT_MULTIPLIER], regs[Reg.INPUT_SHIFT]) + (y << 19)
            code = scaled(total, regs[Reg.OUTPUT_MULTIPLIER], regs[Reg.OUTPUT_SHIFT]) + regs[Reg.OUTPUT_OFFSET]
            buffers[codes + index % (4 * depth)] = _clamped(regs, code)
        for index in range(max(0, 4 * (group - depth + 1)), min(4 * (group - depth + 2), size)):
            _store(regs, buffers, index, buffers[codes + index % (4 * depth)])
    work(regs, cycle, max(0, regs[Reg.FILLED] - cycle) + PIPELINE + groups * (1 if fast else 2))


def start_pool(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction start_pool: compute the mean of each channel, with ties away from zero.

    The unit adds a word of four channels per cycle. It then divides once per channel, without pipelining.
    """
    pixels = regs[Reg.IN_H] * regs[Reg.IN_W]
    channels = regs[Reg.IN_C]
    image = image_at(regs)
    if not _begins(regs, cycle, pixels * channels == 0):
        return
    totals = registers_at(regs, buffers)
    for first in range(0, channels, 4):
        for lane in range(4):
            buffers[totals + lane] = 0
            for pixel in range(pixels):
                buffers[totals + lane] += _byte(buffers, image, regs[Reg.INPUT] + pixel * channels + first + lane)
        for lane in range(min(4, channels - first)):
            total = np.int64(buffers[totals + lane])
            # Half of the divisor is added to the magnitude, so ties are rounded away from zero.
            mean = (abs(total) + pixels // 2) // pixels
            _store(regs, buffers, first + lane, mean if total > 0 else -mean)
    work(regs, cycle, max(0, regs[Reg.FILLED] - cycle) + -(-channels // 4) * pixels + channels * DIVIDE)


def dot(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction dot: add four products of codes a (zero point -128) and weights b; answer with the sum."""
    command(regs, Misuse.WRITE_BUSY, cycle)
    total = regs[Reg.DOT]
    for lane in range(4):
        code = (a >> 8 * lane) & 255
        weight = (b >> 8 * lane) & 255
        total += ((code + 128) & 255) * (weight - 256 if weight > 127 else weight)
    regs[Reg.DOT] = regs[Reg.ANSWER] = wrapped(total)


def _byte(buffers: Array, image: int, at: int) -> int:
    at &= IMAGE_BYTES - 1
    value = (buffers[image + (at >> 2)] >> 8 * (at & 3)) & 255
    return value - 256 if value > 127 else value


def _clamped(regs: Array, value: int) -> int:
    return min(max(value, regs[Reg.LOW]), regs[Reg.HIGH])


def _store(regs: Array, buffers: Array, index: int, value: int) -> None:
    at = regs[Reg.OUTPUT] + index & IMAGE_BYTES - 1
    place = image_at(regs) + (at >> 2)
    shift = 8 * (at & 3)
    byte = (_clamped(regs, value) & 255) << shift
    buffers[place] = wrapped(np.int64(buffers[place]) & ~(255 << shift) | byte)
