"""The order that the reservation station enforces, and the remaining conflicts, as compiled loops over commands.

A command waits for an earlier command in three cases: the commands are in different queues and their tracked ranges
overlap, both are stores, or a config_ex follows a preload or a compute. The waiting command starts when the earlier
command is *done*. Commands of one queue start in order, but a command may start before its predecessor is done.
Therefore `a` is done before `b` starts if a command c waits for `a`, and these rules start c no later than `b`.

A preload with a result is done when the result is written (ExecuteController.scala: mesh_completed_rob_id_fire). This
happens after the preload's compute is done, so a command that waits for the preload also waits for the compute. A
preload without a result is done before its compute.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.array import Array
from tilewright.sim.jit import compiled, part
from tilewright.targets.gemmini.hazards.touch import READ, WRITE, Rows
from tilewright.targets.gemmini.isa.work import EX, LD, ST

QUEUES = 3
#: Kinds of conflicts: two queues use the same row; zeros are loaded after data; the execute queue reads its own result;
#: DRAM is read after a write; DRAM is written after a read; int8 rows and int32 rows are loaded.
CROSS, ZEROS, RESULT, DRAM_READ, DRAM_WRITE, WIDTHS = range(6)
#: Marks of commands: a load of zeros; a config_ex; loads of int8 rows, of int32 rows, and of one repeated int32 row
#: (stride 0) into the accumulator; a preload with a result, directly before its compute. A repeated row yields to int8
#: rows.
ZERO, DRAIN, NARROW, WIDE, REPEATED, WRITES = range(1, 7)
NEVER = 1 << 60
#: The state of a row. For each queue: the last command that read the row, and the last command that wrote the row. For
#: the last write of an execute command: the first row of its operand. For the last load of data: the command, its
#: columns and its mode.
BEGUN, DATA, LOW, HIGH, MODE, ROW_STATE = range(2 * QUEUES, 2 * QUEUES + 6)


class Order(NamedTuple):
    """The commands of a program, int64 [n] each, and the order between them.

    `segment` counts the fences before each command. `waits` [n, QUEUES]: the first command of each queue that waits for
    command i. `reach` [n + 1, QUEUES]: the first command of each queue that cannot start before command i starts; the
    last row of `reach` is scratch memory. Both arrays contain NEVER (no command) until `successors` fills them.
    """

    queue: Array
    mark: Array
    segment: Array
    waits: Array
    reach: Array


@compiled
def successors(order: Order, tracked: Rows, after: Array) -> None:
    """Find the commands that wait for each command, from the last command to the first.

    `after` int64 [2, QUEUES, rows], filled with NEVER: for each queue and row, the next command that reads, and the
    next command that writes. The first waiting command of each queue is enough, because later commands of the queue
    start after it.
    """
    follows = order.reach[order.queue.shape[0]]  # the next command of each queue in program order
    drain = NEVER
    for step in range(order.queue.shape[0] - 1, -1, -1):
        queue = order.queue[step]
        waits = order.waits[step]
        find_waits(queue, waits, tracked, after, tracked.start[step], tracked.start[step + 1])
        for at in range(tracked.start[step], tracked.start[step + 1]):
            for k in range(tracked.size[at]):
                after[1 if tracked.mode[at] & WRITE else 0, queue, tracked.first[at] + k] = step
        # A store waits for all stores before it (ReservationStation.scala: deps_st).
        if queue == ST:
            waits[ST] = follows[ST]
        # Execute commands wait for each other only at a config_ex, which empties the array.
        if queue == EX:
            waits[EX] = drain
            if order.mark[step] == DRAIN:
                drain = step
            if order.mark[step] == WRITES:
                hand_to_compute(waits, order.waits[follows[EX]], follows[EX])
        follows[queue] = step
    find_reach(order, follows)


def hand_to_compute(waits: Array, of_compute: Array, compute: int) -> None:
    """Make the commands that wait for a preload with a result also wait for the preload's compute."""
    for queue in range(QUEUES):
        if waits[queue] > compute:
            of_compute[queue] = min(of_compute[queue], waits[queue])


def find_waits(queue: int, waits: Array, tracked: Rows, after: Array, first: int, last: int) -> None:
    """Find the first command of each other queue that waits because of the tracked ranges `first` to `last`."""
    for at in range(first, last):
        for row in range(tracked.first[at], tracked.first[at] + tracked.size[at]):
            for waiter in range(QUEUES):
                if waiter == queue:
                    continue
                waits[waiter] = min(waits[waiter], after[1, waiter, row])
                if tracked.mode[at] & WRITE:
                    waits[waiter] = min(waits[waiter], after[0, waiter, row])


def find_reach(order: Order, follows: Array) -> None:
    """For each command, find the first commands that cannot start before it. `follows` is scratch memory."""
    # From the last command to the first: `reach` of a command is the minimum of `reach` over its successors. The
    # successors are the next command of its queue, and the commands that wait for it. All successors are later in the
    # program, so their rows are complete.
    follows[:] = NEVER
    for step in range(order.queue.shape[0] - 1, -1, -1):
        queue = order.queue[step]
        for target in range(QUEUES):
            first = NEVER if follows[queue] == NEVER else order.reach[follows[queue], target]
            order.reach[step, target] = min(first, start_after(order, step, target))
        order.reach[step, queue] = step
        follows[queue] = step


@part
def start_after(order: Order, step: int, queue: int) -> int:
    """Return the first command of a queue that cannot start before command `step` is done, or NEVER."""
    first = NEVER
    for by in range(QUEUES):
        if order.waits[step, by] != NEVER:
            first = min(first, order.reach[order.waits[step, by], queue])
    return first


