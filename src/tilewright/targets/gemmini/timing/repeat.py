"""Repetition: a machine that is in a state again, with like commands to come, does the same again.

The state is looked at before certain commands of the host. If an earlier state is the same, the times of the commands
since then are copied, as far as the commands to come are alike, and the machine is set to the state at the end. That is
the method of E. Schnarr, J. Larus: Fast Out-Of-Order Processor Simulation Using Memoization (ASPLOS 1998).
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.fields import Funct
from tilewright.targets.gemmini.isa.work import EX, ST, local
from tilewright.targets.gemmini.loops import Expansion
from tilewright.targets.gemmini.timing.alike import alike, alike_hosts, alike_loops
from tilewright.targets.gemmini.timing.bus import ACC_ROWS, SPAD_ROWS
from tilewright.targets.gemmini.timing.memo import MEMO, NEVER, Memo, clear, has_partner, partner, relate
from tilewright.targets.gemmini.timing.program import CONFIG, Program
from tilewright.targets.gemmini.timing.records import columns
from tilewright.targets.gemmini.timing.snapshot import visit
from tilewright.targets.gemmini.timing.station import STATION, TIMES
from tilewright.targets.gemmini.timing.tape import KIND_BITS, LENGTH, PLACES, TAPE, WORDS
from tilewright.targets.gemmini.timing.unroll_streams import FRONT, FrontPlan

W = TypeVar("W", int, Array)


class Kept:
    """Columns of Memo.kept: a snapshot."""

    place: int  # the host's next command
    cycle: int
    begin: int  # where its words begin and end
    end: int
    first: int  # where its pages and rows begin and end
    last: int
    took: int  # the commands that the station took
    busy: int  # the last busy cycle
    low_host: int  # what the state refers to
    low_prim: int
    low_loop: int
    before: int  # the one before with the same hash


KEPT = columns(Kept)
#: Snapshots, words of one at most, places in the hash tables of states and pages.
MOST = 8192
LARGEST = 1 << 15
BUCKETS = 1 << 14
PAGES = 1 << 14
#: Snapshots with the same words that are tried; cycles that are worth going on with at once; the primitive commands in
#: flight with which only stretches in the same rows are tried.
TRIED = 8
ENOUGH = 1000
MANY = 512
#: The least primitive commands between two checks. A command is checked if its mark is the least among so many before
#: and behind it.
LEAST = 8
REACH = 32
#: No snapshot.
NO = -1
#: Programs with fewer primitive commands are not looked at.
SHORT = 256


def memo(expansion: Expansion, config: Config) -> Memo:
    """Return an empty memo of a program, with the commands of the host before which the state is looked at.

    These are the hardware loops, and the commands with the least mark of their neighbourhood, as winnowing chooses the
    fingerprints of texts. So repetitions are looked at in like places.
    """
    rows = config.all_spad_rows + config.acc_rows
    n = len(expansion.commands)
    if len(expansion.prims) < SHORT:
        n = 0
    registers = np.zeros(64, np.int64)
    registers[MEMO.line] = max(config.dma_bytes, config.bus_bytes)
    registers[MEMO.gap] = LEAST
    registers[MEMO.next_check] = 0 if n else NEVER
    registers[[MEMO.free, MEMO.free_related]] = WORDS, PLACES
    for kind, first, each, banks in (
        (SPAD_ROWS, 0, config.spad_rows, config.spad_banks),
        (ACC_ROWS, config.all_spad_rows, config.acc_rows // config.acc_banks, config.acc_banks),
    ):
        registers[MEMO.first_row + kind] = first
        registers[MEMO.banks + kind] = banks
        registers[MEMO.lg_bank + kind] = each.bit_length() - 1
    run = expansion.loops.run[:n]
    entry = expansion.entry[:n]
    starts = expansion.loops.starts
    sizes = np.where(entry >= 0, 1, 0)
    sizes[run >= 0] = (starts[:, -1] - starts[:, 0])[run[run >= 0]]
    marks = _marks(expansion, config, n)
    least = np.pad(marks, REACH, constant_values=np.iinfo(np.int64).max)
    width = 1
    while width <= 2 * REACH:
        step = min(width, 2 * REACH + 1 - width)
        least = np.minimum(least[:-step], least[step:])
        width = width + step
    checks = np.flatnonzero((run >= 0) | (marks == least))
    return Memo(
        registers=registers,
        tape=np.empty(LENGTH if n else WORDS, np.int64),
        checks=np.append(checks, NEVER),
        marks=marks,
        prims=np.append(0, np.cumsum(sizes)),
        loops=np.append(0, np.cumsum(run >= 0)),
        kept=np.empty((MOST if n else 1, len(Kept.__annotations__)), np.int64),
        table=np.full(BUCKETS if n else 1, NO),
        pages=np.zeros((PAGES if n else 1, 3), np.int64),
        rows=np.zeros((rows if n else 1, 4), np.int64),
    )


def _marks(expansion: Expansion, config: Config, n: int) -> Array:
    """Return hashes of the first n commands and of those behind them, without DRAM addresses and rows, int64 [n]."""
    entry = expansion.entry[:n]
    own = expansion.entry[:n] >= 0
    funct, rs1, rs2 = expansion.prims[entry[own]].view(np.int64).T
    fields = funct & 127 != Funct.CONFIG
    executes = expansion.kind[entry[own]] == EX
    line = max(config.dma_bytes, config.bus_bytes)
    address = np.where(executes, _without_row(rs1, config), rs1 & line - 1)
    marks = expansion.commands[:n, 0].astype(np.int64)
    hashed = mixed(mixed(np.zeros_like(funct), funct), np.where(fields, address, rs1))
    marks[own] = mixed(hashed, np.where(fields, _without_row(rs2, config), rs2))
    for lag in (1, 2, 4):
        marks[:-lag] += 0x2545F4914F6CDD1D * marks[lag:]
    return marks


def _without_row(words: Array, config: Config) -> Array:
    """Return words of operands without their rows."""
    place = local(words & 0xFFFFFFFF, words, words, config)
    mask = np.where(place.acc, config.acc_rows - 1, config.all_spad_rows - 1)
    return np.where(place.garbage, words, words & ~mask)


@part
def mixed(hashed: W, word: W) -> W:
    """Return a hash with one more word."""
    found = (hashed ^ word) * 0x9E3779B97F4A7C1
    return found ^ (found >> 29 & 0xFFFFFFFF)


def check(m: Array, p: Program, plan: FrontPlan, accept: Array, memo: Memo, t: int, last_busy: int) -> None:
    """Save the state before the host's next command. If those to come repeat earlier ones, go on behind these."""
    r = memo.registers
    place = m[FRONT.next_host]
    new = r[MEMO.snapshots]
    r[MEMO.goes_on] = t
    r[MEMO.last_busy] = last_busy
    if new == MOST or max(r[MEMO.free] + PLACES, r[MEMO.free_related]) + LARGEST > LENGTH:
        r[MEMO.next_check] = NEVER
        return
    await_check(memo, place + 1, memo.prims[place] + r[MEMO.gap])
    save(m, p, plan, memo, place, t)
    own = memo.kept[new]
    longest = 0
    end = NO
    start = NO
    identity = True
    last = NO
    how = True
    for rows in range(2 if memo.prims[place] - own[KEPT.low_prim] < MANY else 1):
        old = own[KEPT.before]
        tried = 0
        while old >= 0 and tried < TRIED and longest < ENOUGH:
            if memo.marks[memo.kept[old, KEPT.place]] == memo.marks[place] and equal(memo.kept[old], own, memo.tape):
                tried += 1
                last = old
                how = rows == 0
                reached = agreed(m, p, plan, memo, old, new, how)
                cycles = memo.kept[reached, KEPT.cycle] - memo.kept[old, KEPT.cycle] if reached >= 0 else 0
                if cycles > longest:
                    longest = cycles
                    end = reached
                    start = old
                    identity = how
            old = memo.kept[old, KEPT.before]
    if end >= 0:
        if last != start or how != identity:
            agreed(m, p, plan, memo, start, new, identity)
        repeat(m, p, plan, accept, memo, start, end)


