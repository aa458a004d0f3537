"""Beyond the document: the same array, coupled better. Activations as bytes on the CFU, which finds their elements.

An image memory of 16 banks, pixel p of a tensor in bank p mod 16, four channels a word: with both ports of each bank
16 windows of stride 1 or 2 are read in a cycle, so a launch takes the array's cycles as the document's does. Then
four results a cycle are requantised and written back as bytes. Nothing overlaps. Values are there at once; a program
that looks before the end is reported.
"""

from __future__ import annotations

from enum import IntEnum, auto

from tilewright.array import Array
from tilewright.targets.cfu import config
from tilewright.targets.cfu.jit import callee

from .launch import busy_cycles
from .notes import note
from .post import high_product, shifted
from .state import COUPLED, Misuse, Reg

#: funct7 of the first instruction here, and their order.
FIRST = 16
PUT, PUSH, GET, CHANNEL, SHIFT, CONV, ADD, POOL, FETCH, DOT = range(FIRST, FIRST + 10)

IMAGE_BYTES = config.IMAGE_BYTES
CHANNELS = 256  # entries of each table
TABLES = 3  # bias, multiplier, shift
WORDS = IMAGE_BYTES // 4 + TABLES * CHANNELS

PIPELINE = 3  # cycles of a requantisation, once a launch: product, its high half, shift and clamp
DIVIDE = 34  # cycles of a mean's division; as the CPU's divider
#: The DMA reads as the L2 does, a line at a time: LiteDRAM's open-row read. `burst` keeps the port busy instead: the
#: latency once a row, then its 64 bits a cycle; assumed, as the CPU's traffic on the same DRAM is left out.
LINE_BYTES, LINE_CYCLES = 16, 15
ROW_BYTES, ROW_CYCLES, PORT_BYTES = 2048, 20, 8


class Field(IntEnum):
    """Layer registers, in the order of `put`."""

    IN_H = 0
    IN_W = auto()
    IN_C = auto()
    OUT_H = auto()
    OUT_W = auto()
    OUT_C = auto()
    KERNEL_H = auto()
    KERNEL_W = auto()
    STRIDE_H = auto()
    STRIDE_W = auto()
    PAD_H = auto()
    PAD_W = auto()
    INPUT = auto()  # byte addresses in the image memory
    INPUT2 = auto()
    OUTPUT = auto()
    INPUT_OFFSET = auto()
    INPUT2_OFFSET = auto()
    OUTPUT_OFFSET = auto()
    LOW = auto()
    HIGH = auto()
    INPUT_MULTIPLIER = auto()
    INPUT_SHIFT = auto()
    OUTPUT_MULTIPLIER = auto()
    OUTPUT_SHIFT = auto()
    POINTER = auto()  # of push and get
    CHANNEL = auto()  # the table entry that push_channel and push_shift write; 0 after a convolution
    ROW = auto()  # of B, where a convolution's weights begin
    FETCH_ROW = auto()  # where fetched ones go
    CONVOLVED = auto()  # the last cycle in which a convolution reads B
    DOT = auto()  # the sum of dot
    FETCHED = auto()  # the last cycle in which rows are fetched; a convolution waits for it


EXTENSIONS = COUPLED  # the register that holds the machine's extensions, a bit each
LAYER = COUPLED + 1
FIELDS = len(Field)
SIZE = 1 + FIELDS

#: Extensions of the machine, in the order of their bits.
NAMES = config.EXTENSIONS


@callee
def nothing(regs: Array, buffers: Array, ram: Array, funct7: int, a: int, b: int, cycle: int) -> bool:
    """The instructions of a machine without extensions."""
    return False


@callee
def beyond(regs: Array, buffers: Array, ram: Array, funct7: int, a: int, b: int, cycle: int) -> bool:
    """One instruction of those above, its answer to OUTPUT; whether the machine has it."""
    if not _takes(regs, funct7):
        return False
    if cycle <= regs[Reg.BUSY_UNTIL] and funct7 != PUT and funct7 != FETCH:  # noqa: PLR1714 - compiled
        note(regs, Misuse.READ_BUSY if funct7 == GET else Misuse.WRITE_BUSY, cycle, funct7)
    if funct7 == FETCH and fetch_meets_rows(regs, b, cycle):
        note(regs, Misuse.WRITE_BUSY, cycle, funct7)
    regs[Reg.OUTPUT] = _coupled(regs, buffers, ram, funct7, a, b, cycle)
    return True


