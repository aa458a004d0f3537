"""The order that the reservation station enforces, and conflicts of unordered commands, as compiled loops.

A command waits for an earlier command in three cases: the commands are in different queues and their tracked ranges
overlap, both are stores, or a config_ex follows a preload or a compute. The waiting command starts when the earlier
command is *done*. Commands of one queue start in order, but may start before their predecessor is done. So if a command
waits for `a` and never starts later than `b`, then `a` is done before `b` starts.

A preload with a result is done when the result is written (ExecuteController.scala: mesh_completed_rob_id_fire). At
that time, its compute is already done. So a command that waits for such a preload also waits for the compute. A preload
without a result is done before its compute.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.array import Array
from tilewright.sim.jit import compiled, part
from tilewright.targets.gemmini.hazards.touch import READ, WRITE, Rows
from tilewright.targets.gemmini.isa.work import EX, LD, ST

QUEUES = 3
#: Kinds of conflicts. CROSS: two queues use a row. ZEROS: a load of zeros follows a load of data. RESULT: the execute
#: queue reads its own result. DRAM_READ, DRAM_WRITE: a read follows a write, or a write follows a read. WIDTHS: a load
#: of int32 and a load of int8 use a row.
CROSS, ZEROS, RESULT, DRAM_READ, DRAM_WRITE, WIDTHS = range(6)
#: Marks of commands. ZERO: a load of zeros. DRAIN: a config_ex. NARROW, SCALED, WIDE: a load of int8 rows, of int8 rows
#: that the lanes scale, or of int32 rows to the accumulator. REPEATED: a load of one int32 row to several rows (stride
#: 0), which yields to int8 rows. WRITES: a preload with a result, directly before its compute.
ZERO, DRAIN, NARROW, SCALED, WIDE, REPEATED, WRITES = range(1, 8)
#: A flag beside the modes READ and WRITE: the row is the last one of its block.
TAIL = 4
NEVER = 1 << 60
#: The state of a row begins with the last reader of each queue and the last writer of each queue. If the row's last
#: writer is an execute command, BEGUN is the first row of this command's result. DATA, LOW, HIGH and MODE are the last
#: load of data, its columns, and its mode.
BEGUN, DATA, LOW, HIGH, MODE, ROW_STATE = range(2 * QUEUES, 2 * QUEUES + 6)


class Order(NamedTuple):
    """The n commands of a program, int64 [n] each, and the order between the commands.

    `segment` counts the fences before each command. For each queue, row i of `waits` [n, QUEUES] has the first command
    that waits for command i, and row i of `reach` [n + 1, QUEUES] has the first command that cannot start before
    command i starts. Row n of `reach` is scratch memory. Before `successors`, both arrays are filled with NEVER.
    """

    queue: Array
    mark: Array
    segment: Array
    waits: Array
    reach: Array


@compiled
def successors(order: Order, tracked: Rows, after: Array) -> None:
    """Find the first command of each queue that waits for each command, from the last command to the first.

    Later commands of the same queue start after this first command, so they need not be found. `after`, int64 [2,
    QUEUES, rows] filled with NEVER, is scratch memory for the next reader and the next writer of each row, by queue.
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
        # A store waits for all earlier stores (ReservationStation.scala: deps_st).
        if queue == ST:
            waits[ST] = follows[ST]
        # Among execute commands, only a config_ex waits for earlier commands, because it empties the array.
        if queue == EX:
            waits[EX] = drain
            if order.mark[step] == DRAIN:
                drain = step
            if order.mark[step] == WRITES:
                hand_to_compute(waits, order.waits[follows[EX]], follows[EX])
        follows[queue] = step
    find_reach(order, follows)


def hand_to_compute(waits: Array, of_compute: Array, compute: int) -> None:
    """Let the commands that wait for a preload with a result also wait for its compute."""
    for queue in range(QUEUES):
        if waits[queue] > compute:
            of_compute[queue] = min(of_compute[queue], waits[queue])


def find_waits(queue: int, waits: Array, tracked: Rows, after: Array, first: int, last: int) -> None:
    """Find the first command of every other queue that must wait for one of the tracked ranges `first` to `last`."""
    for at in range(first, last):
        for row in range(tracked.first[at], tracked.first[at] + tracked.size[at]):
            for waiter in range(QUEUES):
                if waiter == queue:
                    continue
                waits[waiter] = min(waits[waiter], after[1, waiter, row])
                if tracked.mode[at] & WRITE:
                    waits[waiter] = min(waits[waiter], after[0, waiter, row])


def find_reach(order: Order, follows: Array) -> None:
    """Fill `reach`, from the last command to the first. `follows` is scratch memory."""
    # A command's row is the minimum of the rows of its successors, which are already complete. The successors are the
    # next command of the queue, and the commands that wait for this command.
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
    """Return the first command of `queue` that starts only after command `step` is done, or NEVER."""
    first = NEVER
    for by in range(QUEUES):
        if order.waits[step, by] != NEVER:
            first = min(first, order.reach[order.waits[step, by], queue])
    return first


