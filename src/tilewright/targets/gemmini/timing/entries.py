"""The entries of the reservation station on the tape.

Which entry a command has makes no difference. So they are numbered by their commands, for each queue.
"""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import called
from tilewright.targets.gemmini.timing.chip import CHIP
from tilewright.targets.gemmini.timing.layout import WIDTH, at
from tilewright.targets.gemmini.timing.operands import ABSENT, IN_ACC
from tilewright.targets.gemmini.timing.queues import item
from tilewright.targets.gemmini.timing.station import ENTRIES, SPAN, STATION
from tilewright.targets.gemmini.timing.tape import BY_NUMBER, NUMBERS, TAPE, cyclic, length, next_word, prim, row, word


@called
def number_entries(m: Array, tape: Array) -> None:
    """Number the entries of each queue by their commands."""
    for q in range(3):
        left = m[STATION.valid + q]
        if tape[TAPE.sets]:
            left = (1 << m[CHIP.number + q]) - 1
            m[STATION.valid + q], m[STATION.awaited + q] = left, 0
        for i in range(m[CHIP.number + q]):
            first, each, rest = -1, 0, left
            own = at(ENTRIES.command, 64 * q)
            while rest:
                if rest & 1 and (first < 0 or (not tape[TAPE.sets] and m[own] < tape[TAPE.least])):
                    first, tape[TAPE.least] = each, m[own]
                rest >>= 1
                each += 1
                own += WIDTH
            left &= ~(1 << first)
            tape[BY_NUMBER + 64 * q + i], tape[NUMBERS + 64 * q + first] = first, i


@called
def entry(m: Array, place: int, q: int, tape: Array) -> None:
    """Save or set the number of an entry of queue `q`, or -1."""
    at = next_word(tape)
    if tape[TAPE.sets]:
        m[place] = tape[at]
    else:
        tape[at] = tape[NUMBERS + 64 * q + m[place]] if m[place] >= 0 else -1


@called
def waits(m: Array, place: int, q: int, tape: Array) -> None:
    """Save or set the entries of queue `q` for which one waits."""
    at = next_word(tape)
    if tape[TAPE.sets]:
        m[place] = tape[at]
        m[STATION.awaited + q] |= tape[at]
    else:
        tape[at] = 0
        left, number = m[place] & m[STATION.valid + q], NUMBERS + 64 * q
        while left:
            if left & 1:
                tape[at] |= 1 << tape[number]
            left >>= 1
            number += 1


@called
def span(m: Array, place: int, tape: Array) -> None:
    """Save or set the rows of an operand, as the station sees them."""
    word(m, place, tape, 0)
    if m[place] != ABSENT:
        in_acc = m[place] == IN_ACC
        row(m, place + SPAN.start, tape, in_acc)
        cyclic(m, place + SPAN.end, tape, m[place + SPAN.start], m[CHIP.acc if in_acc else CHIP.spad] + 1)
        word(m, place + SPAN.wraps, tape, 0)


@called
def entered(m: Array, q: int, of: int, tape: Array) -> None:
    """Save or set a queue with the numbers of commands and, in the lowest bits, of their entries in queue `of`."""
    for i in range(length(m, q, tape)):
        own = item(m, q, i)
        number, command = m[own] & 63, m[own] >> 6
        if not m[STATION.valid + of] >> number & 1:  # that of a configuration, which is complete
            number = -1
        m[own] = command
        prim(m, own, tape)
        command, m[own] = m[own], number
        entry(m, own, of, tape)
        m[own] = command << 6 | m[own] & 63
