"""The tape, on which snapshots of the machine are written: registers, words that must be equal, pages and rows.

All functions work in both directions: they save numbers of the machine, or set them. So no part of the state can be
forgotten in one of them.
"""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.timing.bus import ACC_ROWS, SPAD_ROWS
from tilewright.targets.gemmini.timing.layout import WIDTH, at
from tilewright.targets.gemmini.timing.operands import is_acc, is_garbage
from tilewright.targets.gemmini.timing.queues import QUEUE, count, item
from tilewright.targets.gemmini.timing.records import columns
from tilewright.targets.gemmini.timing.state import CHIP
from tilewright.targets.gemmini.timing.station import ENTRIES, STATION


class TapeRegisters:
    """The numbers at the beginning of the tape."""

    cursor: int  # where the next word lies
    related: int  # where the next page or row lies
    sets: int  # whether the machine's state is set instead of saved
    now: int  # the cycle
    first_host: int  # the host's next command
    first_prim: int  # the first primitive command, and the first loop, that come from it or later ones
    first_loop: int
    low_host: int  # the least of each that the state refers to
    low_prim: int
    low_loop: int
    least: int  # the least command of an entry


TAPE = columns(TapeRegisters)
KIND_BITS = 2
#: Where the entries of the station lie on the tape, by their numbers, their numbers, words, places; its length.
BY_NUMBER = 64
NUMBERS = 256
WORDS = 448
PLACES = 1 << 22
LENGTH = 2 * PLACES


@part
def next_word(tape: Array) -> int:
    """Return the place of the next word, and go on."""
    at: int = tape[TAPE.cursor]
    tape[TAPE.cursor] = at + 1
    return at


def word(m: Array, place: int, tape: Array, base: int) -> None:
    """Save or set a number that counts from `base`."""
    at = next_word(tape)
    if tape[TAPE.sets]:
        m[place] = tape[at] + base
    else:
        tape[at] = m[place] - base


def cyclic(m: Array, place: int, tape: Array, base: int, size: int) -> None:
    """Save or set a number that counts from `base` modulo `size`."""
    at = next_word(tape)
    if tape[TAPE.sets]:
        m[place] = (tape[at] + base) % size
    else:
        tape[at] = (m[place] - base) % size


def due(m: Array, place: int, tape: Array) -> None:
    """Save or set a cycle from which on something may happen; all that have passed are alike."""
    at = next_word(tape)
    if tape[TAPE.sets]:
        m[place] = tape[at] + tape[TAPE.now]
    else:
        tape[at] = max(m[place] - tape[TAPE.now], 0)


def prim(m: Array, place: int, tape: Array) -> None:
    """Save or set the number of a primitive command."""
    word(m, place, tape, tape[TAPE.first_prim])
    tape[TAPE.low_prim] = min(tape[TAPE.low_prim], m[place])


def related(m: Array, place: int, tape: Array, kind: int) -> None:
    """Save a page or a row, or set it to its partner, which was put in its place."""
    at = tape[TAPE.related]
    tape[TAPE.related] = at + 1
    if tape[TAPE.sets]:
        m[place] = tape[at]
    else:
        tape[at] = m[place] << KIND_BITS | kind


def row(m: Array, place: int, tape: Array, in_acc: bool) -> None:
    """Save or set a row of the accumulator or of the scratchpad."""
    related(m, place, tape, ACC_ROWS if in_acc else SPAD_ROWS)


def operand(m: Array, place: int, tape: Array) -> None:
    """Save or set a word with a local address: its row apart from the rest."""
    at = next_word(tape)
    rest = tape[at] if tape[TAPE.sets] else m[place]
    here = 0
    if not is_garbage(m, rest):
        mask = m[CHIP.acc] if is_acc(rest) else m[CHIP.spad]
        here, rest = rest & mask, rest & ~mask
        m[place] = here
        row(m, place, tape, is_acc(rest) != 0)
        here = m[place]
    if tape[TAPE.sets]:
        m[place] = rest | here
    else:
        tape[at] = rest
        m[place] = rest | here


def base(m: Array, place: int, tape: Array) -> None:
    """Save or set the first row of an operand in the scratchpad; -1: none."""
    at = next_word(tape)
    if not tape[TAPE.sets]:
        tape[at] = m[place] >= 0
    if tape[at]:
        row(m, place, tape, False)
    else:
        m[place] = -1


def length(m: Array, q: int, tape: Array) -> int:
    """Save or set the length of a queue, and return it."""
    if tape[TAPE.sets]:
        m[q + QUEUE.head] = 0
        m[q + QUEUE.left] = -1
    word(m, q + QUEUE.count, tape, 0)
    return int(count(m, q))


def queue(m: Array, q: int, tape: Array, base: int, size: int) -> None:
    """Save or set a queue. Its items count from `base`; `size`: in a ring, else 0."""
    for i in range(length(m, q, tape)):
        if size:
            cyclic(m, item(m, q, i), tape, base, size)
        else:
            word(m, item(m, q, i), tape, base)


def number_entries(m: Array, tape: Array) -> None:
    """Number the entries of each queue by their commands: which entry a command has makes no difference."""
    for q in range(3):
        left = m[STATION.valid + q]
        if tape[TAPE.sets]:
            left = (1 << m[CHIP.number + q]) - 1
            m[STATION.valid + q] = left
            m[STATION.awaited + q] = 0
        for i in range(m[CHIP.number + q]):
            first = -1
            each = 0
            rest = left
            own = at(ENTRIES.command, 64 * q)
            while rest:
                if rest & 1 and (first < 0 or (not tape[TAPE.sets] and m[own] < tape[TAPE.least])):
                    first = each
                    tape[TAPE.least] = m[own]
                rest >>= 1
                each += 1
                own += WIDTH
            left &= ~(1 << first)
            tape[BY_NUMBER + 64 * q + i] = first
            tape[NUMBERS + 64 * q + first] = i


def entry(m: Array, place: int, q: int, tape: Array) -> None:
    """Save or set the number of an entry of queue `q`, or -1."""
    at = next_word(tape)
    if tape[TAPE.sets]:
        m[place] = tape[at]
    else:
        tape[at] = tape[NUMBERS + 64 * q + m[place]] if m[place] >= 0 else -1


def waits(m: Array, place: int, q: int, tape: Array) -> None:
    """Save or set the entries of queue `q` for which one waits."""
    at = next_word(tape)
    if tape[TAPE.sets]:
        m[place] = tape[at]
        m[STATION.awaited + q] |= tape[at]
    else:
        tape[at] = 0
        left = m[place] & m[STATION.valid + q]
        number = NUMBERS + 64 * q
        while left:
            if left & 1:
                tape[at] |= 1 << tape[number]
            left >>= 1
            number += 1


def entered(m: Array, q: int, of: int, tape: Array) -> None:
    """Save or set a queue with the numbers of commands and, in the lowest bits, of their entries in queue `of`."""
    for i in range(length(m, q, tape)):
        own = item(m, q, i)
        number = m[own] & 63
        command = m[own] >> 6
        if not m[STATION.valid + of] >> number & 1:  # that of a configuration, which is complete
            number = -1
        m[own] = command
        prim(m, own, tape)
        command = m[own]
        m[own] = number
        entry(m, own, of, tape)
        m[own] = command << 6 | m[own] & 63
