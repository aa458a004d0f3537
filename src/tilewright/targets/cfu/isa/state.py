"""The CFU's registers and memories, and notes of misuse: the RTL goes on with wrong values, and so does the model."""

from __future__ import annotations

from enum import IntEnum, auto
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.targets.cfu.config import CHOICES, EXTENSIONS, IMAGE_BYTES, Config
from tilewright.targets.cfu.jit import callee


class Reg(IntEnum):
    """Places in the int64 array of the CFU's registers. The CPU's loop writes the first two before each command."""

    PC = 0
    REGION = auto()
    # The machine.
    LANES = auto()  # n
    ROWS = auto()  # of each buffer
    TRANSFER = auto()  # indices into config.CHOICES
    READOUT = auto()
    START = auto()
    SRDHM = auto()
    EXTENSIONS = auto()  # bit i: config.EXTENSIONS[i]
    # Buffers, each for A and then B: the row last written (-1: none since start), words of the next row that are
    # there, and whether the write of the last row is still enabled.
    A_ROW = auto()
    B_ROW = auto()
    A_WORDS = auto()
    B_WORDS = auto()
    A_ENABLED = auto()
    B_ENABLED = auto()
    C_ROW = auto()  # the row and lane that are read next
    C_LANE = auto()
    # The launch: the operands of start, its cycle, and whether C is still to be computed.
    M = auto()
    N = auto()
    K = auto()
    OFFSET = auto()
    ACCUMULATE = auto()
    STARTED = auto()
    PENDING = auto()
    BUSY_UNTIL = auto()  # the last cycle in which the array works
    EXPECTED = auto()  # the offset that this region's launches should have, ANY where nobody knows
    # The command, and its answer.
    FUNCT7 = auto()
    PRODUCT = auto()
    OVERFLOW = auto()
    ANSWER = auto()  # the last one, which instructions without a result give again
    READY = auto()  # its cycle
    # Counters.
    BUSY_CYCLES = auto()
    LAUNCHES = auto()
    MACS = auto()
    FETCHED_BYTES = auto()  # read from main memory by the CFU itself
    # The layer registers of the extensions, in the order of `put`.
    IN_H = auto()
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
    POINTER = auto()  # of push_image and get_image
    CHANNEL = auto()  # the table entry that push_channel and push_shift write; 0 after a convolution
    ROW = auto()  # of B, where a convolution's weights begin
    FETCH_ROW = auto()  # of B, where fetched weights go
    CONVOLVED = auto()  # the last cycle in which a convolution reads B
    DOT = auto()  # the sum of dot
    FETCHED = auto()  # the last cycle in which rows are fetched; a convolution waits for it
    NOTED = auto()  # how many notes there are
    LATCH = auto()  # where a row's words begin while it is being filled, MAX_WORDS for A and then for B


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

    WRITE_BUSY = 1
    READ_BUSY = auto()
    START_BUSY = auto()
    HALF_ROW = auto()
    PARTIAL_READ = auto()
    ROWS = auto()
    OFFSET = auto()
    EMPTY = auto()
    UNKNOWN = auto()


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
