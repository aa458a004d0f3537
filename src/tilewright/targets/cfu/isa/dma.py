"""The DMA of the extensions: it reads weights, activations and channel tables from main memory, one after the other.

A fetch takes effect at once in the model. `Reg.FETCHED` and `Reg.FILLED` say when the hardware has finished it; the
commands that need the data wait. The DMA bypasses the L2 cache, so it must not read bytes that the program has written.
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.targets.cfu.config import EXTENSIONS, IMAGE_BYTES, RAM_BASE
from tilewright.targets.cfu.jit import callee

from .gemm import wrapped
from .memory import command, image_at, tables_at
from .state import CHANNELS, IMAGE_WORDS, Misuse, Reg, note

#: Like the L2, the DMA reads one line at a time from an open row (LiteDRAM). With `burst` it pays the latency once per
#: row and then reads the port's 64 bits per cycle. This is an assumption: CPU traffic on the same DRAM is ignored.
LINE_BYTES, LINE_CYCLES = 16, 15
ROW_BYTES, ROW_CYCLES, PORT_BYTES = 2048, 20, 8
BURST = 1 << EXTENSIONS.index("burst")
#: Bytes of a channel in main memory: bias, multiplier, shift and a word of padding.
CHANNEL_BYTES = 16


@callee
def fetch(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction fetch: read b bytes at address a into rows of B. Note a misuse if these rows are in use."""
    if fetch_meets_rows(regs, b, cycle):
        note(regs, Misuse.WRITE_BUSY, cycle, regs[Reg.FUNCT7])
    regs[Reg.ANSWER] = 0
    size = regs[Reg.ROWS] * regs[Reg.LANES]  # bytes of B
    base = _read(regs, ram, a, b, size, cycle)
    if base >= 0:
        first = regs[Reg.FETCH_ROW] * (regs[Reg.LANES] // 4)
        for word in range(b // 4):
            buffers[size // 4 + (first + word) % (size // 4)] = _word(ram, base + 4 * word)


@callee
def fetch_image(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction fetch_image: read b bytes at address a into the image memory, from POINTER on."""
    command(regs, Misuse.WRITE_BUSY, cycle)
    base = _read(regs, ram, a, b, IMAGE_BYTES, cycle)
    regs[Reg.FILLED] = regs[Reg.FETCHED]
    if base >= 0:
        image, first = image_at(regs), regs[Reg.POINTER] >> 2
        for word in range(b // 4):
            buffers[image + (first + word & IMAGE_WORDS - 1)] = _word(ram, base + 4 * word)


@callee
def fetch_channels(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The CFU instruction fetch_channels: read bias, multiplier and shift of b channels at address a.

    They go to the channel tables, from entry CHANNEL on. Note a misuse if the running convolution uses these entries.
    """
    distance = regs[Reg.CHANNEL] - regs[Reg.TABLE] & CHANNELS - 1
    if cycle <= regs[Reg.CONVOLVED] and (distance < regs[Reg.OUT_C] or distance + b > CHANNELS):
        note(regs, Misuse.WRITE_BUSY, cycle, regs[Reg.FUNCT7])
    regs[Reg.ANSWER] = 0
    base = _read(regs, ram, a, b * CHANNEL_BYTES, CHANNELS * CHANNEL_BYTES, cycle)
    if base >= 0:
        for channel in range(b):
            entry = tables_at(regs) + (regs[Reg.CHANNEL] + channel & CHANNELS - 1)
            at = base + channel * CHANNEL_BYTES
            buffers[entry], buffers[entry + CHANNELS] = _word(ram, at), _word(ram, at + 4)
            buffers[entry + 2 * CHANNELS] = (_word(ram, at + 8) + 32 & 63) - 32  # the table has 6 bits for a shift


@callee
def _read(regs: Array, ram: Array, address: int, nbytes: int, most: int, cycle: int) -> int:
    """Take the time of a fetch, after any running one. Return the index of its first byte in `ram`, or -1.

    A fetch outside of main memory, or of more than `most` bytes, takes its time and changes nothing.
    """
    cycles = -(-nbytes // LINE_BYTES) * LINE_CYCLES
    if regs[Reg.EXTENSIONS] & BURST:
        cycles = -(-nbytes // PORT_BYTES) + -(-nbytes // ROW_BYTES) * ROW_CYCLES
    regs[Reg.FETCHED] = max(cycle, regs[Reg.FETCHED]) + cycles
    base = (address & 0xFFFFFFFF) - RAM_BASE
    if not 0 <= base <= base + nbytes <= ram.shape[0] or nbytes > most:
        return -1
    regs[Reg.FETCHED_BYTES] += nbytes
    return base


@callee
def _word(ram: Array, at: int) -> int:
    """Return the little-endian int32 at index `at` of main memory."""
    low = np.int64(ram[at]) | np.int64(ram[at + 1]) << 8
    high = np.int64(ram[at + 2]) | np.int64(ram[at + 3]) << 8
    return wrapped(int(low | high << 16))


@callee
def fetch_meets_rows(regs: Array, nbytes: int, cycle: int) -> bool:
    """Return whether a fetch of `nbytes` would overwrite weights that the running convolution reads."""
    if cycle > regs[Reg.CONVOLVED]:
        return False
    size, tiles = regs[Reg.ROWS], -(-regs[Reg.OUT_C] // regs[Reg.LANES])
    used = tiles * regs[Reg.KERNEL_H] * regs[Reg.KERNEL_W] * regs[Reg.IN_C]
    distance = (regs[Reg.FETCH_ROW] - regs[Reg.ROW]) % size
    return distance < used or distance + nbytes // regs[Reg.LANES] > size