def save(m: Array, p: Program, plan: FrontPlan, memo: Memo, place: int, t: int) -> None:
    """Save the state before the host's command `place` as the newest snapshot."""
    r = memo.registers
    tape = memo.tape
    own = memo.kept[r[MEMO.snapshots]]
    rewind(memo, r[MEMO.free], place, t)
    tape[TAPE.sets] = 0
    visit(m, p, plan, tape)
    own[KEPT.place] = place
    own[KEPT.cycle] = t
    own[KEPT.begin] = r[MEMO.free]
    own[KEPT.end] = tape[TAPE.cursor]
    own[KEPT.first] = r[MEMO.free_related]
    own[KEPT.last] = tape[TAPE.related]
    own[KEPT.took] = m[STATION.order]
    own[KEPT.busy] = r[MEMO.last_busy]
    for x in range(3):
        own[KEPT.low_host + x] = tape[TAPE.low_host + x]
    hashed = 0
    for at in range(own[KEPT.begin], own[KEPT.end]):
        hashed = hashed * 0x2545F4914F6CDD1D + tape[at]
    bucket = mixed(0, hashed) & (BUCKETS - 1)
    own[KEPT.before] = memo.table[bucket]
    memo.table[bucket] = r[MEMO.snapshots]
    r[MEMO.free] = own[KEPT.end]
    r[MEMO.free_related] = own[KEPT.last]
    r[MEMO.snapshots] += 1


