"""The entries of the reservation station on the tape.

Which entry a command has makes no difference. So they are numbered by their commands, for each queue.
"""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import called
from tilewright.targets.gemmini.timing import chip as c
from tilewright.targets.gemmini.timing import station
from tilewright.targets.gemmini.timing.chip import at
from tilewright.targets.gemmini.timing.tape import (
    ENTRIES,
    LEAST,
    NUMBERS,
    SETS,
    cyclic,
    length,
    next_word,
    place_in,
    prim,
    row,
    word,
)


@called
def visit_station(m: Array, tape: Array) -> None:
    """Save or set the entries of the reservation station, and the order of those not issued."""
    number_entries(m, tape)
    for q in range(3):
        for i in range(m[c.NUMBER + q]):
            e = at(c.ENTRIES, 64 * q + tape[ENTRIES + 64 * q + i])
            prim(m, e + station.PRIM, tape)
            word(m, e + station.WRITES, tape, 0)
            span(m, e + station.A, tape)
            span(m, e + station.B, tape)
            for other in range(3):
                waits(m, e + station.WAITS + other, other, tape)
        for i in range(m[station.UNISSUED + q]):
            entry(m, at(c.WAITING, (m[station.FIRST + q] + i) & (c.RING - 1)) + q, q, tape)
    entry(m, c.PENDING, station.EX, tape)
    entry(m, c.PENDING + 1, station.EX, tape)


@called
def number_entries(m: Array, tape: Array) -> None:
    """Number the entries of each queue by their commands."""
    for q in range(3):
        left = m[station.VALID + q]
        if tape[SETS]:
            left = (1 << m[c.NUMBER + q]) - 1
            m[station.VALID + q], m[station.AWAITED + q] = left, 0
        for i in range(m[c.NUMBER + q]):
            first, each, rest = -1, 0, left
            own = at(c.ENTRIES, 64 * q) + station.PRIM
            while rest:
                if rest & 1 and (first < 0 or (not tape[SETS] and m[own] < tape[LEAST])):
                    first, tape[LEAST] = each, m[own]
                rest >>= 1
                each += 1
                own += c.WIDTH
            left &= ~(1 << first)
            tape[ENTRIES + 64 * q + i], tape[NUMBERS + 64 * q + first] = first, i


@called
def entry(m: Array, place: int, q: int, tape: Array) -> None:
    """Save or set the number of an entry of queue `q`, or -1."""
    at = next_word(tape)
    if tape[SETS]:
        m[place] = tape[at]
    else:
        tape[at] = tape[NUMBERS + 64 * q + m[place]] if m[place] >= 0 else -1


@called
def waits(m: Array, place: int, q: int, tape: Array) -> None:
    """Save or set the entries of queue `q` for which one waits."""
    at = next_word(tape)
    if tape[SETS]:
        m[place] = tape[at]
        m[station.AWAITED + q] |= tape[at]
    else:
        tape[at] = 0
        left, number = m[place] & m[station.VALID + q], NUMBERS + 64 * q
        while left:
            if left & 1:
                tape[at] |= 1 << tape[number]
            left >>= 1
            number += 1


@called
def span(m: Array, place: int, tape: Array) -> None:
    """Save or set the rows of an operand, as the station sees them."""
    word(m, place, tape, 0)
    if m[place] != c.ABSENT:
        in_acc = m[place] == c.IN_ACC
        row(m, place + station.START, tape, in_acc)
        cyclic(m, place + station.END, tape, m[place + station.START], m[c.ACC if in_acc else c.SPAD] + 1)
        word(m, place + station.WRAPS, tape, 0)


@called
def entered(m: Array, q: int, of: int, tape: Array) -> None:
    """Save or set a queue with the numbers of commands and, in the lowest bits, of their entries in queue `of`."""
    for i in range(length(m, q, tape)):
        own = place_in(m, q, i)
        number, command = m[own] & 63, m[own] >> 6
        if not m[station.VALID + of] >> number & 1:  # that of a configuration, which is complete
            number = -1
        m[own] = command
        prim(m, own, tape)
        command, m[own] = m[own], number
        entry(m, own, of, tape)
        m[own] = command << 6 | m[own] & 63
