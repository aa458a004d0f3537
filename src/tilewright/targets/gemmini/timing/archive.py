"""The archive, in which snapshots of the machine are written: a header, words that must be equal, pages and rows.

Every function works in both directions, like the archives of serialisation libraries: it saves numbers of the machine,
or sets them from what was saved (HEADER.sets). So saving and setting cannot disagree about the order of the words.
"""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.timing.bus import ACC_ROWS, SPAD_ROWS
from tilewright.targets.gemmini.timing.layout import WIDTH, at
from tilewright.targets.gemmini.timing.operands import is_acc, is_garbage
from tilewright.targets.gemmini.timing.queues import QUEUE, count, item
from tilewright.targets.gemmini.timing.records import columns
from tilewright.targets.gemmini.timing.state import SHARED
from tilewright.targets.gemmini.timing.station import ENTRIES, STATION


class ArchiveHeader:
    """The numbers at the beginning of the archive."""

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


HEADER = columns(ArchiveHeader)
KIND_BITS = 2
#: Where parts of the archive begin: the station's entries by their numbers and the numbers by the entries (see
#: number_entries), the words, and the pages and rows; and the archive's length.
BY_NUMBER = 64
NUMBERS = 256
WORDS = 448
PLACES = 1 << 22
LENGTH = 2 * PLACES


@part
def next_word(archive: Array) -> int:
    """Return the place of the next word, and go on."""
    at: int = archive[HEADER.cursor]
    archive[HEADER.cursor] = at + 1
    return at


def word(m: Array, place: int, archive: Array, base: int) -> None:
    """Save or set a number that counts from `base`."""
    at = next_word(archive)
    if archive[HEADER.sets]:
        m[place] = archive[at] + base
    else:
        archive[at] = m[place] - base


def cyclic(m: Array, place: int, archive: Array, base: int, size: int) -> None:
    """Save or set a number that counts from `base` modulo `size`."""
    at = next_word(archive)
    if archive[HEADER.sets]:
        m[place] = (archive[at] + base) % size
    else:
        archive[at] = (m[place] - base) % size


def due(m: Array, place: int, archive: Array) -> None:
    """Save or set a cycle from which on something may happen; all cycles that have passed count as the same."""
    at = next_word(archive)
    if archive[HEADER.sets]:
        m[place] = archive[at] + archive[HEADER.now]
    else:
        archive[at] = max(m[place] - archive[HEADER.now], 0)


def prim(m: Array, place: int, archive: Array) -> None:
    """Save or set the number of a primitive command."""
    word(m, place, archive, archive[HEADER.first_prim])
    archive[HEADER.low_prim] = min(archive[HEADER.low_prim], m[place])


def related(m: Array, place: int, archive: Array, kind: int) -> None:
    """Save a page or a row, or set it to its partner."""
    # Pages and rows are not among the words, because only their relation counts. Before a state is set, `repeat`
    # replaces them by their partners.
    at = archive[HEADER.related]
    archive[HEADER.related] = at + 1
    if archive[HEADER.sets]:
        m[place] = archive[at]
    else:
        archive[at] = m[place] << KIND_BITS | kind


def row(m: Array, place: int, archive: Array, in_acc: bool) -> None:
    """Save or set a row of the accumulator or of the scratchpad."""
    related(m, place, archive, ACC_ROWS if in_acc else SPAD_ROWS)


def operand(m: Array, place: int, archive: Array) -> None:
    """Save or set an operand's word: the row of its local address apart from its flags, columns and rows."""
    at = next_word(archive)
    rest = archive[at] if archive[HEADER.sets] else m[place]
    here = 0
    # The garbage address has no row: all ones would be taken for the last row of the accumulator.
    if not is_garbage(m, rest):
        mask = m[SHARED.acc] if is_acc(rest) else m[SHARED.spad]
        here, rest = rest & mask, rest & ~mask
        # `row` saves or sets the number at `place`, so the row stands there alone in the meantime.
        m[place] = here
        row(m, place, archive, is_acc(rest) != 0)
        here = m[place]
    if archive[HEADER.sets]:
        m[place] = rest | here
    else:
        archive[at] = rest
        m[place] = rest | here


