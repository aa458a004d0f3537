"""The CFU's registers, as places in one array, and what it notes about its use."""

from __future__ import annotations

from enum import IntEnum, auto

import numpy as np

from tilewright.array import Array
from tilewright.targets.cfu.config import CHOICES, Config


class Reg(IntEnum):
    """Places in the int64 array that `execute` gets. The loop writes the first two before each call."""

    PC = 0
    REGION = auto()
    # The machine.
    LANES = auto()  # n
    ROWS = auto()  # of each buffer
    TRANSFER = auto()  # indices into config.CHOICES
    READOUT = auto()
    START = auto()
    SRDHM = auto()
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
    # The launch: what start was given, in which cycle, and whether C is still to be computed.
    M = auto()
    N = auto()
    K = auto()
    OFFSET = auto()
    ACCUMULATE = auto()
    STARTED = auto()
    PENDING = auto()
    BUSY_UNTIL = auto()  # the last cycle in which the array works
    EXPECTED = auto()  # the offset that this region's launches should have, ANY where nobody knows
    # Post-processing.
    PRODUCT = auto()
    OVERFLOW = auto()
    OUTPUT = auto()  # the last response, which instructions without a result give again
    # Counters, and notes of misuse.
    BUSY_CYCLES = auto()
    LAUNCHES = auto()
    MACS = auto()
    FETCHED_BYTES = auto()  # read from main memory by the CFU itself
    NOTED = auto()
    NOTES = auto()  # where they begin


#: A note: kind, pc, first cycle, how often, region, a number that explains it.
NOTE, MAX_NOTES = 6, 64
#: A row's words while it is being filled, for A and for B, behind the notes.
LATCH = Reg.NOTES + NOTE * MAX_NOTES
MAX_WORDS = 8
#: Where the registers of coupled.py begin.
COUPLED = LATCH + 2 * MAX_WORDS
#: Longer than any run: what never ends.
NEVER = 1 << 60
#: No offset.
ANY = 1 << 30


class Misuse(IntEnum):
    """What a program may do wrong and the hardware does not stop."""

    WRITE_BUSY = 1
    READ_BUSY = auto()
    START_BUSY = auto()
    HALF_ROW = auto()
    PARTIAL_READ = auto()
    ROWS = auto()
    OFFSET = auto()
    EMPTY = auto()
    UNKNOWN = auto()


def registers(config: Config) -> Array:
    """After reset."""
    from . import coupled

    regs = np.zeros(COUPLED + coupled.SIZE, np.int64)
    for name in config.extension_names:
        regs[coupled.EXTENSIONS] |= 1 << coupled.NAMES.index(name)
    regs[Reg.LANES], regs[Reg.ROWS] = config.array, config.buffer_rows
    for reg in (Reg.TRANSFER, Reg.READOUT, Reg.START, Reg.SRDHM):
        key = reg.name.lower()
        regs[reg] = CHOICES[key].index(getattr(config, key))
    regs[[Reg.A_ROW, Reg.B_ROW, Reg.BUSY_UNTIL]] = -1
    regs[Reg.EXPECTED] = ANY
    return regs


def buffers(config: Config) -> Array:
    """A, B and C one behind the other, int32: four int8 a word, the first the most significant; then int32 sums.

    With extensions, the image memory and tables of coupled.py follow.
    """
    from . import coupled

    words = config.buffer_rows * config.array
    return np.zeros(words // 4 + words // 4 + words + (coupled.WORDS if config.extensions else 0), np.int32)
