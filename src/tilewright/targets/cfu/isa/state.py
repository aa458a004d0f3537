"""The CFU's registers and memories, and records of misuse.

The hardware does not detect misuse. The model records a misuse, and then computes the same wrong values as the RTL.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.targets.cfu.config import CHOICES, EXTENSIONS, IMAGE_BYTES, Config


class Reg(IntEnum):
    """Indices into the int64 array of the CFU's registers."""

    # The CPU's loop writes these before each command.
    PC = 0
    REGION = 1
    # The configuration: n, rows of each buffer, indices into config.CHOICES, and bit i for config.EXTENSIONS[i].
    LANES, ROWS, TRANSFER, READOUT, START, SRDHM, EXTENSIONS = range(2, 9)
    # The last row that was written to A and B (-1: none since start), the number of latched words of the next row, and
    # whether the write of the last row is still enabled. For C, the next row and lane to read.
    A_ROW, B_ROW, A_WORDS, B_WORDS, A_ENABLED, B_ENABLED, C_ROW, C_LANE = range(9, 17)
    # The operands of start_GEMM, its cycle, the kind of work that is not finished (see PRODUCT_PENDING), and the last
    # cycle in which the CFU works.
    M, N, K, OFFSET, ACCUMULATE, STARTED, PENDING, BUSY_UNTIL = range(17, 25)
    # The number of the command, the latched product, the answer, and the cycle of the answer. A command without a
    # result repeats the answer. ANSWER and READY must be neighbours, because another CFU writes them as a pair.
    FUNCT7, PRODUCT, OVERFLOW, ANSWER, READY = range(25, 30)
    # Counters. FETCHED_BYTES has the bytes that the DMA reads from main memory.
    BUSY_CYCLES, LAUNCHES, MACS, FETCHED_BYTES = range(30, 34)
    # The layer registers of the extensions, in the order of `put`. INPUT, INPUT2 and OUTPUT are byte addresses in the
    # image memory.
    IN_H, IN_W, IN_C, OUT_H, OUT_W, OUT_C, KERNEL_H, KERNEL_W, STRIDE_H, STRIDE_W, PAD_H, PAD_W = range(34, 46)
    INPUT, INPUT2, OUTPUT, INPUT_OFFSET, INPUT2_OFFSET, OUTPUT_OFFSET, LOW, HIGH = range(46, 54)
    INPUT_MULTIPLIER, INPUT_SHIFT, OUTPUT_MULTIPLIER, OUTPUT_SHIFT = range(54, 58)
    POINTER = 58  # byte address of the next push_image or get_image
    CHANNEL = 59  # table index for push_channel and push_shift; 0 after a convolution
    ROW = 60  # the first row of B with the weights of a convolution
    FETCH_ROW = 61  # the first row of B to which weights are fetched
    CONVOLVED = 62  # the last cycle in which a convolution reads B
    DOT = 63  # the sum of the instruction dot
    FETCHED = 64  # the last cycle of the running fetches; convolutions wait for this cycle
    TABLE = 65  # the first entry of a convolution in the channel tables
    FILLED = 66  # the last cycle of the running fetches to the image memory; additions and pools wait for this cycle
    NOTED = 67  # number of misuse records
    COMPUTED = 68  # the last cycle of the launch for which C is up to date
    TABLED = 69  # the last cycle of the running fetches to the channel tables; earlier pushes to the tables are lost
    FETCHES = 70  # number of fetches
    LATCH = 71  # the latched words of an incomplete row: MAX_WORDS for A, then MAX_WORDS for B


