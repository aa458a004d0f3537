"""The archive that stores snapshots of the machine: a header, words that are compared for equality, pages and rows.

Every function works in both directions, like the archives of serialisation libraries: it saves numbers of the machine,
or restores these numbers from a snapshot (HEADER.sets). Saving and restoring therefore use the same order of words.
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
    """The header at the beginning of the archive."""

    cursor: int  # the index of the next word
    related: int  # the index of the next page or row
    sets: int  # 1: restore the machine's state; 0: save it
    now: int  # the current cycle
    first_host: int  # the index of the host's next command
    first_prim: int  # the first primitive command that is not from an earlier command of the host
    first_loop: int  # the first loop that is not from an earlier command of the host
    low_host: int  # the smallest index of a host command in the state
    low_prim: int
    low_loop: int
    least: int  # the smallest command that the search in number_entries has met


HEADER = columns(ArchiveHeader)
KIND_BITS = 2
#: The first index of each part of the archive, then its length. number_entries fills the first two parts: the station's
#: entries by number, and the numbers by entry. The words, and then the pages and rows, follow.
BY_NUMBER = 64
NUMBERS = 256
WORDS = 448
PLACES = 1 << 22
LENGTH = 2 * PLACES


@part
def next_word(archive: Array) -> int:
    at: int = archive[HEADER.cursor]
    archive[HEADER.cursor] = at + 1
    return at


def word(m: Array, place: int, archive: Array, base: int) -> None:
    """Save or restore a number relative to `base`."""
    at = next_word(archive)
    if archive[HEADER.sets]:
        m[place] = archive[at] + base
    else:
        archive[at] = m[place] - base


def cyclic(m: Array, place: int, archive: Array, base: int, size: int) -> None:
    """Save or restore a number relative to `base`, modulo `size`."""
    at = next_word(archive)
    if archive[HEADER.sets]:
        m[place] = (archive[at] + base) % size
    else:
        archive[at] = (m[place] - base) % size


def due(m: Array, place: int, archive: Array) -> None:
    """Save or restore the cycle of an event. Every past cycle is saved as 0, because only future events matter."""
    at = next_word(archive)
    if archive[HEADER.sets]:
        m[place] = archive[at] + archive[HEADER.now]
    else:
        archive[at] = max(m[place] - archive[HEADER.now], 0)


def prim(m: Array, place: int, archive: Array) -> None:
    word(m, place, archive, archive[HEADER.first_prim])
    archive[HEADER.low_prim] = min(archive[HEADER.low_prim], m[place])


def related(m: Array, place: int, archive: Array, kind: int) -> None:
    # Pages and rows are stored apart from the words, because the pages and rows of two equivalent states may differ.
    # Before a state is restored, `repeat` replaces all pages and rows by their partners.
    at = archive[HEADER.related]
    archive[HEADER.related] = at + 1
    if archive[HEADER.sets]:
        m[place] = archive[at]
    else:
        archive[at] = m[place] << KIND_BITS | kind


def row(m: Array, place: int, archive: Array, in_acc: bool) -> None:
    related(m, place, archive, ACC_ROWS if in_acc else SPAD_ROWS)


def operand(m: Array, place: int, archive: Array) -> None:
    """Save or restore an operand's word. The local address's row is stored apart from the other bits."""
    at = next_word(archive)
    rest = archive[at] if archive[HEADER.sets] else m[place]
    here = 0
    # The garbage address has no row, although its bits (all 1) look like the last row of the accumulator.
    if not is_garbage(m, rest):
        mask = m[SHARED.acc] if is_acc(rest) else m[SHARED.spad]
        here, rest = rest & mask, rest & ~mask
        # The function `row` handles the whole number at `place`, so `place` contains only the row during the call.
        m[place] = here
        row(m, place, archive, is_acc(rest) != 0)
        here = m[place]
    if archive[HEADER.sets]:
        m[place] = rest | here
    else:
        archive[at] = rest
        m[place] = rest | here


def base(m: Array, place: int, archive: Array) -> None:
    """Save or restore the first scratchpad row of an operand. The row of an absent operand is -1."""
    at = next_word(archive)
    if not archive[HEADER.sets]:
        archive[at] = m[place] >= 0
    if archive[at]:
        row(m, place, archive, False)
    else:
        m[place] = -1


def length(m: Array, q: int, archive: Array) -> int:
    """Save or restore the length of a queue, and return the length. A restored queue begins at index 0 of its ring."""
    if archive[HEADER.sets]:
        m[q + QUEUE.head] = 0
        m[q + QUEUE.left] = -1
    word(m, q + QUEUE.count, archive, 0)
    return int(count(m, q))


def queue(m: Array, q: int, archive: Array, base: int, size: int) -> None:
    """Save or restore a queue whose items are relative to `base`, modulo `size` unless `size` is 0."""
    for i in range(length(m, q, archive)):
        if size:
            cyclic(m, item(m, q, i), archive, base, size)
        else:
            word(m, item(m, q, i), archive, base)


def number_entries(m: Array, archive: Array) -> None:
    """Number the entries of each queue of the station in the order of their commands."""
    # The choice of the entry for a command does not influence the machine, so snapshots refer to entries by these
    # numbers. In a restored state, the oldest command of a queue has entry 0, the next command entry 1, and so on.
    for q in range(3):
        left = m[STATION.valid + q]
        if archive[HEADER.sets]:
            left = (1 << m[SHARED.number + q]) - 1
            m[STATION.valid + q] = left
            m[STATION.awaited + q] = 0
        for i in range(m[SHARED.number + q]):
            # Among the entries without a number, find the entry with the oldest command.
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
    """Save or restore a reference to an entry of queue `q`; -1 refers to no entry."""
    at = next_word(archive)
    if archive[HEADER.sets]:
        m[place] = archive[at]
    else:
        archive[at] = archive[NUMBERS + 64 * q + m[place]] if m[place] >= 0 else -1


def waits(m: Array, place: int, q: int, archive: Array) -> None:
    """Save or restore a bit mask of the entries of queue `q` for which an entry waits."""
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
    """Save or restore a queue of commands. An item's low 6 bits are the command's entry in station queue `of`."""
    for i in range(length(m, q, archive)):
        place = item(m, q, i)
        number = m[place] & 63
        command = m[place] >> 6
        # A configuration is complete when it is issued, so its entry may be free, or may belong to another command.
        if not m[STATION.valid + of] >> number & 1:
            number = -1
        m[place] = command
        prim(m, place, archive)
        command = m[place]
        m[place] = number
        entry(m, place, of, archive)
        m[place] = command << 6 | m[place] & 63