@part
def ordered(order: Order, early: int, late: int, queue: int) -> bool:
    """Return whether command `early` is always done before command `late` of queue `queue` starts."""
    return bool(start_after(order, early, queue) <= late)


@part
def note(pairs: Array, kind: int, early: int, late: int, place: int) -> None:
    """Add a conflict to `pairs`, int64 [limit + 1, 4], whose last row has the number of conflicts."""
    # An operand has a conflict in many successive rows, so a duplicate is among the last few entries.
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

    `last`, int64 [ROW_STATE, rows] filled with -1, is scratch memory for the state of each row.
    """
    for step in range(order.queue.shape[0]):
        for at in range(rows.start[step], rows.start[step + 1]):
            for k in range(rows.size[at]):
                row = rows.first[at] + k * rows.stride[at]
                meet_queues(order, rows, last, pairs, step, at, row)
                if order.queue[step] == LD:
                    meet_load(order, rows, last, pairs, step, at, row)
        # Update the state after all checks, so that a command does not conflict with itself.
        for at in range(rows.start[step], rows.start[step + 1]):
            for k in range(rows.size[at]):
                row = rows.first[at] + k * rows.stride[at]
                if rows.mode[at] & WRITE:
                    keep_write(order, rows, last, step, at, row)
                if rows.mode[at] & READ:
                    last[order.queue[step], row] = step


@part
def meet_queues(order: Order, rows: Rows, last: Array, pairs: Array, step: int, at: int, row: int) -> None:
    """Record conflicts with the last commands of each queue that used a row."""
    # Even within the execute queue, a command may read a row before the array has written the row. The controller
    # prevents this only if the operand begins at the first row of the result.
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
    """Record a conflict of a load with the previous load of data to a row, if the load may overtake that load."""
    # Loads start in order, but zeros do not wait for the memory, and int32 rows bypass the pixel repeater
    # (timing/moves.py).
    early = last[DATA, row]
    if early < 0 or order.segment[early] != order.segment[step]:
        return
    zeros = order.mark[step] == ZERO and rows.mode[at] == WRITE
    # An unscaled int8 row is written two cycles later than an int32 row that leaves the merger in the same cycle, so it
    # is overtaken only by the row directly behind it.
    touch = bool(last[MODE, row] & TAIL) and row == rows.first[at]
    narrow = order.mark[early] == SCALED or (order.mark[early] == NARROW and touch)
    overtakes = narrow and order.mark[step] >= WIDE
    yields = order.mark[early] == REPEATED and (order.mark[step] == NARROW or order.mark[step] == SCALED)
    # Two additions may happen in any order.
    widths = (overtakes or yields) and not rows.mode[at] & last[MODE, row] & READ
    met = rows.low[at] < last[HIGH, row] and last[LOW, row] < rows.high[at]
    if (zeros or widths) and met and not ordered(order, early, step, LD):
        note(pairs, ZEROS if zeros else WIDTHS, early, step, row)


@part
def keep_write(order: Order, rows: Rows, last: Array, step: int, at: int, row: int) -> None:
    last[QUEUES + order.queue[step], row] = step
    if order.queue[step] == EX:
        last[BEGUN, row] = rows.base[at]
    if order.queue[step] == LD:
        again = last[DATA, row] == step  # the row contains several copies of a pixel
        last[LOW, row] = min(rows.low[at], last[LOW, row]) if again else rows.low[at]
        last[HIGH, row] = max(rows.high[at], last[HIGH, row]) if again else rows.high[at]
        last[MODE, row] = rows.mode[at] | (TAIL if row == rows.first[at] + rows.size[at] - 1 else 0)
        last[DATA, row] = -1 if order.mark[step] == ZERO else step


@compiled
def dram_conflicts(order: Order, ranges: Rows, last: Array, pairs: Array) -> None:
    """Find conflicts in DRAM.

    `ranges` are ranges of intervals. A command uses an interval either completely or not at all. `last`, int64 [2,
    intervals] filled with -1, is scratch memory for the last reader and the last writer of each interval.
    """
    # A read after a write always needs a fence, because a store is done before its bytes are in DRAM.
    for step in range(order.queue.shape[0]):
        for at in range(ranges.start[step], ranges.start[step + 1]):
            writes = ranges.mode[at] == WRITE
            for place in range(ranges.first[at], ranges.first[at] + ranges.size[at]):
                early = last[0 if writes else 1, place]
                met = early >= 0 and order.segment[early] == order.segment[step]
                if met and not (writes and ordered(order, early, step, ST)):
                    note(pairs, DRAM_WRITE if writes else DRAM_READ, early, step, place)
                last[1 if writes else 0, place] = step
