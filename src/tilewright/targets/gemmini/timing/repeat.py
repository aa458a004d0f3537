"""Skipping of repeated sections: equal states and equivalent commands give equal times, which can be copied.

`check` saves the state before certain commands of the host. If an earlier snapshot has the same words, the times after
the earlier snapshot are copied for as long as the new commands are equivalent to the old commands. Then the state at
the end of the copied section is restored. E. Schnarr and J. Larus describe this method in: Fast Out-Of-Order Processor
Simulation Using Memoization (ASPLOS 1998).
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from tilewright.array import Array
from tilewright.sim.jit import part
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.fields import Funct
from tilewright.targets.gemmini.isa.work import EX, NONE, ST, local
from tilewright.targets.gemmini.loops import Expansion
from tilewright.targets.gemmini.timing.archive import HEADER, KIND_BITS, LENGTH, PLACES, WORDS
from tilewright.targets.gemmini.timing.bus import ACC_ROWS, SPAD_ROWS
from tilewright.targets.gemmini.timing.equivalent import equivalent, equivalent_hosts, equivalent_loops
from tilewright.targets.gemmini.timing.memo import MEMO, NEVER, Memo, clear, has_partner, partner, relate
from tilewright.targets.gemmini.timing.program import CONFIG, Program
from tilewright.targets.gemmini.timing.records import columns
from tilewright.targets.gemmini.timing.snapshot import serialise
from tilewright.targets.gemmini.timing.station import STATION, TIMES
from tilewright.targets.gemmini.timing.unroll_streams import FRONT, FrontPlan

W = TypeVar("W", int, Array)


class SnapshotColumns:
    """The columns of the table of snapshots, Memo.snapshots."""

    host: int  # the host's next command
    cycle: int
    begin: int  # the snapshot's words in the archive: first index, end
    end: int
    related_begin: int  # the snapshot's pages and rows: first index, end
    related_end: int
    taken: int  # the number of commands that the station has accepted
    busy: int  # the last busy cycle
    low_host: int  # the smallest index of a host command in the state
    low_prim: int
    low_loop: int
    previous: int  # the newest earlier snapshot with the same hash of words


SNAPSHOT = columns(SnapshotColumns)
#: The largest number of snapshots per run, and of words per snapshot. A run with a full memory saves no more snapshots.
MAX_SNAPSHOTS = 8192
MAX_WORDS = 1 << 15
#: The sizes of two hash tables: for states and for pages.
BUCKETS = 1 << 14
PAGES = 1 << 14
#: The largest number of earlier snapshots that one check tries. The search ends at the first snapshot after which the
#: run repeats for ENOUGH_CYCLES cycles.
MAX_TRIES = 8
ENOUGH_CYCLES = 1000
#: With at least this number of primitive commands in flight, `check` tries only sections that use the same rows. A
#: section with different rows is slow to check: the rows of all commands in flight must be related.
MANY_PRIMS = 512
#: The smallest number of primitive commands between two checks. A candidate's fingerprint is the smallest among WINDOW
#: commands before it and after it.
MIN_GAP = 8
WINDOW = 32
#: Programs with fewer primitive commands are simulated without snapshots.
MIN_PRIMS = 256


def memo(expansion: Expansion, config: Config) -> Memo:
    """Return an empty memo of a program, with a list of the host commands before which the state may be saved."""
    # The list has the starts of hardware loops, and the commands with the smallest fingerprint of their neighbourhood
    # (winnowing, a method for document fingerprints). Only nearby commands influence the choice, so each repetition of
    # a section is saved at the same positions.
    rows = config.all_spad_rows + config.acc_rows
    n = len(expansion.commands)
    if len(expansion.prims) < MIN_PRIMS:
        n = 0
    registers = np.zeros(64, np.int64)
    registers[MEMO.line] = max(config.dma_bytes, config.bus_bytes)
    registers[MEMO.gap] = MIN_GAP
    registers[MEMO.next_check] = 0 if n else NEVER
    registers[[MEMO.free, MEMO.free_related]] = WORDS, PLACES
    for kind, first, bank_rows, banks in (
        (SPAD_ROWS, 0, config.spad_rows, config.spad_banks),
        (ACC_ROWS, config.all_spad_rows, config.acc_rows // config.acc_banks, config.acc_banks),
    ):
        registers[MEMO.first_row + kind] = first
        registers[MEMO.banks + kind] = banks
        registers[MEMO.lg_bank + kind] = bank_rows.bit_length() - 1
    run = expansion.loops.run[:n]
    entry = expansion.entry[:n]
    starts = expansion.loops.starts
    sizes = np.where(entry >= 0, 1, 0)
    sizes[run >= 0] = (starts[:, -1] - starts[:, 0])[run[run >= 0]]
    fingerprints = _fingerprints(expansion, config, n)
    least = np.pad(fingerprints, WINDOW, constant_values=np.iinfo(np.int64).max)
    # A sliding minimum by doubling the window. numpy has no sliding minimum, and a Python loop would be slow.
    width = 1
    while width <= 2 * WINDOW:
        step = min(width, 2 * WINDOW + 1 - width)
        least = np.minimum(least[:-step], least[step:])
        width = width + step
    checks = np.flatnonzero((run >= 0) | (fingerprints == least))
    return Memo(
        registers=registers,
        archive=np.empty(LENGTH if n else WORDS, np.int64),
        checks=np.append(checks, NEVER),
        fingerprints=fingerprints,
        prims=np.append(0, np.cumsum(sizes)),
        loops=np.append(0, np.cumsum(run >= 0)),
        snapshots=np.empty((MAX_SNAPSHOTS if n else 1, len(SnapshotColumns.__annotations__)), np.int64),
        table=np.full(BUCKETS if n else 1, NONE),
        pages=np.zeros((PAGES if n else 1, 3), np.int64),
        rows=np.zeros((rows if n else 1, 4), np.int64),
    )


def _fingerprints(expansion: Expansion, config: Config, n: int) -> Array:
    """For each of the first n commands, return a hash of this command and the next seven commands, int64 [n]."""
    # Equivalent commands must have equal hashes. So the hash excludes rows, and excludes DRAM addresses except for the
    # low bits, which determine the DMA's requests.
    entry = expansion.entry[:n]
    is_prim = expansion.entry[:n] >= 0
    funct, rs1, rs2 = expansion.prims[entry[is_prim]].view(np.int64).T
    fields = funct & 127 != Funct.CONFIG
    executes = expansion.kind[entry[is_prim]] == EX
    line = max(config.dma_bytes, config.bus_bytes)
    address = np.where(executes, _without_row(rs1, config), rs1 & line - 1)
    fingerprints = expansion.commands[:n, 0].astype(np.int64)
    hashed = mix(mix(np.zeros_like(funct), funct), np.where(fields, address, rs1))
    fingerprints[is_prim] = mix(hashed, np.where(fields, _without_row(rs2, config), rs2))
    # Each pass doubles the number of commands that a hash covers. The factor makes the hash depend on the order of the
    # commands.
    for lag in (1, 2, 4):
        fingerprints[:-lag] += 0x2545F4914F6CDD1D * fingerprints[lag:]
    return fingerprints


def _without_row(words: Array, config: Config) -> Array:
    place = local(words & 0xFFFFFFFF, words, words, config)
    mask = np.where(place.acc, config.acc_rows - 1, config.all_spad_rows - 1)
    return np.where(place.garbage, words, words & ~mask)


@part
def mix(hashed: W, word: W) -> W:
    """Return a hash that also covers `word`. numpy and compiled code both wrap the product at 64 bits."""
    product = (hashed ^ word) * 0x9E3779B97F4A7C1
    return product ^ (product >> 29 & 0xFFFFFFFF)


def check(m: Array, p: Program, plan: FrontPlan, accept: Array, memo: Memo, t: int, last_busy: int) -> None:
    """Save the state before the host's next command, and skip ahead if the next commands repeat earlier commands."""
    # On return, MEMO.resume is the cycle in which the run continues: `t` if nothing is skipped.
    r = memo.registers
    place = m[FRONT.next_host]
    new = r[MEMO.count]
    r[MEMO.resume] = t
    r[MEMO.last_busy] = last_busy
    if new == MAX_SNAPSHOTS or max(r[MEMO.free] + PLACES, r[MEMO.free_related]) + MAX_WORDS > LENGTH:
        r[MEMO.next_check] = NEVER
        return
    await_check(memo, place + 1, memo.prims[place] + r[MEMO.gap])
    save(m, p, plan, memo, place, t)
    newest = memo.snapshots[new]
    longest = 0
    end = NONE
    start = NONE
    identity = True
    last = NONE
    how = True
    # The first pass requires equal rows, which is fast and usually succeeds. The second pass allows different rows, for
    # loops that alternate between the halves of the scratchpad.
    for rows in range(2 if memo.prims[place] - newest[SNAPSHOT.low_prim] < MANY_PRIMS else 1):
        old = newest[SNAPSHOT.previous]
        tried = 0
        while old >= 0 and tried < MAX_TRIES and longest < ENOUGH_CYCLES:
            older = memo.snapshots[old]
            similar = memo.fingerprints[older[SNAPSHOT.host]] == memo.fingerprints[place]
            if similar and same_words(older, newest, memo.archive):
                tried += 1
                last = old
                how = rows == 0
                reached = agreement(m, p, plan, memo, old, new, how)
                cycles = memo.snapshots[reached, SNAPSHOT.cycle] - older[SNAPSHOT.cycle] if reached >= 0 else 0
                if cycles > longest:
                    longest = cycles
                    end = reached
                    start = old
                    identity = how
            old = older[SNAPSHOT.previous]
    if end >= 0:
        # The memo contains the relation for the snapshot of the last try. `repeat` needs the relation for the best try.
        if last != start or how != identity:
            agreement(m, p, plan, memo, start, new, identity)
        repeat(m, p, plan, accept, memo, start, end)


