"""Repetition: a machine that is in a state again, with like commands to come, does the same again.

The state is looked at before certain commands of the host. If an earlier state is the same, the times of the commands
since then are copied, as far as the commands to come are alike, and the machine is set to the state at the end. That is
the method of E. Schnarr, J. Larus: Fast Out-Of-Order Processor Simulation Using Memoization (ASPLOS 1998).
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import called, part
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.loops import Expansion
from tilewright.targets.gemmini.timing import chip as c
from tilewright.targets.gemmini.timing.alike import LINE, alike, alike_hosts, alike_loops, lay_shapes
from tilewright.targets.gemmini.timing.chip import Program, is_acc, is_garbage
from tilewright.targets.gemmini.timing.memo import Memo, clear, has_partner, lay_rows, partner, relate
from tilewright.targets.gemmini.timing.snapshot import visit
from tilewright.targets.gemmini.timing.station import DONE, ORDER
from tilewright.targets.gemmini.timing.tape import (
    ACC_ROWS,
    CURSOR,
    FIRST_HOST,
    FIRST_LOOP,
    FIRST_PRIM,
    KIND_BITS,
    LOW_HOST,
    LOW_LOOP,
    LOW_PRIM,
    NOW,
    PLACES,
    RELATED,
    SETS,
    SPAD_ROWS,
    TAPE,
    WORDS,
)
from tilewright.targets.gemmini.timing.unroll_state import Front, Plan

#: Registers of a memo: the command of the host before which the state is looked at next, its place in `checks`, the
#: least primitive commands between two, the commands on each side with marks not below it; the snapshots, the next
#: free places on the tape for words and for pages and rows; where the run goes on: the cycle, and the last one in which
#: the machine was busy; the cycles that were copied.
NEXT_CHECK, CHECK, GAP, WINDOW, SNAPSHOTS, FREE, FREE_RELATED, GOES_ON, LAST_BUSY, SKIPPED = range(16, 26)
REGISTERS = 32
#: Columns of Memo.kept: the host's next command, the cycle, where words and related places begin and end, the commands
#: that the station took, the last busy cycle, what the state refers to, the one before with its hash, the first
#: one with the same words.
PLACE, CYCLE, BEGIN, END, FROM, TO, TOOK, BUSY, LOWEST_HOST, LOWEST_PRIM, LOWEST_LOOP, BEFORE, FIRST = range(13)
COLUMNS = 13
#: Snapshots, words of one at most, places in the hash tables of states and pages.
KEPT, LARGEST, BUCKETS, PAGES = 8192, 1 << 15, 1 << 14, 1 << 14
#: Snapshots with the same words that are tried; cycles that are worth going on with at once; the primitive commands in
#: flight with which only stretches in the same rows are tried.
TRIED, ENOUGH, MANY = 8, 1000, 512
#: The least primitive commands between two checks. A command is checked if its mark is the least among so many before
#: and behind it.
LEAST, SPAN = 8, 32
#: No command of the host; no snapshot.
NEVER, NONE = 1 << 62, -1
#: Programs with fewer primitive commands are not looked at.
SHORT = 256
LD, EX, ST = 0, 1, 2
CONFIG = 0


def memo(expansion: Expansion, config: Config) -> Memo:
    """Return an empty memo of a program."""
    line, rows = max(config.dma_bytes, config.bus_bytes), config.all_spad_rows + config.acc_rows
    n, m = len(expansion.commands), len(expansion.prims)
    if m < SHORT:
        n = m = 0
    registers = np.zeros(REGISTERS, np.int64)
    registers[LINE], registers[NEXT_CHECK] = line, 0 if n else NEVER
    registers[[GAP, WINDOW]] = LEAST, SPAN
    registers[[FREE, FREE_RELATED]] = WORDS, PLACES
    return Memo(
        registers=registers,
        tape=np.empty(TAPE if n else WORDS, np.int64),
        checks=np.empty(n + 1, np.int64),
        marks=np.empty(n, np.int64),
        prims=np.empty(n + 1, np.int64),
        loops=np.empty(n + 1, np.int64),
        shapes=np.zeros((m, 5), np.int64),
        kept=np.empty((KEPT if n else 1, COLUMNS), np.int64),
        table=np.full(BUCKETS if n else 1, NONE),
        pages=np.zeros((PAGES if n else 1, 3), np.int64),
        rows=np.zeros((rows if n else 1, 4), np.int64),
    )


@called
def survey(m: Array, p: Program, plan: Plan, memo: Memo) -> None:
    """Set what a memo needs to know of the program, and before which commands the state is looked at.

    These are the hardware loops, and the commands with the least mark of their neighbourhood, as winnowing chooses the
    fingerprints of texts. So repetitions are looked at in like places.
    """
    r, n = memo.registers, plan.item.shape[0]
    rows, acc_rows = m[c.SPAD] + 1, m[c.ACC] + 1
    lay_rows(r, SPAD_ROWS, 0, m[c.LG_SPAD_BANK], rows >> m[c.LG_SPAD_BANK])
    lay_rows(r, ACC_ROWS, rows, m[c.LG_ACC_BANK], acc_rows >> m[c.LG_ACC_BANK])
    lay_shapes(m, p, memo)
    memo.prims[0] = memo.loops[0] = 0
    for x in range(n):
        loop = plan.run[x]
        size = 1 if plan.item[x] >= 0 else plan.starts[loop, 5] - plan.starts[loop, 0] if loop >= 0 else 0
        memo.prims[x + 1], memo.loops[x + 1] = memo.prims[x] + size, memo.loops[x] + (loop >= 0)
        memo.marks[x] = mark(m, p, r[LINE], plan.item[x]) if plan.item[x] >= 0 else plan.action[x]
    for lag in (1, 2, 4):  # marks of stretches
        for x in range(n - lag):
            memo.marks[x] += 0x2545F4914F6CDD1D * memo.marks[x + lag]
    checks, least = 0, NONE
    for x in range(n):
        if least < x - r[WINDOW]:
            least = lowest(memo, max(x - r[WINDOW], 0), min(x + r[WINDOW], n - 1))
        elif x + r[WINDOW] < n and memo.marks[x + r[WINDOW]] < memo.marks[least]:
            least = x + r[WINDOW]
        if plan.run[x] >= 0 or memo.marks[least] == memo.marks[x]:
            memo.checks[checks] = x
            checks += 1
    memo.checks[checks] = NEVER


@part
def lowest(memo: Memo, first: int, last: int) -> int:
    """Return the last place of the least mark."""
    least = first
    for x in range(first + 1, last + 1):
        if memo.marks[x] <= memo.marks[least]:
            least = x
    return least


@part
def mixed(hashed: int, word: int) -> int:
    """Return a hash with one more word."""
    found = (hashed ^ word) * 0x9E3779B97F4A7C1
    return found ^ (found >> 29 & 0xFFFFFFFF)


@part
def mark(m: Array, p: Program, line: int, prim: int) -> int:
    """Return a hash of a primitive command without its DRAM address and rows."""
    rs1, rs2, moves = p.prims[prim, 1], p.prims[prim, 2], p.queue[prim] != EX
    if p.prims[prim, 0] & 127:
        rs1 = rs1 & line - 1 if moves else without_row(m, rs1)
        rs2 = without_row(m, rs2)
    return mixed(mixed(mixed(0, p.prims[prim, 0]), rs1), rs2)


@part
def without_row(m: Array, word: int) -> int:
    """Return the word of an operand without its row."""
    return word if is_garbage(m, word) else word & ~(m[c.ACC] if is_acc(word) else m[c.SPAD])


@called
def check(
    m: Array, p: Program, front: Front, plan: Plan, accept: Array, memo: Memo, place: int, t: int, last_busy: int
) -> None:
    """Save the state before command `place`. If the commands to come repeat earlier ones, go on behind these."""
    r = memo.registers
    if place == 0:
        survey(m, p, plan, memo)
    r[GOES_ON], r[LAST_BUSY] = t, last_busy
    new = r[SNAPSHOTS]
    if new == KEPT or max(r[FREE] + PLACES, r[FREE_RELATED]) + LARGEST > TAPE:
        r[NEXT_CHECK] = NEVER
        return
    await_check(memo, place + 1, memo.prims[place] + r[GAP])
    own, tape = memo.kept[new], memo.tape
    tape[SETS], tape[NOW], tape[CURSOR], tape[RELATED] = 0, t, r[FREE], r[FREE_RELATED]
    tape[FIRST_HOST], tape[FIRST_PRIM], tape[FIRST_LOOP] = place, memo.prims[place], memo.loops[place]
    visit(m, p, front, plan, tape)
    own[PLACE], own[CYCLE], own[BEGIN], own[END] = place, t, r[FREE], tape[CURSOR]
    own[FROM], own[TO], own[TOOK], own[BUSY] = r[FREE_RELATED], tape[RELATED], m[ORDER], last_busy
    own[LOWEST_HOST], own[LOWEST_PRIM], own[LOWEST_LOOP] = tape[LOW_HOST], tape[LOW_PRIM], tape[LOW_LOOP]
    r[FREE], r[FREE_RELATED], r[SNAPSHOTS] = own[END], own[TO], new + 1
    hashed = 0
    for at in range(own[BEGIN], own[END]):
        hashed = hashed * 0x2545F4914F6CDD1D + tape[at]
    bucket = mixed(0, hashed) & (BUCKETS - 1)
    own[BEFORE], own[FIRST], memo.table[bucket] = memo.table[bucket], new, new
    longest, end, start, identity, last, how = 0, NONE, NONE, True, NONE, True
    for rows in range(2 if memo.prims[place] - own[LOWEST_PRIM] < MANY else 1):
        old, tried = own[BEFORE], 0
        while old >= 0 and tried < TRIED and longest < ENOUGH:
            if memo.marks[memo.kept[old, PLACE]] == memo.marks[place] and is_same(memo, old, new):
                tried += 1
                found, last, how = agreed(m, p, plan, memo, old, new, rows == 0), old, rows == 0
                cycles = memo.kept[found, CYCLE] - memo.kept[old, CYCLE] if found >= 0 else 0
                if cycles > longest:
                    longest, end, start, identity = cycles, found, old, rows == 0
            old = memo.kept[old, BEFORE]
    if end >= 0:
        if last != start or how != identity:
            agreed(m, p, plan, memo, start, new, identity)
        repeat(m, p, front, plan, accept, memo, start, new, end)


@part
def await_check(memo: Memo, place: int, prims: int) -> None:
    """Set the command before which the state is looked at next: not before `place`, nor `prims` primitive commands."""
    r = memo.registers
    while memo.checks[r[CHECK]] < place or (
        memo.checks[r[CHECK]] < NEVER and memo.prims[memo.checks[r[CHECK]]] < prims
    ):
        r[CHECK] += 1
    r[NEXT_CHECK] = memo.checks[r[CHECK]]


@part
def is_same(memo: Memo, old: int, new: int) -> bool:
    """Return whether two snapshots have the same words. One comparison tells it of all that were the same before."""
    if memo.kept[new, FIRST] == new and equal(memo.kept[old], memo.kept[new], memo.tape):
        memo.kept[new, FIRST] = memo.kept[old, FIRST]
    return bool(memo.kept[new, FIRST] == memo.kept[old, FIRST])


@called
def equal(one: Array, other: Array, tape: Array) -> bool:
    """Return whether two snapshots have the same words."""
    shift = other[BEGIN] - one[BEGIN]
    if one[END] + shift != other[END]:
        return False
    at = one[BEGIN]
    while at < one[END] and tape[at] == tape[at + shift]:
        at += 1
    return bool(at == one[END])


@called
def agreed(m: Array, p: Program, plan: Plan, memo: Memo, old: int, new: int, identity: bool) -> int:
    """Return how far the run behind `new` repeats that behind `old`: the last snapshot of this stretch, or NONE.

    All commands that the states refer to, and all to come, must be alike; with `identity` also in the same rows.
    """
    one, other = memo.kept[old], memo.kept[new]
    clear(memo, identity)
    shift = other[FROM] - one[FROM]
    for at in range(one[FROM], one[TO]):
        kind = memo.tape[at] & (1 << KIND_BITS) - 1
        if not relate(memo, kind, memo.tape[at] >> KIND_BITS, memo.tape[at + shift] >> KIND_BITS):
            return NONE
    here, there, hosts = one[PLACE], other[PLACE], other[PLACE] - one[PLACE]
    prims, loops = memo.prims[there] - memo.prims[here], memo.loops[there] - memo.loops[here]
    for x in range(one[LOWEST_LOOP], memo.loops[here]):
        if not alike_loops(plan, x, x + loops, prims):
            return NONE
    for x in range(one[LOWEST_HOST], here):
        if not alike_hosts(plan, memo, x, x + hosts):
            return NONE
    best, after, host, x, n = NONE, old + 1, here, one[LOWEST_PRIM], plan.item.shape[0]
    while True:
        while x < memo.prims[host]:
            if not (host == here and is_over(p, x, one[CYCLE])) and not alike(m, p, plan, memo, x, x + prims):
                return best
            x += 1
        loop = plan.run[host - 1] if host > here else NONE
        if loop >= 0 and not alike_loops(plan, loop, loop + loops, prims):
            return best
        if memo.kept[after, PLACE] == host:
            if all_have_partners(memo, after):
                best = after
            after += 1
        if after > new or host + hosts == n or not alike_hosts(plan, memo, host, host + hosts):
            return best
        host += 1


@part
def is_over(p: Program, x: int, t: int) -> bool:
    """Return whether nothing refers to a command any more: rows of stores and configurations last beyond their end."""
    return p.queue[x] != ST and p.prims[x, 0] & 127 != CONFIG and 0 <= p.times[x, DONE] < t


@part
def all_have_partners(memo: Memo, snapshot: int) -> bool:
    """Return whether all pages and rows of a snapshot have partners."""
    for at in range(memo.kept[snapshot, FROM], memo.kept[snapshot, TO]):
        if not has_partner(memo, memo.tape[at] & (1 << KIND_BITS) - 1, memo.tape[at] >> KIND_BITS):
            return False
    return True


@called
def repeat(
    m: Array, p: Program, front: Front, plan: Plan, accept: Array, memo: Memo, old: int, new: int, end: int
) -> None:
    """Copy what happened from snapshot `old` to `end`, as having happened since `new`; set the state at the end."""
    r = memo.registers
    one, other, last = memo.kept[old], memo.kept[new], memo.kept[end]
    hosts, later = other[PLACE] - one[PLACE], other[CYCLE] - one[CYCLE]
    prims = memo.prims[other[PLACE]] - memo.prims[one[PLACE]]
    for x in range(one[LOWEST_PRIM], memo.prims[last[PLACE]]):
        for event in range(3):
            t = p.times[x, event]
            if one[CYCLE] <= t < last[CYCLE]:
                p.times[x + prims, event] = t + later
    for x in range(one[PLACE], last[PLACE]):
        accept[x + hosts] = accept[x] + later
    for x in range(one[TOOK], last[TOOK]):
        p.order[x + other[TOOK] - one[TOOK]] = p.order[x] + prims
    place = last[PLACE] + hosts
    tape = memo.tape
    tape[SETS], tape[NOW], tape[CURSOR], tape[RELATED] = 1, last[CYCLE] + later, last[BEGIN], r[FREE_RELATED]
    tape[FIRST_HOST], tape[FIRST_PRIM], tape[FIRST_LOOP] = place, memo.prims[place], memo.loops[place]
    for at in range(last[FROM], last[TO]):
        here = r[FREE_RELATED] + at - last[FROM]
        tape[here] = partner(memo, tape[at] & (1 << KIND_BITS) - 1, tape[at] >> KIND_BITS)
    visit(m, p, front, plan, tape)
    r[GOES_ON], r[LAST_BUSY] = last[CYCLE] + later, last[BUSY] + later
    r[SKIPPED] += last[CYCLE] - one[CYCLE]
    await_check(memo, place, 0)
