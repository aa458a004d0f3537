"""The order that the reservation station enforces, and the conflicts that it leaves: compiled loops over commands.

A command waits for another one if it is in another queue and their tracked ranges overlap, if both are stores, or at a
config_ex after a preload or a compute. The waiting command starts when the other one is *done*. Commands of one queue
start in order, but the next one may start before the last one is done. So `a` is done before `b` starts if some command
waits for `a`, and by these rules starts no later than `b`.

A preload with a result is done when its result is written (ExecuteController.scala: mesh_completed_rob_id_fire), which
is after its compute is done. So what waits for the preload also waits for the compute. A preload without a result is
done before its compute.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.array import Array
from tilewright.sim.jit import compiled, part
from tilewright.targets.gemmini.hazards.touch import READ, WRITE, Rows
from tilewright.targets.gemmini.isa.work import EX, LD, ST

QUEUES = 3
#: Kinds of conflicts: two queues at one row; a load of zeros after a load of data; a result that is read by its own
#: queue; a read of DRAM after a write, and a write after a read; loads of int8 and of int32 rows.
CROSS, ZEROS, RESULT, DRAM_READ, DRAM_WRITE, WIDTHS = range(6)
#: Marks of commands: a load of zeros; a config_ex; loads into the accumulator, of int8 rows, of int32 rows, and of one
#: int32 row many times (stride 0), which yields to int8 rows; a preload with a result, right before its compute.
ZERO, DRAIN, NARROW, WIDE, REPEATED, WRITES = range(1, 7)
NEVER = 1 << 60
#: The state of a row: first the last command of each queue that read it, and that wrote it; then where the operand
#: begins with which an execute command wrote it; the last load of data to it, its columns, and its mode.
BEGUN, DATA, LOW, HIGH, MODE, ROW_STATE = range(2 * QUEUES, 2 * QUEUES + 6)


class Order(NamedTuple):
    """The commands of a program, int64 [n] each, and the relation that orders them.

    `segment` counts the fences before each command. `waits` [n, QUEUES]: the first command of each queue that waits for
    command i. `reach` [n + 1, QUEUES]: the first command of each queue that cannot start before command i starts; its
    last row is scratch memory. Both are NEVER (no command) until `successors` sets them.
    """

    queue: Array
    mark: Array
    segment: Array
    waits: Array
    reach: Array


@compiled
def successors(order: Order, tracked: Rows, after: Array) -> None:
    """Find the commands that wait for each command, from the last command to the first.

    `after` int64 [2, QUEUES, rows], filled with NEVER: the next command of a queue that reads, and that writes, a row.
    Only the first command of each queue is kept: later ones of that queue start after it.
    """
    follows = order.reach[order.queue.shape[0]]  # the next command of each queue
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
        # Execute commands wait for each other only where a config_ex empties the array.
        if queue == EX:
            waits[EX] = drain
            if order.mark[step] == DRAIN:
                drain = step
            if order.mark[step] == WRITES:
                hand_to_compute(waits, order.waits[follows[EX]], follows[EX])
        follows[queue] = step
    find_reach(order, follows)


def hand_to_compute(waits: Array, of_compute: Array, compute: int) -> None:
    """Let the commands that wait for a preload with a result wait for its compute, too."""
    for queue in range(QUEUES):
        if waits[queue] > compute:
            of_compute[queue] = min(of_compute[queue], waits[queue])


def find_waits(queue: int, waits: Array, tracked: Rows, after: Array, first: int, last: int) -> None:
    """Find the first commands of other queues that wait for the tracked ranges `first` to `last` of a command."""
    for at in range(first, last):
        for row in range(tracked.first[at], tracked.first[at] + tracked.size[at]):
            for waiter in range(QUEUES):
                if waiter == queue:
                    continue
                waits[waiter] = min(waits[waiter], after[1, waiter, row])
                if tracked.mode[at] & WRITE:
                    waits[waiter] = min(waits[waiter], after[0, waiter, row])


def find_reach(order: Order, follows: Array) -> None:
    """Find the first commands that cannot start before each command starts. `follows` [QUEUES] is scratch memory."""
    # Backwards, `reach` of a command is the least of its successors': the next command of its queue, and those that
    # wait for it to be done. Only commands behind a command wait for it, so their rows are complete.
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
    """Return whether command `early` is done before command `late`, of this queue, starts."""
    return bool(start_after(order, early, queue) <= late)


@part
def note(pairs: Array, kind: int, early: int, late: int, place: int) -> None:
    """Add a conflict to `pairs`, int64 [limit + 1, 4], unless it is there. The last row counts them."""
    # The rows of an operand are visited one after the other, so an equal conflict is among the last few.
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

    `last` int64 [ROW_STATE, rows], filled with -1, is scratch memory: the state of each row.
    """
    for step in range(order.queue.shape[0]):
        for at in range(rows.start[step], rows.start[step + 1]):
            for k in range(rows.size[at]):
                row = rows.first[at] + k * rows.stride[at]
                meet_queues(order, rows, last, pairs, step, at, row)
                if order.queue[step] == LD:
                    meet_load(order, rows, last, pairs, step, at, row)
        # Only then update the state: a command does not conflict with itself.
        for at in range(rows.start[step], rows.start[step + 1]):
            for k in range(rows.size[at]):
                row = rows.first[at] + k * rows.stride[at]
                if rows.mode[at] & WRITE:
                    keep_write(order, rows, last, step, at, row)
                if rows.mode[at] & READ:
                    last[order.queue[step], row] = step


@part
def meet_queues(order: Order, rows: Rows, last: Array, pairs: Array, step: int, at: int, row: int) -> None:
    """Note conflicts with the last command of each queue that used a row."""
    # The queue itself is in order, but an execute command may read a row before the array has written it: the
    # controller compares only where operands begin. So a result is safe in its own queue if it is read as the operand
    # that was written.
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
    """Note a conflict of a load with the last load of data to the same row, which it may overtake."""
    # Loads start in order, but pass different units: zeros do not wait for the memory, and int32 rows do not pass the
    # repeater of pixels (timing/moves.py).
    early = last[DATA, row]
    if early < 0 or order.segment[early] != order.segment[step]:
        return
    zeros = order.mark[step] == ZERO and rows.mode[at] == WRITE
    overtakes = order.mark[early] == NARROW and order.mark[step] >= WIDE
    yields = order.mark[early] == REPEATED and order.mark[step] == NARROW
    widths = (overtakes or yields) and not rows.mode[at] & last[MODE, row] & READ  # sums come in any order
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
        again = last[DATA, row] == step  # copies of pixels lie in other columns
        last[LOW, row] = min(rows.low[at], last[LOW, row]) if again else rows.low[at]
        last[HIGH, row] = max(rows.high[at], last[HIGH, row]) if again else rows.high[at]
        last[MODE, row] = rows.mode[at]
        last[DATA, row] = -1 if order.mark[step] == ZERO else step


@compiled
def dram_conflicts(order: Order, ranges: Rows, last: Array, pairs: Array) -> None:
    """Find conflicts in DRAM.

    `ranges` count intervals of DRAM, of which a command touches all or nothing. `last` int64 [2, intervals], filled
    with -1, is scratch memory: the last command that read, and that wrote, an interval. A read after a write needs a
    fence: a store is done before its bytes are in DRAM.
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