def save(m: Array, p: Program, plan: FrontPlan, memo: Memo, place: int, t: int) -> None:
    """Save the state in cycle `t`, before the host's command `place`, as the newest snapshot."""
    r = memo.registers
    archive = memo.archive
    snapshot = memo.snapshots[r[MEMO.count]]
    rewind(memo, r[MEMO.free], place, t)
    archive[HEADER.sets] = 0
    serialise(m, p, plan, archive)
    snapshot[SNAPSHOT.host] = place
    snapshot[SNAPSHOT.cycle] = t
    snapshot[SNAPSHOT.begin] = r[MEMO.free]
    snapshot[SNAPSHOT.end] = archive[HEADER.cursor]
    snapshot[SNAPSHOT.related_begin] = r[MEMO.free_related]
    snapshot[SNAPSHOT.related_end] = archive[HEADER.related]
    snapshot[SNAPSHOT.taken] = m[STATION.order]
    snapshot[SNAPSHOT.busy] = r[MEMO.last_busy]
    for x in range(3):
        snapshot[SNAPSHOT.low_host + x] = archive[HEADER.low_host + x]
    # Snapshots with the same hash form a linked list, newest first. The table has the head of each list.
    hashed = 0
    for at in range(snapshot[SNAPSHOT.begin], snapshot[SNAPSHOT.end]):
        hashed = hashed * 0x2545F4914F6CDD1D + archive[at]
    bucket = mix(0, hashed) & (BUCKETS - 1)
    snapshot[SNAPSHOT.previous] = memo.table[bucket]
    memo.table[bucket] = r[MEMO.count]
    r[MEMO.free] = snapshot[SNAPSHOT.end]
    r[MEMO.free_related] = snapshot[SNAPSHOT.related_end]
    r[MEMO.count] += 1


