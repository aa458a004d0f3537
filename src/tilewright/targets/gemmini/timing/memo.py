"""The data that a run stores to detect repetition: snapshots, and a relation between two sections of the program.

The relation pairs each DRAM page and memory row of one section with the page or row (its partner) that the other
section uses in the same way. Time depends on which pages are equal, which rows are equal, and which bank each row is
in. Two sections therefore take the same time if the relation is one to one, and if rows have partners in the same bank.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.timing.bus import ACC_ROWS, SPAD_ROWS
from tilewright.targets.gemmini.timing.records import FIXED, NOWHERE, RULE, columns, saved

#: The index of an absent host command.
NEVER = 1 << 62
FOUR = saved(RULE.fixed, size=4)


class MemoRegisters:
    """The scalars of a memo."""

    # The number of the current relation. A table entry is valid only if it has this number, so a new relation need not
    # clear tables of thousands of rows.
    stamp = FIXED
    pairs = FIXED  # the number of page pairs in the relation
    identity = FIXED  # whether every row is its own partner
    last_pair = FOUR  # for each client, the page pair that was related last
    first_row = FOUR  # for each kind of row, the index in Memo.rows of the memory's first row
    lg_bank = FOUR  # log2 of the number of rows of a bank
    banks = FOUR
    line = FIXED  # the size in bytes of the largest request; no request crosses a multiple of this size
    next_check = FIXED  # the next host command before which the state is saved
    check = FIXED  # the index of `next_check` in Memo.checks
    gap = FIXED  # the smallest number of primitive commands between two checks
    count = FIXED  # the number of snapshots
    free = FIXED  # the next free index in the archive for words
    free_related = FIXED  # the next free index for pages and rows
    resume = FIXED  # the cycle in which the run continues
    last_busy = FIXED  # the last cycle in which the machine was busy
    skipped = FIXED  # the number of skipped cycles


class PagePair:
    """A page of one section, with its client and direction, and the page's partner."""

    stamp: int  # the relation that contains the pair
    key: int
    value: int


class RowRelation:
    """The entry of a row in the relation."""

    forward: int  # the last relation in which this row has a partner
    backward: int  # the last relation in which a row has this row as its partner
    partner: int
    checked: int  # this number of rows, from this row on, have consecutive partners


MEMO = columns(MemoRegisters)
PAIR = columns(PagePair)
RELATED = columns(RowRelation)


class Memo(NamedTuple):
    """The snapshots of a run, and the relation between two sections of the run."""

    registers: Array  # int64: see MemoRegisters
    archive: Array  # int64: the snapshots' words; see archive.py
    checks: Array  # int64: the state may be saved before these host commands; ends with NEVER
    fingerprints: Array  # int64 [n]: for each host command, a hash of this command and the next seven
    prims: Array  # int64 [n + 1]: the number of primitive commands that all earlier host commands issue
    loops: Array  # int64 [n + 1]: the number of loops that all earlier host commands start
    snapshots: Array  # int64 [k, 12]: see repeat.SnapshotColumns
    table: Array  # int64: the newest snapshot for each hash of words, or -1
    pages: Array  # int64 [s, 3]: the relation of pages, a hash table
    rows: Array  # int64 [rows of scratchpad and accumulator, 4]: the relation of rows


@part
def slot(r: Array, pages: Array, key: int) -> int:
    """Return the index of a page in the hash table, or the index at which the page can be inserted."""
    # Open addressing: the search is short, because `relate_pages` keeps half of the table free.
    last = pages.shape[0] - 1
    place = (key * 0x9E3779B97F4A7C1 >> 20) & last
    while pages[place, PAIR.stamp] == r[MEMO.stamp] and pages[place, PAIR.key] != key:
        place = (place + 1) & last
    return place


@part
def clear(memo: Memo, identity: bool) -> None:
    """Begin a new relation. With `identity`, each row may be paired only with itself, which is faster to check."""
    # Pair the last row of the accumulator with itself, because the controller may confuse this row with the garbage
    # address (all bits 1).
    r = memo.registers
    r[MEMO.stamp] += 1
    r[MEMO.identity] = identity
    r[MEMO.pairs] = 0
    for client in range(SPAD_ROWS):
        relate_pages(r, memo.pages, client, NOWHERE, NOWHERE)
    last = (r[MEMO.banks + ACC_ROWS] << r[MEMO.lg_bank + ACC_ROWS]) - 1
    relate_rows(r, memo.rows, ACC_ROWS, last, last)