MAX_WORDS = 8
#: The largest number of unfinished fetches. The last cycle of fetch i is in register ENDS + i mod QUEUE.
QUEUE = 8
ENDS = Reg.LATCH + 2 * MAX_WORDS
#: Index of the misuse records: MAX_NOTES records of NOTE words each.
NOTES = ENDS + QUEUE
PRODUCT_PENDING = 1  # Reg.PENDING while a matrix product runs: its sums are not in C yet
IMAGE_PENDING = 2  # Reg.PENDING while a command on the image memory runs
#: The number of bits of each layer register (negative: signed). `put` ignores all higher bits.
LAYER_BITS = {
    **dict.fromkeys((Reg.IN_H, Reg.IN_W, Reg.OUT_H, Reg.OUT_W, Reg.KERNEL_H, Reg.KERNEL_W, Reg.PAD_H, Reg.PAD_W), 10),
    **dict.fromkeys((Reg.IN_C, Reg.OUT_C, Reg.INPUT, Reg.INPUT2, Reg.OUTPUT, Reg.POINTER), 16),
    **dict.fromkeys((Reg.STRIDE_H, Reg.STRIDE_W), 4),
    **dict.fromkeys((Reg.INPUT_OFFSET, Reg.INPUT2_OFFSET, Reg.OUTPUT_OFFSET), -9),
    **dict.fromkeys((Reg.LOW, Reg.HIGH), -8),
    **dict.fromkeys((Reg.INPUT_MULTIPLIER, Reg.OUTPUT_MULTIPLIER, Reg.DOT), -32),
    **dict.fromkeys((Reg.INPUT_SHIFT, Reg.OUTPUT_SHIFT), -6),
    **dict.fromkeys((Reg.CHANNEL, Reg.TABLE), 8),
    **dict.fromkeys((Reg.ROW, Reg.FETCH_ROW), 16),
}
#: The operand of `put` for each layer register, by its name in C.
FIELDS = {reg.name: reg - Reg.IN_H for reg in sorted(LAYER_BITS)}
CHANNELS = 256  # entries of each channel table (bias, multiplier, shift)
IMAGE_WORDS = IMAGE_BYTES // 4
#: The cycles of a launch that never ends: longer than any run.
NEVER = 1 << 60


def registers(config: Config) -> Array:
    regs = np.zeros(NOTES + len(Note._fields) * MAX_NOTES, np.int64)
    regs[Reg.EXTENSIONS] = sum(1 << EXTENSIONS.index(name) for name in set(config.extension_names))
    regs[Reg.LANES] = config.array
    regs[Reg.ROWS] = config.buffer_rows
    for reg in (Reg.TRANSFER, Reg.READOUT, Reg.START, Reg.SRDHM):
        key = reg.name.lower()
        regs[reg] = CHOICES[key].index(getattr(config, key))
    regs[[Reg.A_ROW, Reg.B_ROW, Reg.BUSY_UNTIL, Reg.CONVOLVED, Reg.FETCHED, Reg.FILLED, Reg.TABLED]] = -1
    regs[ENDS : ENDS + QUEUE] = -1
    return regs


def buffers(config: Config) -> Array:
    """Return the CFU's memories as one int32 array of zeros. memory.py computes the position of each memory."""
    words = config.buffer_rows * config.array
    lanes = config.array
    image = IMAGE_WORDS + 3 * CHANNELS if config.extensions else 0
    return np.zeros(words * 3 // 2 + image + 2 * lanes + lanes * lanes, np.int32)


class Misuse(IntEnum):
    """A kind of misuse of the CFU by a program. The hardware does not detect misuse."""

    WRITE_BUSY, READ_BUSY, START_BUSY, HALF_ROW, PARTIAL_READ, ROWS, OFFSET, EMPTY, UNKNOWN = range(1, 10)


MESSAGES = {
    Misuse.WRITE_BUSY: "writes a buffer while the array works: the row is lost",
    Misuse.READ_BUSY: "reads C while the array works: the sums are not ready",
    Misuse.START_BUSY: "starts the array while it works: the rest of the previous launch is lost",
    Misuse.HALF_ROW: "starts with an incomplete row: the number of set instructions is odd",
    Misuse.PARTIAL_READ: "starts while a row of C is partly read: the next read does not begin at its first lane",
    Misuse.ROWS: "uses a row past the end of the buffer, which wraps to its beginning",
    Misuse.OFFSET: "starts with an offset that needs more than 9 bits",
    Misuse.EMPTY: "starts a product of no rows or columns, which never ends, or of no depth; with a layer size of 0, "
    "the command is lost",
    Misuse.UNKNOWN: "is not an instruction of this CFU: it returns the previous answer again",
}


class Note(NamedTuple):
    """A misuse of the CFU by the instruction at `pc`. `times` is the number of occurrences, and `cycle` the first one.

    `detail` is the illegal value, such as the row or the offset.
    """

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
#: The words of a misuse record in the registers, in the order of Note.
KIND, PC, CYCLE, TIMES, REGION, DETAIL, NOTE = range(7)


def note(regs: Array, kind: int, cycle: int, detail: int) -> None:
    # A loop may repeat a misuse millions of times, so there is only one record for each kind and pc.
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
    rows = regs[NOTES : NOTES + NOTE * int(regs[Reg.NOTED])].reshape(-1, NOTE).tolist()
    return tuple(Note(Misuse(kind).name.lower(), *rest) for kind, *rest in rows)
