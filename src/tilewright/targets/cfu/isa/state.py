"""The CFU's registers and memories, and notes of misuse: the RTL goes on with wrong values, and so does the model."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.targets.cfu.config import CHOICES, EXTENSIONS, IMAGE_BYTES, Config
from tilewright.targets.cfu.jit import callee


class Reg(IntEnum):
    """Places in the int64 array of the CFU's registers. The CPU's loop writes the first two before each command."""

    PC, REGION = 0, 1
    # The machine: n, rows of each buffer, indices into config.CHOICES, and bit i for config.EXTENSIONS[i].
    LANES, ROWS, TRANSFER, READOUT, START, SRDHM, EXTENSIONS = range(2, 9)
    # Buffers, each for A and then B: the row last written (-1: none since start), words of the next row that are
    # there, and whether the write of the last row is still enabled. C: the row and lane that are read next.
    A_ROW, B_ROW, A_WORDS, B_WORDS, A_ENABLED, B_ENABLED, C_ROW, C_LANE = range(9, 17)
    # The launch: the operands of start, its cycle, whether C is still to be computed, the last cycle in which the
    # array works, and the offset that this region's launches should have (ANY where nobody knows).
    M, N, K, OFFSET, ACCUMULATE, STARTED, PENDING, BUSY_UNTIL, EXPECTED = range(17, 26)
    # The command, and its answer, which instructions without a result give again; the cycle of the answer.
    FUNCT7, PRODUCT, OVERFLOW, ANSWER, READY = range(26, 31)
    # Counters; the last is bytes read from main memory by the CFU itself.
    BUSY_CYCLES, LAUNCHES, MACS, FETCHED_BYTES = range(31, 35)
    # The layer registers of the extensions, in the order of `put`. INPUT, INPUT2 and OUTPUT are byte addresses in the
    # image memory.
    IN_H, IN_W, IN_C, OUT_H, OUT_W, OUT_C, KERNEL_H, KERNEL_W, STRIDE_H, STRIDE_W, PAD_H, PAD_W = range(35, 47)
    INPUT, INPUT2, OUTPUT, INPUT_OFFSET, INPUT2_OFFSET, OUTPUT_OFFSET, LOW, HIGH = range(47, 55)
    INPUT_MULTIPLIER, INPUT_SHIFT, OUTPUT_MULTIPLIER, OUTPUT_SHIFT = range(55, 59)
    POINTER = 59  # of push_image and get_image
    CHANNEL = 60  # the table entry that push_channel and push_shift write; 0 after a convolution
    ROW = 61  # of B, where a convolution's weights begin
    FETCH_ROW = 62  # of B, where fetched weights go
    CONVOLVED = 63  # the last cycle in which a convolution reads B
    DOT = 64  # the sum of dot
    FETCHED = 65  # the last cycle in which rows are fetched; a convolution waits for it
    NOTED = 66  # how many notes there are
    LATCH = 67  # where a row's words begin while it is being filled, MAX_WORDS for A and then for B


MAX_WORDS = 8
#: Where the notes begin, MAX_NOTES of NOTE words each.
NOTES = Reg.LATCH + 2 * MAX_WORDS
#: The layer registers by the names that `put` has for them in C.
FIELDS = {Reg(place).name: place - Reg.IN_H for place in range(Reg.IN_H, Reg.FETCHED + 1)}
CHANNELS = 256  # entries of each table behind the image memory: bias, multiplier, shift
IMAGE_WORDS = IMAGE_BYTES // 4
#: Longer than any run: the end of a launch that never ends.
NEVER = 1 << 60
#: No offset.
ANY = 1 << 30


def registers(config: Config) -> Array:
    """After reset."""
    regs = np.zeros(NOTES + len(Note._fields) * MAX_NOTES, np.int64)
    regs[Reg.EXTENSIONS] = sum(1 << EXTENSIONS.index(name) for name in set(config.extension_names))
    regs[Reg.LANES], regs[Reg.ROWS] = config.array, config.buffer_rows
    for reg in (Reg.TRANSFER, Reg.READOUT, Reg.START, Reg.SRDHM):
        key = reg.name.lower()
        regs[reg] = CHOICES[key].index(getattr(config, key))
    regs[[Reg.A_ROW, Reg.B_ROW, Reg.BUSY_UNTIL]] = -1
    regs[Reg.EXPECTED] = ANY
    return regs


def buffers(config: Config) -> Array:
    """A, B and C one behind the other, int32: four int8 a word, the first the most significant; then int32 sums.

    With extensions, the image memory and the tables of channels follow; then the registers of the array's elements: a
    row of A and of B, and n x n sums.
    """
    words, lanes = config.buffer_rows * config.array, config.array
    image = IMAGE_WORDS + 3 * CHANNELS if config.extensions else 0
    return np.zeros(words * 3 // 2 + image + 2 * lanes + lanes * lanes, np.int32)


class Misuse(IntEnum):
    """An error of the program that the hardware does not stop."""

    WRITE_BUSY, READ_BUSY, START_BUSY, HALF_ROW, PARTIAL_READ, ROWS, OFFSET, EMPTY, UNKNOWN = range(1, 10)


MESSAGES = {
    Misuse.WRITE_BUSY: "writes a buffer while the array works: the row is lost",
    Misuse.READ_BUSY: "reads C while the array works: the sums are not there yet",
    Misuse.START_BUSY: "starts the array while it works: the rest of the launch before is lost",
    Misuse.HALF_ROW: "starts with a row half written: an odd number of set instructions",
    Misuse.PARTIAL_READ: "starts in the middle of reading a row of C: the next read does not begin at its first lane",
    Misuse.ROWS: "uses a row beyond the buffer, which wraps to its beginning",
    Misuse.OFFSET: "starts with an offset that is not the negated zero point of the input, or needs more than 9 bits",
    Misuse.EMPTY: "starts a product without rows or columns, which never ends, or without depth",
    Misuse.UNKNOWN: "is no instruction of this CFU: it returns the last answer once more",
}


class Note(NamedTuple):
    """A misuse by the instruction at `pc`: its first cycle and how often; `detail` is the number in question."""

    kind: str
    pc: int
    cycle: int
    times: int
    region: int
    detail: int

    @property
    def message(self) -> str:
        return MESSAGES[Misuse[self.kind.upper()]]


MAX_NOTES = 64
#: A note's words among the registers, in the order of Note.
KIND, PC, CYCLE, TIMES, REGION, DETAIL, NOTE = range(7)


@callee
def note(regs: Array, kind: int, cycle: int, detail: int) -> None:
    """One note for each kind and pc: the first time, and how often."""
    count = regs[Reg.NOTED]
    for at in range(NOTES, NOTES + NOTE * count, NOTE):
        if regs[at + KIND] == kind and regs[at + PC] == regs[Reg.PC]:
            regs[at + TIMES] += 1
            return
    if count < MAX_NOTES:
        at = NOTES + NOTE * count
        regs[at + KIND], regs[at + PC], regs[at + CYCLE] = kind, regs[Reg.PC], cycle
        regs[at + TIMES], regs[at + REGION], regs[at + DETAIL] = 1, regs[Reg.REGION], detail
        regs[Reg.NOTED] = count + 1


def notes(regs: Array) -> tuple[Note, ...]:
    """The notes in the CFU's registers, in the order in which they happened first."""
    rows = regs[NOTES : NOTES + NOTE * int(regs[Reg.NOTED])].reshape(-1, NOTE).tolist()
    return tuple(Note(Misuse(kind).name.lower(), *rest) for kind, *rest in rows)
