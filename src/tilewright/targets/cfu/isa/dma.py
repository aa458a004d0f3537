"""The DMA unit of the extensions `dma` and `stream` fetches weights, activations and channel tables from main memory.

The model writes the data of a fetch at once. In the hardware, the fetch ends in cycle `Reg.FETCHED` or `Reg.FILLED`,
and commands that need the data wait until this cycle. The DMA bypasses the L2 cache, so it must not read bytes that the
program has written.
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.targets.cfu.config import EXTENSIONS, IMAGE_BYTES, RAM_BASE

from .coupled import SHIFT_BITS, signed
from .gemm import wrapped
from .memory import B, command, image_at, row_at, tables_at
from .state import CHANNELS, ENDS, IMAGE_WORDS, PRODUCT_PENDING, QUEUE, Misuse, Reg, note

#: Like the L2 cache, the DMA reads one line at a time from an open row: 16 bytes in 15 cycles (LiteDRAM; see dram_read
#: in timing/costs.py). With `burst`, the DMA waits once for each row of 2 KiB, and then reads 64 bits per cycle. These
#: numbers are assumptions: the document has no DMA, and CPU traffic on the same DRAM is ignored.
LINE_BYTES = 16
LINE_CYCLES = 15
ROW_BYTES = 2048
ROW_CYCLES = 20
PORT_BYTES = 8
BURST = 1 << EXTENSIONS.index("burst")
#: The size of a channel in main memory, in bytes: bias, multiplier, shift and a word of padding.
CHANNEL_BYTES = 16


def fetch(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction fetch: read b bytes at address a into rows of B. Record a misuse if these rows are in use."""
    regs[Reg.ANSWER] = 0
    if cycle <= regs[Reg.BUSY_UNTIL] and regs[Reg.PENDING] == PRODUCT_PENDING:
        note(regs, Misuse.WRITE_BUSY, cycle, regs[Reg.FUNCT7])
        return
    if fetch_meets_rows(regs, b, cycle):
        note(regs, Misuse.WRITE_BUSY, cycle, regs[Reg.FUNCT7])
    size = regs[Reg.ROWS] * regs[Reg.LANES]  # of B in bytes
    words = regs[Reg.LANES] // 4  # of a row of B
    for word in range(_words(regs, b, size, cycle)):
        if _inside(ram, a, word):
            at = row_at(regs, B, regs[Reg.FETCH_ROW] + word // words) + word % words
            buffers[at] = _word(ram, a, word)


def fetch_image(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction fetch_image: read b bytes at address a into the image memory, from POINTER on."""
    if not command(regs, Misuse.WRITE_BUSY, cycle):
        return
    image = image_at(regs)
    first = regs[Reg.POINTER] >> 2
    count = _words(regs, b, IMAGE_BYTES, cycle)
    if count:
        regs[Reg.FILLED] = regs[Reg.FETCHED]
    for word in range(count):
        if _inside(ram, a, word):
            buffers[image + (first + word & IMAGE_WORDS - 1)] = _word(ram, a, word)


def fetch_channels(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction fetch_channels: read bias, multiplier and shift of b channels at address a.

    The destination is the channel tables, from entry CHANNEL on. It is a misuse if a convolution uses these entries.
    """
    # A convolution reads OUT_C entries from TABLE on. `distance` is the first fetched entry, relative to TABLE.
    distance = regs[Reg.CHANNEL] - regs[Reg.TABLE] & CHANNELS - 1
    if cycle <= regs[Reg.CONVOLVED] and (distance < regs[Reg.OUT_C] or distance + b > CHANNELS):
        note(regs, Misuse.WRITE_BUSY, cycle, regs[Reg.FUNCT7])
    regs[Reg.ANSWER] = 0
    count = _words(regs, b * CHANNEL_BYTES, CHANNELS * CHANNEL_BYTES, cycle)
    if count:
        regs[Reg.TABLED] = regs[Reg.FETCHED]
    for word in range(0, count, CHANNEL_BYTES // 4):
        entry = tables_at(regs) + (regs[Reg.CHANNEL] + word // (CHANNEL_BYTES // 4) & CHANNELS - 1)
        if _inside(ram, a, word):
            buffers[entry] = _word(ram, a, word)
            buffers[entry + CHANNELS] = _word(ram, a, word + 1)
        if _inside(ram, a, word + 2):
            buffers[entry + 2 * CHANNELS] = signed(_word(ram, a, word + 2), SHIFT_BITS)


def _words(regs: Array, nbytes: int, most: int, cycle: int) -> int:
    """Queue a fetch after all running fetches, and record its end. Return its number of words, which is even.

    The fetch is lost if `nbytes` is 0 or above `most`, or if the queue is full. Fetch i is in slot i mod QUEUE, so the
    queue is full if the previous fetch in this slot has not ended.
    """
    slot = ENDS + regs[Reg.FETCHES] % QUEUE
    if not 0 < nbytes <= most:
        note(regs, Misuse.EMPTY, cycle, nbytes)
        return 0
    if cycle <= regs[slot]:
        note(regs, Misuse.WRITE_BUSY, cycle, regs[Reg.FUNCT7])
        return 0
    cycles = -(-nbytes // LINE_BYTES) * LINE_CYCLES
    if regs[Reg.EXTENSIONS] & BURST:
        cycles = -(-nbytes // PORT_BYTES) + -(-nbytes // ROW_BYTES) * ROW_CYCLES
    regs[Reg.FETCHED] = regs[slot] = max(cycle, regs[Reg.FETCHED]) + cycles
    regs[Reg.FETCHES] += 1
    beats = -(-nbytes // PORT_BYTES)
    regs[Reg.FETCHED_BYTES] += beats * PORT_BYTES
    return beats * PORT_BYTES // 4


def _at(address: int, word: int) -> int:
    """Return the index in main memory of word number `word` of a fetch. A fetch begins at a multiple of 8 bytes."""
    return (address & 0xFFFFFFF8) + 4 * word - RAM_BASE


def _inside(ram: Array, address: int, word: int) -> bool:
    """Return whether the beat with this word is inside main memory. A beat outside is an error, and is not written."""
    return 0 <= _at(address, word) < ram.shape[0]


def _word(ram: Array, address: int, word: int) -> int:
    at = _at(address, word)
    low = np.int64(ram[at]) | np.int64(ram[at + 1]) << 8
    high = np.int64(ram[at + 2]) | np.int64(ram[at + 3]) << 8
    return wrapped(int(low | high << 16))


def fetch_meets_rows(regs: Array, nbytes: int, cycle: int) -> bool:
    if cycle > regs[Reg.CONVOLVED]:
        return False
    size = regs[Reg.ROWS]
    tiles = -(-regs[Reg.OUT_C] // regs[Reg.LANES])
    used = tiles * regs[Reg.KERNEL_H] * regs[Reg.KERNEL_W] * regs[Reg.IN_C]
    distance = (regs[Reg.FETCH_ROW] - regs[Reg.ROW]) % size
    return distance < used or distance + nbytes // regs[Reg.LANES] > size
