"""What the reservation station orders, and the conflicts that it leaves: compiled loops over a program's commands.

A command is *done* before another one *starts* if the other one waits for it. It waits if it is in another queue and
their tracked ranges overlap, if both are stores, or at a config_ex behind a preload or a compute. Commands of a queue
start in order. So `a` is done before `b` starts if some command waits for `a` and, by these rules, does not start after
`b`. What waits for a preload with a result also waits for its compute: it is done when its result is written
(ExecuteController.scala: mesh_completed_rob_id_fire), and one without a result before its compute.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.array import Array
from tilewright.sim.jit import compiled, part
from tilewright.targets.gemmini.hazards.touch import READ, WRITE, Rows
from tilewright.targets.gemmini.isa.work import EX, LD, ST

QUEUES = 3
#: Kinds of conflicts: between queues, a load of zeros after a load of data, a result that is read by its own queue,
#: through DRAM, a read after a write, and a write after a read; loads of int8 and of int32 rows.
CROSS, ZEROS, RESULT, DRAM_READ, DRAM_WRITE, WIDTHS = range(6)
#: Marks of commands: a load of zeros, a config_ex, loads into the accumulator: of int8 rows, of int32 rows, and of one
#: int32 row many times (stride 0), which yields to int8 rows; a preload with a result, right before its compute.
ZERO, DRAIN, NARROW, WIDE, REPEATED, WRITES = range(1, 7)
NEVER = 1 << 60
#: What is known of a row, after the last command of each queue that read, and that wrote it: where the operand begins
#: with which an execute command wrote it; the last load of data to it, its columns, and its mode.
BEGUN, DATA, LOW, HIGH, MODE, KNOWN = range(2 * QUEUES, 2 * QUEUES + 6)


class Order(NamedTuple):
    """The commands of a program, int64 [n] each, and what orders them.

    `segment` counts the fences before each command. `waits` [n, QUEUES]: the first command of each queue that waits for
    command i. `reach` [n + 1, QUEUES]: the first one that cannot start before command i starts; its last row is scratch
    memory. Both are NEVER (none) before `successors` sets them.
    """

    queue: Array
    mark: Array
    segment: Array
    waits: Array
    reach: Array


@compiled
def successors(order: Order, tracked: Rows, after: Array) -> None:
    """Find what waits for each command, from the last one to the first.

    `after` int64 [2, QUEUES, rows], filled with NEVER: the next command of a queue that reads, and that writes, a row.
    """
    follows = order.reach[order.queue.shape[0]]  # the next command of each queue
    drain = NEVER
    for step in range(order.queue.shape[0] - 1, -1, -1):
        own = order.queue[step]
        waits = order.waits[step]
        find_waits(own, waits, tracked, after, tracked.start[step], tracked.start[step + 1])
        for at in range(tracked.start[step], tracked.start[step + 1]):
            for k in range(tracked.size[at]):
                after[1 if tracked.mode[at] & WRITE else 0, own, tracked.first[at] + k] = step
        if own == ST:
            waits[ST] = follows[ST]
        if own == EX:
            waits[EX] = drain
            if order.mark[step] == DRAIN:
                drain = step
            if order.mark[step] == WRITES:
                hand_to_compute(waits, order.waits[follows[EX]], follows[EX])
        follows[own] = step
    find_reach(order, follows)


def hand_to_compute(waits: Array, of_compute: Array, compute: int) -> None:
    """Let what waits for a preload with a result wait for its compute, too."""
    for other in range(QUEUES):
        if waits[other] > compute:
            of_compute[other] = min(of_compute[other], waits[other])


def find_waits(own: int, waits: Array, tracked: Rows, after: Array, first: int, last: int) -> None:
    """Find the first commands of other queues that wait for the tracked ranges `first` to `last` of a command."""
    for at in range(first, last):
        for row in range(tracked.first[at], tracked.first[at] + tracked.size[at]):
            for other in range(QUEUES):
                if other == own:
                    continue
                waits[other] = min(waits[other], after[1, other, row])
                if tracked.mode[at] & WRITE:
                    waits[other] = min(waits[other], after[0, other, row])


def find_reach(order: Order, follows: Array) -> None:
    """Find what cannot start before each command starts. `follows` [QUEUES] is scratch memory."""
    follows[:] = NEVER
    for step in range(order.queue.shape[0] - 1, -1, -1):
        own = order.queue[step]
        for other in range(QUEUES):
            first = NEVER if follows[own] == NEVER else order.reach[follows[own], other]
            order.reach[step, other] = min(first, start_after(order, step, other))
        order.reach[step, own] = step
        follows[own] = step


@part
def start_after(order: Order, step: int, queue: int) -> int:
    """Return the first command of a queue that cannot start before what waits for a command, or NEVER."""
    first = NEVER
    for by in range(QUEUES):
        if order.waits[step, by] != NEVER:
            first = min(first, order.reach[order.waits[step, by], queue])
    return first


@part
def ordered(order: Order, early: int, late: int, queue: int) -> bool:
    """Return whether command `early` is done before command `late`, of this queue, starts."""
    return bool(start_after(order, early, queue) <= late)


@part
def note(found: Array, kind: int, early: int, late: int, place: int) -> None:
    """Add a conflict to `found`, int64 [limit + 1, 4], unless it is there. The last row counts them."""
    count = found[-1, 0]
    for at in range(max(count - 8, 0), count):
        if found[at, 0] == kind and found[at, 1] == early and found[at, 2] == late:
            return
    if count < found.shape[0] - 1:
        found[count, 0] = kind
        found[count, 1] = early
        found[count, 2] = late
        found[count, 3] = place
        found[-1, 0] = count + 1


@compiled
def conflicts(order: Order, rows: Rows, last: Array, found: Array) -> None:
    """Find conflicts in the scratchpad and the accumulator. `last` int64 [KNOWN, rows], filled with -1: see KNOWN."""
    for step in range(order.queue.shape[0]):
        for at in range(rows.start[step], rows.start[step + 1]):
            for k in range(rows.size[at]):
                row = rows.first[at] + k * rows.stride[at]
                meet_queues(order, rows, last, found, step, at, row)
                if order.queue[step] == LD:
                    meet_load(order, rows, last, found, step, at, row)
        for at in range(rows.start[step], rows.start[step + 1]):
            for k in range(rows.size[at]):
                row = rows.first[at] + k * rows.stride[at]
                if rows.mode[at] & WRITE:
                    keep_write(order, rows, last, step, at, row)
                if rows.mode[at] & READ:
                    last[order.queue[step], row] = step


@part
def meet_queues(order: Order, rows: Rows, last: Array, found: Array, step: int, at: int, row: int) -> None:
    """Note conflicts with the last command of each queue that used a row."""
    own = order.queue[step]
    result = rows.mode[at] == READ and last[BEGUN, row] != rows.own[at]
    for other in range(QUEUES):
        for wrote in range(2):
            early = last[wrote * QUEUES + other, row]
            if early < 0 or early == step or order.segment[early] != order.segment[step]:
                continue
            crosses = other != own and (wrote or rows.mode[at] & WRITE)
            reads = other == own and own == EX and wrote and result
            if (crosses or reads) and not ordered(order, early, step, own):
                note(found, CROSS if crosses else RESULT, early, step, row)


@part
def meet_load(order: Order, rows: Rows, last: Array, found: Array, step: int, at: int, row: int) -> None:
    """Note a conflict with the last load of data to a row, which a load may overtake."""
    early = last[DATA, row]
    if early < 0 or order.segment[early] != order.segment[step]:
        return
    zeros = order.mark[step] == ZERO and rows.mode[at] == WRITE
    overtakes = order.mark[early] == NARROW and order.mark[step] >= WIDE
    yields = order.mark[early] == REPEATED and order.mark[step] == NARROW
    widths = (overtakes or yields) and not rows.mode[at] & last[MODE, row] & READ  # sums come in any order
    met = rows.low[at] < last[HIGH, row] and last[LOW, row] < rows.high[at]
    if (zeros or widths) and met and not ordered(order, early, step, LD):
        note(found, ZEROS if zeros else WIDTHS, early, step, row)


@part
def keep_write(order: Order, rows: Rows, last: Array, step: int, at: int, row: int) -> None:
    """Keep what is known of a row that a command writes."""
    last[QUEUES + order.queue[step], row] = step
    if order.queue[step] == EX:
        last[BEGUN, row] = rows.own[at]
    if order.queue[step] == LD:
        again = last[DATA, row] == step  # copies of pixels lie in other columns
        last[LOW, row] = min(rows.low[at], last[LOW, row]) if again else rows.low[at]
        last[HIGH, row] = max(rows.high[at], last[HIGH, row]) if again else rows.high[at]
        last[MODE, row] = rows.mode[at]
        last[DATA, row] = -1 if order.mark[step] == ZERO else step


@compiled
def dram_conflicts(order: Order, ranges: Rows, last: Array, found: Array) -> None:
    """Find conflicts in DRAM.

    `ranges` are stretches of DRAM: no command touches a part of one. `last` int64 [2, stretches], filled with -1, is
    scratch memory: the last command that read, and that wrote, a stretch. A read after a write needs a fence: a store
    is done before its bytes are in DRAM.
    """
    for step in range(order.queue.shape[0]):
        for at in range(ranges.start[step], ranges.start[step + 1]):
            writes = ranges.mode[at] == WRITE
            for place in range(ranges.first[at], ranges.first[at] + ranges.size[at]):
                early = last[0 if writes else 1, place]
                met = early >= 0 and order.segment[early] == order.segment[step]
                if met and not (writes and ordered(order, early, step, ST)):
                    note(found, DRAM_WRITE if writes else DRAM_READ, early, step, place)
                last[1 if writes else 0, place] = step
