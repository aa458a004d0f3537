"""The tape, on which snapshots of the machine are written: registers, words that must be equal, pages and rows.

All functions work in both directions: they save numbers of the machine, or set them. So no part of the state can be
forgotten in one of them.
"""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import called, part
from tilewright.targets.gemmini.timing import chip as c
from tilewright.targets.gemmini.timing import load
from tilewright.targets.gemmini.timing.chip import at, is_acc, is_garbage

#: Registers: where the next word and the next page or row lies, whether the machine's state is set instead of saved,
#: the cycle; the host's next command, the first primitive command and the first loop that come from it or later ones;
#: the least of each that the state refers to; the least command of an entry; whether the program scales any load, so
#: that the turn of the lanes matters.
CURSOR, RELATED, SETS, NOW, FIRST_HOST, FIRST_PRIM, FIRST_LOOP, LOW_HOST, LOW_PRIM, LOW_LOOP, LEAST, SCALES = range(12)
#: Kinds: pages of the DMA's reader, pages of its writer, rows of the scratchpad, rows of the accumulator.
READER, WRITER, SPAD_ROWS, ACC_ROWS = range(4)
KIND_BITS = 2
#: Where the entries of the station lie on the tape, by their numbers, their numbers, words, places; its length.
ENTRIES, NUMBERS, WORDS, PLACES = 64, 256, 448, 1 << 22
TAPE = 2 * PLACES


@part
def next_word(tape: Array) -> int:
    """Return the place of the next word, and go on."""
    at: int = tape[CURSOR]
    tape[CURSOR] = at + 1
    return at


@called
def word(m: Array, place: int, tape: Array, base: int) -> None:
    """Save or set a number that counts from `base`."""
    at = next_word(tape)
    if tape[SETS]:
        m[place] = tape[at] + base
    else:
        tape[at] = m[place] - base


@called
def cyclic(m: Array, place: int, tape: Array, base: int, size: int) -> None:
    """Save or set a number that counts from `base` modulo `size`."""
    at = next_word(tape)
    if tape[SETS]:
        m[place] = (tape[at] + base) % size
    else:
        tape[at] = (m[place] - base) % size


@called
def due(m: Array, place: int, tape: Array) -> None:
    """Save or set a cycle from which on something may happen; all that have passed are alike."""
    at = next_word(tape)
    if tape[SETS]:
        m[place] = tape[at] + tape[NOW]
    else:
        tape[at] = max(m[place] - tape[NOW], 0)


@called
def words(m: Array, first: int, last: int, tape: Array) -> None:
    """Save or set numbers as they are."""
    at, size = tape[CURSOR], last - first
    tape[CURSOR] = at + size
    if tape[SETS]:
        for x in range(size):
            m[first + x] = tape[at + x]
    else:
        for x in range(size):
            tape[at + x] = m[first + x]


@called
def prim(m: Array, place: int, tape: Array) -> None:
    """Save or set the number of a primitive command."""
    word(m, place, tape, tape[FIRST_PRIM])
    tape[LOW_PRIM] = min(tape[LOW_PRIM], m[place])


@called
def related(m: Array, place: int, tape: Array, kind: int) -> None:
    """Save a page or a row, or set it to its partner, which was put in its place."""
    at = tape[RELATED]
    tape[RELATED] = at + 1
    if tape[SETS]:
        m[place] = tape[at]
    else:
        tape[at] = m[place] << KIND_BITS | kind


@called
def row(m: Array, place: int, tape: Array, in_acc: bool) -> None:
    """Save or set a row of the accumulator or of the scratchpad."""
    related(m, place, tape, ACC_ROWS if in_acc else SPAD_ROWS)


@called
def row_of(m: Array, place: int, slot: int, tape: Array) -> None:
    """Save or set a row that the load in the slot named at `slot` writes."""
    row(m, place, tape, m[at(c.LOADED, m[slot]) + load.IN_ACC] != 0)


@called
def operand(m: Array, place: int, tape: Array) -> None:
    """Save or set a word with a local address: its row apart from the rest."""
    at = next_word(tape)
    rest, here = tape[at] if tape[SETS] else m[place], 0
    if not is_garbage(m, rest):
        mask = m[c.ACC] if is_acc(rest) else m[c.SPAD]
        here, rest = rest & mask, rest & ~mask
        m[place] = here
        row(m, place, tape, is_acc(rest) != 0)
        here = m[place]
    if tape[SETS]:
        m[place] = rest | here
    else:
        tape[at], m[place] = rest, rest | here


@called
def base(m: Array, place: int, tape: Array) -> None:
    """Save or set the first row of an operand in the scratchpad; -1: none."""
    at = next_word(tape)
    if not tape[SETS]:
        tape[at] = m[place] >= 0
    if tape[at]:
        row(m, place, tape, False)
    else:
        m[place] = -1


@called
def length(m: Array, q: int, tape: Array) -> int:
    """Save or set the length of a queue, and return it."""
    place = c.QUEUES + q * c.PER_QUEUE
    if tape[SETS]:
        m[place + c.HEAD], m[place + c.LEFT] = 0, -1
    word(m, place + c.COUNT, tape, 0)
    return int(m[place + c.COUNT])


@part
def place_in(m: Array, q: int, i: int) -> int:
    """Return the place of an item of a queue."""
    place = c.QUEUES + q * c.PER_QUEUE
    return place + c.ITEMS + ((m[place + c.HEAD] + i) & (c.RING - 1))


@called
def queue(m: Array, q: int, tape: Array, base: int, size: int) -> None:
    """Save or set a queue. Its items count from `base`; `size`: in a ring, else 0."""
    for i in range(length(m, q, tape)):
        if size:
            cyclic(m, place_in(m, q, i), tape, base, size)
        else:
            word(m, place_in(m, q, i), tape, base)