def rewind(memo: Memo, cursor: int, place: int, t: int) -> None:
    """Put the tape to the words from `cursor` on, for cycle `t` before the host's command `place`."""
    tape = memo.tape
    tape[TAPE.now] = t
    tape[TAPE.cursor] = cursor
    tape[TAPE.related] = memo.registers[MEMO.free_related]
    tape[TAPE.first_host] = place
    tape[TAPE.first_prim] = memo.prims[place]
    tape[TAPE.first_loop] = memo.loops[place]


@part
def await_check(memo: Memo, place: int, prims: int) -> None:
    """Set the command before which the state is looked at next: not before `place`, nor `prims` primitive commands."""
    r = memo.registers
    while memo.checks[r[MEMO.check]] < place or (
        memo.checks[r[MEMO.check]] < NEVER and memo.prims[memo.checks[r[MEMO.check]]] < prims
    ):
        r[MEMO.check] += 1
    r[MEMO.next_check] = memo.checks[r[MEMO.check]]


def equal(one: Array, other: Array, tape: Array) -> bool:
    """Return whether two snapshots have the same words."""
    shift = other[KEPT.begin] - one[KEPT.begin]
    if one[KEPT.end] + shift != other[KEPT.end]:
        return False
    at = one[KEPT.begin]
    while at < one[KEPT.end] and tape[at] == tape[at + shift]:
        at += 1
    return bool(at == one[KEPT.end])