def rewind(memo: Memo, cursor: int, place: int, t: int) -> None:
    """Set the archive's cursor, and the cycle and commands to which the snapshot's numbers are relative."""
    archive = memo.archive
    archive[HEADER.now] = t
    archive[HEADER.cursor] = cursor
    archive[HEADER.related] = memo.registers[MEMO.free_related]
    archive[HEADER.first_host] = place
    archive[HEADER.first_prim] = memo.prims[place]
    archive[HEADER.first_loop] = memo.loops[place]


@part
def await_check(memo: Memo, place: int, prims: int) -> None:
    """Set the next check to the first candidate that is neither before command `place` nor before primitive `prims`."""
    r = memo.registers
    while memo.checks[r[MEMO.check]] < place or (
        memo.checks[r[MEMO.check]] < NEVER and memo.prims[memo.checks[r[MEMO.check]]] < prims
    ):
        r[MEMO.check] += 1
    r[MEMO.next_check] = memo.checks[r[MEMO.check]]


def same_words(old: Array, new: Array, archive: Array) -> bool:
    shift = new[SNAPSHOT.begin] - old[SNAPSHOT.begin]
    if old[SNAPSHOT.end] + shift != new[SNAPSHOT.end]:
        return False
    at = old[SNAPSHOT.begin]
    while at < old[SNAPSHOT.end] and archive[at] == archive[at + shift]:
        at += 1
    return bool(at == old[SNAPSHOT.end])