@part
def ordered(order: Order, early: int, late: int, queue: int) -> bool:
    """Return whether command `early` is done before command `late` of queue `queue` starts."""
    return bool(start_after(order, early, queue) <= late)


@part
def note(pairs: Array, kind: int, early: int, late: int, place: int) -> None:
    """Add a new conflict to `pairs`, int64 [limit + 1, 4]. The last row has the number of conflicts."""
    # The rows of an operand are visited one after the other, so an equal conflict is one of the last few entries.
    count = pairs[-1, 0]
    for at in range(max(count - 8, 0), count):
        if pairs[at, 0] == kind and pairs[at, 1] == early and pairs[at, 2] == late:
            return
    if count < pairs.shape[0] - 1:
        pairs[count, 0] = kind
        pairs[count, 1] = early
        pairs[count, 2] = late
        pairs[count, 3] = place
        pairs[-1, 0] = count + 1


@compiled
def conflicts(order: Order, rows: Rows, last: Array, pairs: Array) -> None:
    """Find conflicts in the scratchpad and the accumulator.

    `last` int64 [ROW_STATE, rows], filled with -1, is scratch memory for the state of each row.
    """
    for step in range(order.queue.shape[0]):
        for at in range(rows.start[step], rows.start[step + 1]):
            for k in range(rows.size[at]):
                row = rows.first[at] + k * rows.stride[at]
                meet_queues(order, rows, last, pairs, step, at, row)
                if order.queue[step] == LD:
                    meet_load(order, rows, last, pairs, step, at, row)
        # Update the state after all checks, because a command does not conflict with itself.
        for at in range(rows.start[step], rows.start[step + 1]):
            for k in range(rows.size[at]):
                row = rows.first[at] + k * rows.stride[at]
                if rows.mode[at] & WRITE:
                    keep_write(order, rows, last, step, at, row)
                if rows.mode[at] & READ:
                    last[order.queue[step], row] = step


@part
def meet_queues(order: Order, rows: Rows, last: Array, pairs: Array, step: int, at: int, row: int) -> None:
    """Record conflicts with the last command of each queue that used a row."""
    # A queue is in order, but an execute command may read a row before the array has written it: the controller
    # compares only the first rows of operands. A read in the same queue is safe only if the operand begins at the same
    # row as the result.
    queue = order.queue[step]
    result = rows.mode[at] == READ and last[BEGUN, row] != rows.base[at]
    for user in range(QUEUES):
        for wrote in range(2):
            early = last[wrote * QUEUES + user, row]
            if early < 0 or early == step or order.segment[early] != order.segment[step]:
                continue
            crosses = user != queue and (wrote or rows.mode[at] & WRITE)
            reads = user == queue and queue == EX and wrote and result
            if (crosses or reads) and not ordered(order, early, step, queue):
                note(pairs, CROSS if crosses else RESULT, early, step, row)


@part
def meet_load(order: Order, rows: Rows, last: Array, pairs: Array, step: int, at: int, row: int) -> None:
    """Record a conflict of a load with the previous load of data to the same row, if the load may overtake it."""
    # Loads start in order, but use different units: zeros do not wait for the memory, and int32 rows bypass the pixel
    # repeater (timing/moves.py).
    early = last[DATA, row]
    if early < 0 or order.segment[early] != order.segment[step]:
        return
    zeros = order.mark[step] == ZERO and rows.mode[at] == WRITE
    overtakes = order.mark[early] == NARROW and order.mark[step] >= WIDE
    yields = order.mark[early] == REPEATED and order.mark[step] == NARROW
    widths = (overtakes or yields) and not rows.mode[at] & last[MODE, row] & READ  # additions may happen in any order
    met = rows.low[at] < last[HIGH, row] and last[LOW, row] < rows.high[at]
    if (zeros or widths) and met and not ordered(order, early, step, LD):
        note(pairs, ZEROS if zeros else WIDTHS, early, step, row)


@part
def keep_write(order: Order, rows: Rows, last: Array, step: int, at: int, row: int) -> None:
    """Update the state of a row that a command writes."""
    last[QUEUES + order.queue[step], row] = step
    if order.queue[step] == EX:
        last[BEGUN, row] = rows.base[at]
    if order.queue[step] == LD:
        again = last[DATA, row] == step  # the copies of a pixel have different columns
        last[LOW, row] = min(rows.low[at], last[LOW, row]) if again else rows.low[at]
        last[HIGH, row] = max(rows.high[at], last[HIGH, row]) if again else rows.high[at]
        last[MODE, row] = rows.mode[at]
        last[DATA, row] = -1 if order.mark[step] == ZERO else step


@compiled
def dram_conflicts(order: Order, ranges: Rows, last: Array, pairs: Array) -> None:
    """Find conflicts in DRAM.

    `ranges` are in intervals of DRAM; a command touches an interval completely or not at all. `last` int64 [2,
    intervals], filled with -1, is scratch memory for the last command that read, and the last command that wrote, each
    interval. A read after a write needs a fence, because a store is done before its bytes are in DRAM.
    """
    for step in range(order.queue.shape[0]):
        for at in range(ranges.start[step], ranges.start[step + 1]):
            writes = ranges.mode[at] == WRITE
            for place in range(ranges.first[at], ranges.first[at] + ranges.size[at]):
                early = last[0 if writes else 1, place]
                met = early >= 0 and order.segment[early] == order.segment[step]
                if met and not (writes and ordered(order, early, step, ST)):
                    note(pairs, DRAM_WRITE if writes else DRAM_READ, early, step, place)
                last[1 if writes else 0, place] = step