@callee
def _takes(regs: Array, funct7: int) -> bool:
    """Whether the machine has the instruction."""
    mask = regs[EXTENSIONS]
    if funct7 == CONV or funct7 == CHANNEL or funct7 == SHIFT:  # noqa: PLR1714, SIM109 - compiled
        return mask & 1 != 0
    if funct7 == ADD:
        return mask & 2 != 0
    if funct7 == POOL:
        return mask & 8 != 0
    if funct7 == FETCH:
        return mask & 16 != 0
    if funct7 == DOT:
        return mask & 64 != 0
    return mask != 0 and FIRST <= funct7 <= FETCH


@callee
def _coupled(regs: Array, buffers: Array, ram: Array, funct7: int, a: int, b: int, cycle: int) -> int:
    """What the instruction does; its answer. A start sets when the array is busy until."""
    image = _image_base(regs)
    pointer = LAYER + Field.POINTER
    if funct7 == PUT:
        if 0 <= a < FIELDS:
            regs[LAYER + a] = b
    elif funct7 == PUSH:
        at = regs[pointer] & IMAGE_BYTES - 1
        buffers[image + (at >> 2)] = a
        buffers[image + ((at >> 2) + 1 & IMAGE_BYTES // 4 - 1)] = b
        regs[pointer] = at + 8
    elif funct7 == GET:
        at = regs[pointer] & IMAGE_BYTES - 1
        regs[pointer] = at + 4
        return buffers[image + (at >> 2)]
    elif funct7 == CHANNEL:
        entry = image + IMAGE_BYTES // 4 + (regs[LAYER + Field.CHANNEL] & CHANNELS - 1)
        buffers[entry], buffers[entry + CHANNELS] = a, b
    elif funct7 == SHIFT:
        entry = image + IMAGE_BYTES // 4 + (regs[LAYER + Field.CHANNEL] & CHANNELS - 1)
        buffers[entry + 2 * CHANNELS] = a
        regs[LAYER + Field.CHANNEL] += 1
    elif funct7 == FETCH:
        _fetch(regs, buffers, ram, a, b)
        begins = max(cycle, regs[LAYER + Field.FETCHED])
        regs[LAYER + Field.FETCHED] = begins + _fetch_cycles(b, regs[EXTENSIONS] & 32)
    elif funct7 == CONV:
        waits = max(0, regs[LAYER + Field.FETCHED] - cycle)
        _busy(regs, cycle, waits + _convolve(regs, buffers, image))
        regs[LAYER + Field.CONVOLVED] = regs[Reg.BUSY_UNTIL]
    elif funct7 == ADD:
        _busy(regs, cycle, _add(regs, buffers, image))
    elif funct7 == DOT:
        regs[LAYER + Field.DOT] = _wrap(regs[LAYER + Field.DOT] + _dot(a, b))
        return regs[LAYER + Field.DOT]
    elif funct7 == POOL:
        _busy(regs, cycle, _pool(regs, buffers, image))
    return 0


@callee
def _image_base(regs: Array) -> int:
    """Where the image memory begins among the buffers' words: behind A, B and C."""
    return regs[Reg.ROWS] * regs[Reg.LANES] * 3 // 2


@callee
def _busy(regs: Array, cycle: int, cycles: int) -> None:
    regs[Reg.BUSY_UNTIL] = cycle + 1 + cycles
    regs[Reg.BUSY_CYCLES] += cycles
    regs[Reg.LAUNCHES] += 1


@callee
def fetch_meets_rows(regs: Array, nbytes: int, cycle: int) -> bool:
    """Whether a fetch would replace weights that the running convolution reads."""
    if cycle > regs[LAYER + Field.CONVOLVED]:
        return False
    first, size = regs[LAYER + Field.ROW], regs[Reg.ROWS]
    tiles = -(-regs[LAYER + Field.OUT_C] // regs[Reg.LANES])
    used = tiles * regs[LAYER + Field.KERNEL_H] * regs[LAYER + Field.KERNEL_W] * regs[LAYER + Field.IN_C]
    distance = (regs[LAYER + Field.FETCH_ROW] - first) % size
    return distance < used or distance + nbytes // regs[Reg.LANES] > size


@callee
def _byte(buffers: Array, image: int, at: int) -> int:
    at &= IMAGE_BYTES - 1
    value = (buffers[image + (at >> 2)] >> 8 * (at & 3)) & 255
    return value - 256 if value > 127 else value


@callee
def _put_byte(buffers: Array, image: int, at: int, value: int) -> None:
    at &= IMAGE_BYTES - 1
    shift = 8 * (at & 3)
    word = buffers[image + (at >> 2)] & 0xFFFFFFFF
    word = word & ~(255 << shift) | (value & 255) << shift
    buffers[image + (at >> 2)] = word - (1 << 32) if word >= 1 << 31 else word


@callee
def _wrap(x: int) -> int:
    return ((x + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)


@callee
def _scale(x: int, multiplier: int, shift: int) -> int:
    """gemmlowp's double rounding of x * multiplier * 2**(shift - 31)."""
    return shifted(high_product(_wrap(x << max(shift, 0)) * multiplier), max(-shift, 0))


@callee
def _convolve(regs: Array, buffers: Array, image: int) -> int:
    """A convolution from image memory to image memory, weights in B (k: window row, column, channel); its cycles."""
    in_h, in_w, in_c = regs[LAYER + Field.IN_H], regs[LAYER + Field.IN_W], regs[LAYER + Field.IN_C]
    out_h, out_w, out_c = regs[LAYER + Field.OUT_H], regs[LAYER + Field.OUT_W], regs[LAYER + Field.OUT_C]
    kernel_h, kernel_w = regs[LAYER + Field.KERNEL_H], regs[LAYER + Field.KERNEL_W]
    lanes, rows, source = regs[Reg.LANES], regs[Reg.ROWS], regs[LAYER + Field.INPUT]
    depth, pixels = kernel_h * kernel_w * in_c, out_h * out_w
    b_base, tables = rows * lanes // 4, image + IMAGE_BYTES // 4
    for pixel in range(pixels):
        y_first = pixel // out_w * regs[LAYER + Field.STRIDE_H] - regs[LAYER + Field.PAD_H]
        x_first = pixel % out_w * regs[LAYER + Field.STRIDE_W] - regs[LAYER + Field.PAD_W]
        for channel in range(out_c):
            total, row = 0, regs[LAYER + Field.ROW] + channel // lanes * depth
            shift = 24 - 8 * (channel & 3)
            column = channel % lanes >> 2
            for y in range(y_first, y_first + kernel_h):
                for x in range(x_first, x_first + kernel_w):
                    if 0 <= y < in_h and 0 <= x < in_w:
                        first = source + (y * in_w + x) * in_c
                        for c in range(in_c):
                            word = buffers[b_base + ((row + c) & rows - 1) * (lanes // 4) + column]
                            weight = (word >> shift) & 255
                            weight = weight - 256 if weight > 127 else weight
                            total += (_byte(buffers, image, first + c) + regs[LAYER + Field.INPUT_OFFSET]) * weight
                    row += in_c
            entry = tables + (channel & CHANNELS - 1)
            acc = _wrap(total + buffers[entry])
            code = _scale(acc, buffers[entry + CHANNELS], buffers[entry + 2 * CHANNELS])
            _store(regs, buffers, image, pixel * out_c + channel, code)
    regs[Reg.MACS] += pixels * out_c * depth
    regs[Reg.B_ROW] = -1
    regs[LAYER + Field.CHANNEL] = 0
    return busy_cycles(pixels, out_c, depth, lanes) + PIPELINE + -(-pixels * out_c // 4)


@callee
def _store(regs: Array, buffers: Array, image: int, index: int, code: int) -> None:
    code = min(max(code + regs[LAYER + Field.OUTPUT_OFFSET], regs[LAYER + Field.LOW]), regs[LAYER + Field.HIGH])
    _put_byte(buffers, image, regs[LAYER + Field.OUTPUT] + index, code)


@callee
def _add(regs: Array, buffers: Array, image: int) -> int:
    """Two tensors added as TFLite does, the second factor 1/2. An element takes two products: four in two cycles."""
    size = regs[LAYER + Field.OUT_H] * regs[LAYER + Field.OUT_W] * regs[LAYER + Field.OUT_C]
    for index in range(size):
        a = _byte(buffers, image, regs[LAYER + Field.INPUT] + index) + regs[LAYER + Field.INPUT_OFFSET]
        b = _byte(buffers, image, regs[LAYER + Field.INPUT2] + index) + regs[LAYER + Field.INPUT2_OFFSET]
        total = _scale(a << 20, regs[LAYER + Field.INPUT_MULTIPLIER], regs[LAYER + Field.INPUT_SHIFT]) + (b << 19)
        code = _scale(total, regs[LAYER + Field.OUTPUT_MULTIPLIER], regs[LAYER + Field.OUTPUT_SHIFT])
        _store(regs, buffers, image, index, code)
    return PIPELINE + -(-size // 4) * 2


@callee
def _pool(regs: Array, buffers: Array, image: int) -> int:
    """The mean of each channel, half away from zero: four channels a cycle added up, then a division each."""
    pixels, channels = regs[LAYER + Field.IN_H] * regs[LAYER + Field.IN_W], regs[LAYER + Field.IN_C]
    for channel in range(channels):
        total = 0
        for pixel in range(pixels):
            total += _byte(buffers, image, regs[LAYER + Field.INPUT] + pixel * channels + channel)
        half = pixels // 2 if total > 0 else -(pixels // 2)
        mean = abs(total + half) // pixels
        mean = mean if total + half > 0 else -mean
        mean = min(max(mean, regs[LAYER + Field.LOW]), regs[LAYER + Field.HIGH])
        _put_byte(buffers, image, regs[LAYER + Field.OUTPUT] + channel, mean)
    return -(-channels // 4) * pixels + channels * DIVIDE


@callee
def _fetch(regs: Array, buffers: Array, ram: Array, address: int, nbytes: int) -> None:
    """Rows of B from main memory, which holds them as set_matrixB takes them: two words, the first the upper half."""
    base, b_base = (address & 0xFFFFFFFF) - 0x40000000, regs[Reg.ROWS] * regs[Reg.LANES] // 4
    if base < 0 or nbytes < 0 or base + nbytes > ram.shape[0] or nbytes > regs[Reg.ROWS] * regs[Reg.LANES]:
        return
    regs[Reg.FETCHED_BYTES] += nbytes
    first, size = regs[LAYER + Field.FETCH_ROW] * (regs[Reg.LANES] // 4), regs[Reg.ROWS] * regs[Reg.LANES] // 4
    for word in range(nbytes // 4):
        at = base + 4 * word
        value = ram[at] | ram[at + 1] << 8 | ram[at + 2] << 16 | ram[at + 3] << 24
        buffers[b_base + (first + word) % size] = value - (1 << 32) if value >= 1 << 31 else value


@callee
def _fetch_cycles(nbytes: int, burst: int) -> int:
    if burst:
        return -(-nbytes // PORT_BYTES) + -(-nbytes // ROW_BYTES) * ROW_CYCLES
    return -(-nbytes // LINE_BYTES) * LINE_CYCLES


@callee
def _dot(a: int, b: int) -> int:
    """Four products of codes a, whose zero point is -128, and weights b, added up."""
    total = 0
    for lane in range(4):
        x, w = (a >> 8 * lane) & 255, (b >> 8 * lane) & 255
        total += ((x + 128) & 255) * (w - 256 if w > 127 else w)
    return total
