"""What a run remembers of itself: snapshots, and a relation between two stretches of the program.

Pages of DRAM and rows of the memories are related if one does in a stretch what the other does in the other stretch.
The relation is one to one, because the machine compares pages and rows with each other; related rows are in the same
bank.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.array import Array
from tilewright.sim.jit import called, part
from tilewright.targets.gemmini.timing.tape import ACC_ROWS, SPAD_ROWS

#: The number of the relation, the pairs of pages in it, whether all rows are their own partners, and the last pair of
#: each client; of each memory the first row in `rows`, the logarithm of a bank's rows, and the banks.
STAMP, PAIRS, IDENTITY, LAST_PAIR, FIRST_ROW, LG_BANK, BANKS = 0, 1, 2, 3, 5, 7, 9
#: Columns of Memo.pages: the number of the relation, a page with its client and direction, and its partner.
OF_RELATION, KEY, VALUE = range(3)
#: Columns of Memo.rows: the number of the relation in which a row has a partner, that in which it is one; the partner,
#: and the rows from here on of which it is known that their partners follow each other.
FORTH, BACK, PARTNER, KNOWN = range(4)
#: No page.
NOWHERE = -1


class Memo(NamedTuple):
    """Snapshots of a run, and what is needed to know where it repeats itself."""

    registers: Array  # int64: see above, alike.py and repeat.py
    tape: Array  # int64 [TAPE]: the snapshots; see tape.py
    checks: Array  # int64: the commands of the host before which the state is looked at, and one that never comes
    marks: Array  # int64 [n]: hashes of what follows a command
    prims: Array  # int64 [n + 1]: the primitive commands that come from the commands before
    loops: Array  # int64 [n + 1]: the loops that the commands before start
    shapes: Array  # int64 [m, 5]: of primitive commands; see alike.py
    kept: Array  # int64 [k, 13]: about the snapshots; see repeat.py
    table: Array  # int64: the newest snapshot with a hash of its words, -1: none
    pages: Array  # int64 [s, 3]: the relation of pages, a hash table
    rows: Array  # int64 [rows of scratchpad and accumulator, 4]: the relation of rows


@part
def slot(r: Array, pages: Array, key: int) -> int:
    """Return the place of a page in the hash table, or where it belongs."""
    last = pages.shape[0] - 1
    place = (key * 0x9E3779B97F4A7C1 >> 20) & last
    while pages[place, OF_RELATION] == r[STAMP] and pages[place, KEY] != key:
        place = (place + 1) & last
    return place


@part
def clear(memo: Memo, identity: bool) -> None:
    """Begin a new relation. `identity`: rows are to be their own partners, which costs less.

    The last row of the accumulator is its own partner, as the controller may take the garbage address for it.
    """
    r = memo.registers
    r[STAMP] += 1
    r[IDENTITY], r[PAIRS] = identity, 0
    for client in range(SPAD_ROWS):
        relate_pages(r, memo.pages, client, NOWHERE, NOWHERE)
    last = (r[BANKS + ACC_ROWS] << r[LG_BANK + ACC_ROWS]) - 1
    relate_rows(r, memo.rows, ACC_ROWS, last, last)


@called
def relate_pages(r: Array, pages: Array, client: int, old: int, new: int) -> bool:
    """Let `new` be the partner of page `old`; return False if one of them has another, or if there are too many."""
    r[LAST_PAIR + 2 * client], r[LAST_PAIR + 2 * client + 1] = old, new
    key, back = old << 2 | client << 1, new << 2 | client << 1 | 1
    one = slot(r, pages, key)
    if pages[one, OF_RELATION] == r[STAMP]:
        return bool(pages[one, VALUE] == new)
    if pages[slot(r, pages, back), OF_RELATION] == r[STAMP] or 4 * r[PAIRS] > pages.shape[0]:
        return False
    pages[one, OF_RELATION], pages[one, KEY], pages[one, VALUE] = r[STAMP], key, new
    other = slot(r, pages, back)
    pages[other, OF_RELATION], pages[other, KEY] = r[STAMP], back
    r[PAIRS] += 1
    return True


@part
def was_last(r: Array, client: int, old: int, new: int) -> bool:
    """Return whether this pair was related last, among the pages of a client."""
    return bool(r[LAST_PAIR + 2 * client] == old and r[LAST_PAIR + 2 * client + 1] == new)


@part
def relate_rows(r: Array, rows: Array, kind: int, old: int, new: int) -> bool:
    """Let `new` be the partner of row `old`; return False if one of them has another, or if their banks differ."""
    one, other, stamp = r[FIRST_ROW + kind] + old, r[FIRST_ROW + kind] + new, r[STAMP]
    if rows[one, FORTH] == stamp or rows[other, BACK] == stamp:
        return bool(rows[one, FORTH] == stamp and rows[one, PARTNER] == new)
    if old >> r[LG_BANK + kind] != new >> r[LG_BANK + kind]:
        return False
    rows[one, FORTH], rows[one, PARTNER], rows[one, KNOWN], rows[other, BACK] = stamp, new, 1, stamp
    return True


@part
def relate_ranges(r: Array, rows: Array, kind: int, old: int, new: int, size: int) -> bool:
    """Relate ranges of rows, within a memory, row by row; see relate_rows."""
    if not relate_rows(r, rows, kind, old, new):
        return False
    place = r[FIRST_ROW + kind] + old
    for x in range(rows[place, KNOWN], size):
        if not relate_rows(r, rows, kind, old + x, new + x):
            return False
    rows[place, KNOWN] = max(rows[place, KNOWN], size)
    return True


@part
def is_row(r: Array, kind: int, row: int) -> bool:
    """Return whether a memory has this row. Controllers wrap addresses late, so some lie behind the last row."""
    return row >= 0 and row >> r[LG_BANK + kind] < r[BANKS + kind]


@part
def relate(memo: Memo, kind: int, old: int, new: int) -> bool:
    """Let a page or row be the partner of another one; return False if it cannot be."""
    r = memo.registers
    if kind < SPAD_ROWS:
        return relate_pages(r, memo.pages, kind, old, new)
    if r[IDENTITY]:
        return old == new
    return is_row(r, kind, old) and is_row(r, kind, new) and relate_rows(r, memo.rows, kind, old, new)


@part
def has_partner(memo: Memo, kind: int, old: int) -> bool:
    """Return whether a page or row has a partner."""
    r = memo.registers
    if kind < SPAD_ROWS:
        return bool(memo.pages[slot(r, memo.pages, old << 2 | kind << 1), OF_RELATION] == r[STAMP])
    if r[IDENTITY] or not is_row(r, kind, old):
        return r[IDENTITY] != 0
    return bool(memo.rows[r[FIRST_ROW + kind] + old, FORTH] == r[STAMP])


@part
def partner(memo: Memo, kind: int, old: int) -> int:
    """Return the partner of a page or row that has one."""
    r = memo.registers
    if kind < SPAD_ROWS:
        return int(memo.pages[slot(r, memo.pages, old << 2 | kind << 1), VALUE])
    return old if r[IDENTITY] else int(memo.rows[r[FIRST_ROW + kind] + old, PARTNER])


@part
def lay_rows(r: Array, kind: int, first: int, lg_bank: int, banks: int) -> None:
    """Set the size of a memory, the rows of which begin at `first` in Memo.rows."""
    r[FIRST_ROW + kind], r[LG_BANK + kind], r[BANKS + kind] = first, lg_bank, banks