def base(m: Array, place: int, archive: Array) -> None:
    """Save or set the first row of an operand in the scratchpad; -1: none."""
    at = next_word(archive)
    if not archive[HEADER.sets]:
        archive[at] = m[place] >= 0
    if archive[at]:
        row(m, place, archive, False)
    else:
        m[place] = -1


def length(m: Array, q: int, archive: Array) -> int:
    """Save or set the length of a queue, and return it. A queue that is set begins at the start of its ring."""
    if archive[HEADER.sets]:
        m[q + QUEUE.head] = 0
        m[q + QUEUE.left] = -1
    word(m, q + QUEUE.count, archive, 0)
    return int(count(m, q))


def queue(m: Array, q: int, archive: Array, base: int, size: int) -> None:
    """Save or set a queue. Its items count from `base`; `size`: in a ring, else 0."""
    for i in range(length(m, q, archive)):
        if size:
            cyclic(m, item(m, q, i), archive, base, size)
        else:
            word(m, item(m, q, i), archive, base)


def number_entries(m: Array, archive: Array) -> None:
    """Number the entries of each queue of the station in the order of their commands."""
    # Which entry a command has makes no difference to the machine, so snapshots name entries by these numbers. A state
    # that is set uses the entries 0, 1, ... in the order of their numbers.
    for q in range(3):
        left = m[STATION.valid + q]
        if archive[HEADER.sets]:
            left = (1 << m[SHARED.number + q]) - 1
            m[STATION.valid + q] = left
            m[STATION.awaited + q] = 0
        for i in range(m[SHARED.number + q]):
            # Find the entry with the smallest command among those that have no number yet.
            first = -1
            number = 0
            rest = left
            command = at(ENTRIES.command, 64 * q)
            while rest:
                if rest & 1 and (first < 0 or (not archive[HEADER.sets] and m[command] < archive[HEADER.least])):
                    first = number
                    archive[HEADER.least] = m[command]
                rest >>= 1
                number += 1
                command += WIDTH
            left &= ~(1 << first)
            archive[BY_NUMBER + 64 * q + i] = first
            archive[NUMBERS + 64 * q + first] = i


def entry(m: Array, place: int, q: int, archive: Array) -> None:
    """Save or set the number of an entry of queue `q`, or -1."""
    at = next_word(archive)
    if archive[HEADER.sets]:
        m[place] = archive[at]
    else:
        archive[at] = archive[NUMBERS + 64 * q + m[place]] if m[place] >= 0 else -1


def waits(m: Array, place: int, q: int, archive: Array) -> None:
    """Save or set the bit mask of the entries of queue `q` for which an entry waits."""
    at = next_word(archive)
    if archive[HEADER.sets]:
        m[place] = archive[at]
        m[STATION.awaited + q] |= archive[at]
    else:
        archive[at] = 0
        left = m[place] & m[STATION.valid + q]
        number = NUMBERS + 64 * q
        while left:
            if left & 1:
                archive[at] |= 1 << archive[number]
            left >>= 1
            number += 1


def entered(m: Array, q: int, of: int, archive: Array) -> None:
    """Save or set a queue with the numbers of commands and, in the lowest bits, of their entries in queue `of`."""
    for i in range(length(m, q, archive)):
        place = item(m, q, i)
        number = m[place] & 63
        command = m[place] >> 6
        # Configurations are complete when they are issued, so their entry is free again, or belongs to another command.
        if not m[STATION.valid + of] >> number & 1:
            number = -1
        m[place] = command
        prim(m, place, archive)
        command = m[place]
        m[place] = number
        entry(m, place, of, archive)
        m[place] = command << 6 | m[place] & 63