def agreed(m: Array, p: Program, plan: FrontPlan, memo: Memo, old: int, new: int, identity: bool) -> int:
    """Return how far the run behind `new` repeats that behind `old`: the last snapshot of this stretch, or NO.

    All commands that the states refer to, and all to come, must be alike; with `identity` also in the same rows.
    """
    one = memo.kept[old]
    other = memo.kept[new]
    clear(memo, identity)
    shift = other[KEPT.first] - one[KEPT.first]
    for at in range(one[KEPT.first], one[KEPT.last]):
        kind = memo.tape[at] & (1 << KIND_BITS) - 1
        if not relate(memo, kind, memo.tape[at] >> KIND_BITS, memo.tape[at + shift] >> KIND_BITS):
            return NO
    here = one[KEPT.place]
    there = other[KEPT.place]
    hosts = other[KEPT.place] - one[KEPT.place]
    prims = memo.prims[there] - memo.prims[here]
    loops = memo.loops[there] - memo.loops[here]
    for x in range(one[KEPT.low_loop], memo.loops[here]):
        if not alike_loops(plan, x, x + loops, prims):
            return NO
    for x in range(one[KEPT.low_host], here):
        if not alike_hosts(plan, memo, x, x + hosts):
            return NO
    best = NO
    after = old + 1
    host = here
    x = one[KEPT.low_prim]
    n = plan.item.shape[0]
    while True:
        while x < memo.prims[host]:
            if not (host == here and is_over(p, x, one[KEPT.cycle])) and not alike(m, p, plan, memo, x, x + prims):
                return best
            x += 1
        loop = plan.loops.run[host - 1] if host > here else NO
        if loop >= 0 and not alike_loops(plan, loop, loop + loops, prims):
            return best
        if memo.kept[after, KEPT.place] == host:
            if all_have_partners(memo, after):
                best = after
            after += 1
        if after > new or host + hosts == n or not alike_hosts(plan, memo, host, host + hosts):
            return best
        host += 1


@part
def is_over(p: Program, x: int, t: int) -> bool:
    """Return whether nothing refers to a command any more: rows of stores and configurations last beyond their end."""
    return p.queue[x] != ST and p.prims[x, 0] & 127 != CONFIG and 0 <= p.times[x, TIMES.done] < t


@part
def all_have_partners(memo: Memo, snapshot: int) -> bool:
    """Return whether all pages and rows of a snapshot have partners."""
    for at in range(memo.kept[snapshot, KEPT.first], memo.kept[snapshot, KEPT.last]):
        if not has_partner(memo, memo.tape[at] & (1 << KIND_BITS) - 1, memo.tape[at] >> KIND_BITS):
            return False
    return True


def repeat(m: Array, p: Program, plan: FrontPlan, accept: Array, memo: Memo, old: int, end: int) -> None:
    """Copy what happened from snapshot `old` to `end`, as having happened since the newest; go on at its end."""
    r = memo.registers
    one = memo.kept[old]
    other = memo.kept[r[MEMO.snapshots] - 1]
    last = memo.kept[end]
    hosts = other[KEPT.place] - one[KEPT.place]
    later = other[KEPT.cycle] - one[KEPT.cycle]
    prims = memo.prims[other[KEPT.place]] - memo.prims[one[KEPT.place]]
    for x in range(one[KEPT.low_prim], memo.prims[last[KEPT.place]]):
        for event in range(3):
            t = p.times[x, event]
            if one[KEPT.cycle] <= t < last[KEPT.cycle]:
                p.times[x + prims, event] = t + later
    for x in range(one[KEPT.place], last[KEPT.place]):
        accept[x + hosts] = accept[x] + later
    for x in range(one[KEPT.took], last[KEPT.took]):
        p.order[x + other[KEPT.took] - one[KEPT.took]] = p.order[x] + prims
    place = last[KEPT.place] + hosts
    tape = memo.tape
    rewind(memo, last[KEPT.begin], place, last[KEPT.cycle] + later)
    tape[TAPE.sets] = 1
    for at in range(last[KEPT.first], last[KEPT.last]):
        here = r[MEMO.free_related] + at - last[KEPT.first]
        tape[here] = partner(memo, tape[at] & (1 << KIND_BITS) - 1, tape[at] >> KIND_BITS)
    visit(m, p, plan, tape)
    r[MEMO.goes_on] = last[KEPT.cycle] + later
    r[MEMO.last_busy] = last[KEPT.busy] + later
    r[MEMO.skipped] += last[KEPT.cycle] - one[KEPT.cycle]
    await_check(memo, place, 0)