def relate_pages(r: Array, pages: Array, client: int, old: int, new: int) -> bool:
    """Make `new` the partner of page `old`. Return False if a page has another partner, or the table is full."""
    # Successive requests are mostly in one page, so `equivalent_lines` compares the last pair before it calls this
    # function.
    r[MEMO.last_pair + 2 * client] = old
    r[MEMO.last_pair + 2 * client + 1] = new
    key = old << 2 | client << 1
    back = new << 2 | client << 1 | 1
    place = slot(r, pages, key)
    if pages[place, PAIR.stamp] == r[MEMO.stamp]:
        return bool(pages[place, PAIR.value] == new)
    if pages[slot(r, pages, back), PAIR.stamp] == r[MEMO.stamp] or 4 * r[MEMO.pairs] > pages.shape[0]:
        return False
    pages[place, PAIR.stamp] = r[MEMO.stamp]
    pages[place, PAIR.key] = key
    pages[place, PAIR.value] = new
    reverse = slot(r, pages, back)
    pages[reverse, PAIR.stamp] = r[MEMO.stamp]
    pages[reverse, PAIR.key] = back
    r[MEMO.pairs] += 1
    return True


@part
def relate_rows(r: Array, rows: Array, kind: int, old: int, new: int) -> bool:
    """Make `new` the partner of row `old`. Return False if either row has another partner, or if the banks differ."""
    row = r[MEMO.first_row + kind] + old
    target = r[MEMO.first_row + kind] + new
    stamp = r[MEMO.stamp]
    if rows[row, RELATED.forward] == stamp or rows[target, RELATED.backward] == stamp:
        return bool(rows[row, RELATED.forward] == stamp and rows[row, RELATED.partner] == new)
    if old >> r[MEMO.lg_bank + kind] != new >> r[MEMO.lg_bank + kind]:
        return False
    rows[row, RELATED.forward] = stamp
    rows[row, RELATED.partner] = new
    rows[row, RELATED.checked] = 1
    rows[target, RELATED.backward] = stamp
    return True


@part
def relate_ranges(r: Array, rows: Array, kind: int, old: int, new: int, size: int) -> bool:
    """Relate two ranges of `size` rows of one memory, row by row. Return False if `relate_rows` fails."""
    if not relate_rows(r, rows, kind, old, new):
        return False
    # Programs reuse operands, so skip related rows: from `old` on, `checked` rows are known to be related.
    place = r[MEMO.first_row + kind] + old
    for x in range(rows[place, RELATED.checked], size):
        if not relate_rows(r, rows, kind, old + x, new + x):
            return False
    rows[place, RELATED.checked] = max(rows[place, RELATED.checked], size)
    return True


@part
def is_row(r: Array, kind: int, row: int) -> bool:
    """Return whether a memory has a row. A row may be out of range, because controllers wrap addresses late."""
    return row >= 0 and row >> r[MEMO.lg_bank + kind] < r[MEMO.banks + kind]


@part
def relate(memo: Memo, kind: int, old: int, new: int) -> bool:
    """Make page or row `new` the partner of `old`. Return False if the relation already contradicts this pair."""
    r = memo.registers
    if kind < SPAD_ROWS:
        return relate_pages(r, memo.pages, kind, old, new)
    if r[MEMO.identity]:
        return old == new
    return is_row(r, kind, old) and is_row(r, kind, new) and relate_rows(r, memo.rows, kind, old, new)


@part
def has_partner(memo: Memo, kind: int, old: int) -> bool:
    r = memo.registers
    if kind < SPAD_ROWS:
        return bool(memo.pages[slot(r, memo.pages, old << 2 | kind << 1), PAIR.stamp] == r[MEMO.stamp])
    if r[MEMO.identity] or not is_row(r, kind, old):
        return r[MEMO.identity] != 0
    return bool(memo.rows[r[MEMO.first_row + kind] + old, RELATED.forward] == r[MEMO.stamp])


@part
def partner(memo: Memo, kind: int, old: int) -> int:
    r = memo.registers
    if kind < SPAD_ROWS:
        return int(memo.pages[slot(r, memo.pages, old << 2 | kind << 1), PAIR.value])
    return old if r[MEMO.identity] else int(memo.rows[r[MEMO.first_row + kind] + old, RELATED.partner])
