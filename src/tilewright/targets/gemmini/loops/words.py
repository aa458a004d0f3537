"""Streams of the primitive commands that the unrollers issue, and the encoding of the commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa import work
from tilewright.targets.gemmini.isa.fields import CODES, FORMATS, Funct, fields

#: Who issues a primitive command: the program itself (HOST), or an unroller.
HOST = 0
MATMUL = 1
CONV = 2
#: The functs of each unroller: the start command, then the commands that set registers.
COMMANDS = {
    MATMUL: tuple(Funct(number) for number in range(Funct.LOOP_WS, Funct.LOOP_WS_DC_STRIDES + 1)),
    CONV: tuple(Funct(number) for number in range(Funct.LOOP_CONV_WS, Funct.LOOP_CONV_WS_6 + 1)),
}
STARTS = tuple(functs[0] for functs in COMMANDS.values())
UNROLLER = {funct: unroller for unroller, functs in COMMANDS.items() for funct in functs}
#: A register keeps this number of low bits of a DRAM address or stride (coreMaxAddrBits of both generated builds).
ADDRESS_BITS = 40


def register_writes(commands: Array) -> dict[int, dict[str, int]]:
    """Return the registers that each unroller command of uint64 [n, 3] sets: {index: {register name: value}}."""
    writes: dict[int, dict[str, int]] = {}
    for funct in UNROLLER:
        rows = np.flatnonzero(commands[:, 0] == funct)
        if not len(rows):
            continue
        form = FORMATS[CODES[funct.name.lower()]]
        columns = fields(commands[rows], CODES[form.name])
        places = form.places
        kept = [columns[place.name] & ((1 << min(place.width, ADDRESS_BITS)) - 1) for place in places]
        for row, *values in zip(rows.tolist(), *(column.tolist() for column in kept), strict=True):
            writes[row] = {place.name: value for place, value in zip(places, values, strict=True)}
    return writes


#: The streams of a loop, highest priority first. LOAD_D, LOAD_B and LOAD_A load the operands; in a convolution, D is
#: the bias, B is the weights, and A is the input.
STREAMS = STORE, EXECUTE, LOAD_D, LOAD_B, LOAD_A = range(5)
#: Flags of a local address.
ACC = 1 << work.ACC
ACCUMULATE = 1 << work.ACCUMULATE
FULL = 1 << work.FULL
#: DRAM offsets of a loop wrap at 32 bits (castDramOffset in LoopMatmul.scala and LoopConv.scala).
OFFSET_MASK = 0xFFFF_FFFF


class CommandStream(NamedTuple):
    """The commands of one kind that a loop issues, in `words`, uint64 [n, 3] (funct, rs1, rs2).

    `at`, int64 [n, 3], has the counters that the unroller compares between streams, such as the block (k, j, i) of a
    command of LOOP_WS (see matmul.py). The unroller spends cycles on steps that it skips: `idle`, int64 [n], has the
    cycles before each command, and `tail` has the cycles after the last command.
    """

    words: Array
    at: Array
    idle: Array
    tail: int = 0


class OnChip(NamedTuple):
    """The rows of a loop's operands: the first row of A, the end (exclusive) of B, and the first row of C and D.

    C and D are in the accumulator. A and B are in the scratchpad, or in the accumulator if the loop is a residual
    addition.
    """

    a: int
    b_end: int
    c: int


#: The number of bits of a register.
WORD = (1 << 64) - 1


def stream(funct: Array | int, rs1: Array | int, rs2: Array, at: Sequence[Array | int] = (0, 0, 0)) -> CommandStream:
    """Return a stream with one command per element of `rs2`. Other arguments may be single numbers."""
    n = len(rs2)

    def columns(values: Sequence[Array | int]) -> Array:
        words = (np.uint64(value & WORD) if isinstance(value, int) else np.asarray(value) for value in values)
        return np.stack([np.broadcast_to(word.astype(np.int64, copy=False), n) for word in words], axis=1)

    return CommandStream(columns((funct, rs1, rs2)).view(np.uint64), columns(at), np.zeros(n, np.int64))


NOTHING = stream(0, 0, np.zeros(0, np.int64))


def joined(*parts: CommandStream) -> CommandStream:
    words, at, idle = (np.concatenate(column) for column in zip(*(part[:3] for part in parts), strict=True))
    return CommandStream(words, at, idle, parts[-1].tail)


def interleaved(first: CommandStream, second: CommandStream) -> CommandStream:
    """Return a stream whose commands alternate between two streams of the same length."""
    pairs = (np.stack(pair, axis=1) for pair in zip(first[:3], second[:3], strict=True))
    words, at, idle = (pair.reshape(-1, *pair.shape[2:]) for pair in pairs)
    return CommandStream(words, at, idle)


def operand(address: Array | int, columns: Array | int, rows: Array | int) -> Array:
    """Return the words of operands: local address, number of columns, number of rows."""
    return np.asarray(address) | np.asarray(columns) << 32 | np.asarray(rows) << 48


def garbage(config: Config) -> int:
    """Return the local address that stands for an absent operand."""
    return ACC | ACCUMULATE | FULL | ((2 << config.row_bits) - 1)


def grid(*axes: Array) -> list[Array]:
    """Return the flat coordinates of the Cartesian product of the axes. The last axis changes fastest."""
    return [axis.reshape(-1) for axis in np.meshgrid(*axes, indexing="ij")]