def agreement(m: Array, p: Program, plan: FrontPlan, memo: Memo, old: int, new: int, identity: bool) -> int:
    """Return the last snapshot up to which the run after `old` is equivalent to the run after `new`, or NONE.

    With `identity`, both sections must use the same rows.
    """
    earlier = memo.snapshots[old]
    later = memo.snapshots[new]
    clear(memo, identity)
    # Both states list their pages and rows in the same order, so entry k of one state is related to entry k of the
    # other.
    shift = later[SNAPSHOT.related_begin] - earlier[SNAPSHOT.related_begin]
    for at in range(earlier[SNAPSHOT.related_begin], earlier[SNAPSHOT.related_end]):
        kind = memo.archive[at] & (1 << KIND_BITS) - 1
        if not relate(memo, kind, memo.archive[at] >> KIND_BITS, memo.archive[at + shift] >> KIND_BITS):
            return NONE
    here = earlier[SNAPSHOT.host]
    there = later[SNAPSHOT.host]
    hosts = later[SNAPSHOT.host] - earlier[SNAPSHOT.host]
    prims = memo.prims[there] - memo.prims[here]
    loops = memo.loops[there] - memo.loops[here]
    for x in range(earlier[SNAPSHOT.low_loop], memo.loops[here]):
        if not equivalent_loops(plan, x, x + loops, prims):
            return NONE
    for x in range(earlier[SNAPSHOT.low_host], here):
        if not equivalent_hosts(plan, memo, x, x + hosts):
            return NONE
    # Compare commands until two commands are not equivalent. The copied section may end at any snapshot between `old`
    # and `new` whose pages and rows all have partners, because its state can be translated.
    best = NONE
    after = old + 1
    host = here
    x = earlier[SNAPSHOT.low_prim]
    n = plan.item.shape[0]
    while True:
        while x < memo.prims[host]:
            over = host == here and is_over(p, x, earlier[SNAPSHOT.cycle])
            if not over and not equivalent(m, p, plan, memo, x, x + prims):
                return best
            x += 1
        loop = plan.loops.run[host - 1] if host > here else NONE
        if loop >= 0 and not equivalent_loops(plan, loop, loop + loops, prims):
            return best
        if memo.snapshots[after, SNAPSHOT.host] == host:
            if all_have_partners(memo, after):
                best = after
            after += 1
        if after > new or host + hosts == n or not equivalent_hosts(plan, memo, host, host + hosts):
            return best
        host += 1


@part
def is_over(p: Program, x: int, t: int) -> bool:
    """Return whether the machine has no state of primitive command `x` in cycle `t`."""
    # False for stores and configurations: a store is done when its last row is read, possibly long before the row is
    # written, and a configuration remains in use until the next configuration.
    return p.queue[x] != ST and p.prims[x, 0] & 127 != CONFIG and 0 <= p.times[x, TIMES.done] < t


@part
def all_have_partners(memo: Memo, snapshot: int) -> bool:
    for at in range(memo.snapshots[snapshot, SNAPSHOT.related_begin], memo.snapshots[snapshot, SNAPSHOT.related_end]):
        if not has_partner(memo, memo.archive[at] & (1 << KIND_BITS) - 1, memo.archive[at] >> KIND_BITS):
            return False
    return True


def repeat(m: Array, p: Program, plan: FrontPlan, accept: Array, memo: Memo, old: int, end: int) -> None:
    """Copy the times between the snapshots `old` and `end` to the commands after the newest snapshot.

    Then restore the state of `end`, translated to the new pages and rows.
    """
    r = memo.registers
    earlier = memo.snapshots[old]
    newest = memo.snapshots[r[MEMO.count] - 1]
    last = memo.snapshots[end]
    hosts = newest[SNAPSHOT.host] - earlier[SNAPSHOT.host]
    later = newest[SNAPSHOT.cycle] - earlier[SNAPSHOT.cycle]
    prims = memo.prims[newest[SNAPSHOT.host]] - memo.prims[earlier[SNAPSHOT.host]]
    for x in range(earlier[SNAPSHOT.low_prim], memo.prims[last[SNAPSHOT.host]]):
        for event in range(3):
            t = p.times[x, event]
            if earlier[SNAPSHOT.cycle] <= t < last[SNAPSHOT.cycle]:
                p.times[x + prims, event] = t + later
    for x in range(earlier[SNAPSHOT.host], last[SNAPSHOT.host]):
        accept[x + hosts] = accept[x] + later
    for x in range(earlier[SNAPSHOT.taken], last[SNAPSHOT.taken]):
        p.order[x + newest[SNAPSHOT.taken] - earlier[SNAPSHOT.taken]] = p.order[x] + prims
    place = last[SNAPSHOT.host] + hosts
    archive = memo.archive
    rewind(memo, last[SNAPSHOT.begin], place, last[SNAPSHOT.cycle] + later)
    archive[HEADER.sets] = 1
    for at in range(last[SNAPSHOT.related_begin], last[SNAPSHOT.related_end]):
        here = r[MEMO.free_related] + at - last[SNAPSHOT.related_begin]
        archive[here] = partner(memo, archive[at] & (1 << KIND_BITS) - 1, archive[at] >> KIND_BITS)
    serialise(m, p, plan, archive)
    r[MEMO.resume] = last[SNAPSHOT.cycle] + later
    r[MEMO.last_busy] = last[SNAPSHOT.busy] + later
    r[MEMO.skipped] += last[SNAPSHOT.cycle] - earlier[SNAPSHOT.cycle]
    await_check(memo, place, 0)
