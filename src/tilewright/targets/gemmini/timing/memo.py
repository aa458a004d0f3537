"""The data that a run stores to detect repetition: snapshots, and a relation between two sections of the program.

A DRAM page or memory row of one section is related to a page or row of another section if both sections use them in the
same way. Time depends only on which pages are equal, which rows are equal, and which bank each row is in. Two sections
therefore take the same time if their pages and rows are related one to one, and if related rows are in the same bank.
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
    """The single numbers of a memo."""

    # The number of the current relation. Only table entries with this number are valid, so a new relation can begin
    # without clearing tables of thousands of rows.
    stamp = FIXED
    pairs = FIXED  # the number of page pairs in the relation
    identity = FIXED  # whether every row is its own partner
    last_pair = FOUR  # the last pair of each client
    first_row = FOUR  # for each kind of row: the first row of its memory in Memo.rows
    lg_bank = FOUR  # log2 of the number of rows of a bank
    banks = FOUR
    line = FIXED  # bytes of the largest request; requests do not cross lines of this size
    next_check = FIXED  # the host command before which the state is saved next
    check = FIXED  # the place of this command in Memo.checks
    gap = FIXED  # the smallest number of primitive commands between two checks
    count = FIXED  # the number of snapshots
    free = FIXED  # the next free places in the archive: for words, and for pages and rows
    free_related = FIXED
    resume = FIXED  # the cycle in which the run continues
    last_busy = FIXED  # the last cycle in which the machine was busy
    skipped = FIXED  # the number of skipped cycles


class PagePair:
    """A page with its client and direction, and its partner."""

    stamp: int  # the number of the relation
    key: int
    value: int


class RowRelation:
    """The partner of a row."""

    forward: int  # the relation in which the row has a partner
    backward: int  # the relation in which the row is a partner
    partner: int
    checked: int  # the number of rows from this row on that are known to have consecutive partners


MEMO = columns(MemoRegisters)
PAIR = columns(PagePair)
RELATED = columns(RowRelation)


class Memo(NamedTuple):
    """The snapshots of a run, and the relation between two sections of the run."""

    registers: Array  # int64: see MemoRegisters
    archive: Array  # int64: the snapshots' words; see archive.py
    checks: Array  # int64: the host commands before which the state may be saved, then NEVER
    fingerprints: Array  # int64 [n]: for each host command, a hash of it and of the next commands
    prims: Array  # int64 [n + 1]: the number of primitive commands from all earlier commands
    loops: Array  # int64 [n + 1]: the number of loops from all earlier commands
    snapshots: Array  # int64 [k, 12]: see repeat.SnapshotColumns
    table: Array  # int64: for each hash of words, the newest snapshot, or -1
    pages: Array  # int64 [s, 3]: the relation of pages, a hash table
    rows: Array  # int64 [rows of scratchpad and accumulator, 4]: the relation of rows


@part
def slot(r: Array, pages: Array, key: int) -> int:
    """Return the place of a page in the hash table, or the free place for the page."""
    # Open addressing: `relate_pages` keeps half of the table free, so the search is short.
    last = pages.shape[0] - 1
    place = (key * 0x9E3779B97F4A7C1 >> 20) & last
    while pages[place, PAIR.stamp] == r[MEMO.stamp] and pages[place, PAIR.key] != key:
        place = (place + 1) & last
    return place


@part
def clear(memo: Memo, identity: bool) -> None:
    """Begin a new relation. `identity`: every row must be its own partner, which is faster."""
    # The last row of the accumulator is its own partner, because the controller may confuse it with the garbage
    # address.
    r = memo.registers
    r[MEMO.stamp] += 1
    r[MEMO.identity] = identity
    r[MEMO.pairs] = 0
    for client in range(SPAD_ROWS):
        relate_pages(r, memo.pages, client, NOWHERE, NOWHERE)
    last = (r[MEMO.banks + ACC_ROWS] << r[MEMO.lg_bank + ACC_ROWS]) - 1
    relate_rows(r, memo.rows, ACC_ROWS, last, last)


def relate_pages(r: Array, pages: Array, client: int, old: int, new: int) -> bool:
    """Make `new` the partner of page `old`. Return False for a conflict, or if there are too many pages."""
    # Successive requests are mostly in one page, so `equivalent_lines` compares the last pair before this call.
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
    """Make `new` the partner of row `old`. Return False if a row has another partner, or if the banks differ."""
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
    """Relate two ranges of rows of one memory, row by row. Return False if two rows cannot be related (relate_rows)."""
    if not relate_rows(r, rows, kind, old, new):
        return False
    # Operands are used repeatedly, so rows that are already related are skipped. The first row is related, with partner
    # `new`. From this row on, `checked` rows are known to have consecutive partners.
    place = r[MEMO.first_row + kind] + old
    for x in range(rows[place, RELATED.checked], size):
        if not relate_rows(r, rows, kind, old + x, new + x):
            return False
    rows[place, RELATED.checked] = max(rows[place, RELATED.checked], size)
    return True


@part
def is_row(r: Array, kind: int, row: int) -> bool:
    """Return whether a memory has this row. Controllers wrap addresses late, so a row may be beyond the last row."""
    return row >= 0 and row >> r[MEMO.lg_bank + kind] < r[MEMO.banks + kind]


@part
def relate(memo: Memo, kind: int, old: int, new: int) -> bool:
    """Make page or row `new` the partner of `old`. Return False if this contradicts the relation."""
    r = memo.registers
    if kind < SPAD_ROWS:
        return relate_pages(r, memo.pages, kind, old, new)
    if r[MEMO.identity]:
        return old == new
    return is_row(r, kind, old) and is_row(r, kind, new) and relate_rows(r, memo.rows, kind, old, new)


@part
def has_partner(memo: Memo, kind: int, old: int) -> bool:
    """Return whether a page or row has a partner."""
    r = memo.registers
    if kind < SPAD_ROWS:
        return bool(memo.pages[slot(r, memo.pages, old << 2 | kind << 1), PAIR.stamp] == r[MEMO.stamp])
    if r[MEMO.identity] or not is_row(r, kind, old):
        return r[MEMO.identity] != 0
    return bool(memo.rows[r[MEMO.first_row + kind] + old, RELATED.forward] == r[MEMO.stamp])


@part
def partner(memo: Memo, kind: int, old: int) -> int:
    """Return the partner of a page or row that has one."""
    r = memo.registers
    if kind < SPAD_ROWS:
        return int(memo.pages[slot(r, memo.pages, old << 2 | kind << 1), PAIR.value])
    return old if r[MEMO.identity] else int(memo.rows[r[MEMO.first_row + kind] + old, RELATED.partner])
