"""What the reservation station orders, and the conflicts that it leaves: compiled loops over a program's commands.

A command is *done* before another one *starts* if the other one waits for it. It waits if it is in another queue and
their tracked ranges overlap, if both are stores, or at a config_ex behind a preload or a compute. Commands of a queue
start in order. So `a` is done before `b` starts if some command waits for `a` and, by these rules, does not start after
`b`. What waits for a preload with a result also waits for its compute: it is done when its result is written
(ExecuteController.scala: mesh_completed_rob_id_fire), and one without a result before its compute.
"""

from __future__ import annotations

from tilewright.array import Array
from tilewright.sim.jit import compiled, part
from tilewright.targets.gemmini.hazards.touch import Rows

#: Queues and access modes, as in touch.py: a compiled loop depends on its own file only.
LD, EX, ST, QUEUES = 0, 1, 2, 3
READ, WRITE = 1, 2
#: Kinds of conflicts: between queues, a load of zeros after a load of data, a result that is read by its own queue,
#: through DRAM, a read after a write, and a write after a read; loads of int8 and of int32 rows.
CROSS, ZEROS, RESULT, DRAM_READ, DRAM_WRITE, WIDTHS = range(6)
#: Marks of commands: a load of zeros, a config_ex, loads into the accumulator: of int8 rows, of int32 rows, and of one
#: int32 row many times (stride 0), which yields to int8 rows; a preload with a result, right before its compute.
ZERO, DRAIN, NARROW, WIDE, REPEATED, WRITES = range(1, 7)
NEVER = 1 << 60


@compiled
def successors(queue: Array, mark: Array, tracked: Rows, after: Array, waits: Array, reach: Array) -> None:
    """Find what waits for each command, from the last one to the first.

    `waits` int64 [n, QUEUES]: the first command of each queue that waits for command i. `reach` int64 [n + 1, QUEUES]:
    the first one that cannot start before command i starts; its last row is scratch memory. `after` int64 [2, QUEUES,
    rows] as well: the next command of a queue that reads, and that writes, a row. All are filled with NEVER (none).
    """
    follows = reach[queue.shape[0]]  # the next command of each queue
    drain = NEVER
    for step in range(queue.shape[0] - 1, -1, -1):
        own = queue[step]
        for at in range(tracked.start[step], tracked.start[step + 1]):
            for k in range(tracked.size[at]):
                row = tracked.first[at] + k
                for other in range(QUEUES):
                    if other != own:
                        found = after[1, other, row]
                        if tracked.mode[at] & WRITE:
                            found = min(found, after[0, other, row])
                        waits[step, other] = min(waits[step, other], found)
        for at in range(tracked.start[step], tracked.start[step + 1]):
            for k in range(tracked.size[at]):
                after[1 if tracked.mode[at] & WRITE else 0, own, tracked.first[at] + k] = step
        if own == ST:
            waits[step, ST] = follows[ST]
        if own == EX:
            waits[step, EX] = drain
            if mark[step] == DRAIN:
                drain = step
            if mark[step] == WRITES:
                compute = follows[EX]
                for other in range(QUEUES):
                    if waits[step, other] > compute:
                        waits[compute, other] = min(waits[compute, other], waits[step, other])
        follows[own] = step
    follows[:] = NEVER
    for step in range(queue.shape[0] - 1, -1, -1):
        own = queue[step]
        for other in range(QUEUES):
            first = NEVER if follows[own] == NEVER else reach[follows[own], other]
            for by in range(QUEUES):
                if waits[step, by] != NEVER:
                    first = min(first, reach[waits[step, by], other])
            reach[step, other] = first
        reach[step, own] = step
        follows[own] = step


@part
def ordered(waits: Array, reach: Array, early: int, late: int, queue: int) -> bool:
    """Return whether command `early` is done before command `late`, of this queue, starts."""
    first = NEVER
    for by in range(QUEUES):
        if waits[early, by] != NEVER:
            first = min(first, reach[waits[early, by], queue])
    return bool(first <= late)


@part
def note(found: Array, count: int, kind: int, early: int, late: int, place: int) -> int:
    """Add a conflict to `found`, int64 [limit, 4], unless it is there; return how many there are."""
    for at in range(max(count - 8, 0), count):
        if found[at, 0] == kind and found[at, 1] == early and found[at, 2] == late:
            return count
    if count < found.shape[0]:
        found[count, 0], found[count, 1], found[count, 2], found[count, 3] = kind, early, late, place
        return count + 1
    return count


@compiled
def conflicts(
    queue: Array, mark: Array, segment: Array, rows: Rows, last: Array, waits: Array, reach: Array, found: Array
) -> int:
    """Find conflicts in the scratchpad and the accumulator; return their number.

    `segment` [n] counts the fences before each command. `last` int64 [2 * QUEUES + 5, rows], filled with -1, is scratch
    memory: the last command of each queue that read, and that wrote, a row; where the operand begins with which an
    execute command wrote it; the last load of data to it, its columns, and its mode.
    """
    count, begun, data = 0, 2 * QUEUES, 2 * QUEUES + 1
    for step in range(queue.shape[0]):
        own = queue[step]
        for at in range(rows.start[step], rows.start[step + 1]):
            writes = rows.mode[at] & WRITE
            for k in range(rows.size[at]):
                row = rows.first[at] + k * rows.stride[at]
                for other in range(QUEUES):
                    for mode in range(2):
                        early = last[mode * QUEUES + other, row]
                        if early < 0 or segment[early] != segment[step] or early == step or (mode == 0 and not writes):
                            continue
                        if other != own:
                            if not ordered(waits, reach, early, step, own):
                                count = note(found, count, CROSS, early, step, row)
                            continue
                        result = own == EX and mode == 1 and rows.mode[at] == READ
                        if result and last[begun, row] != rows.own[at] and not ordered(waits, reach, early, step, own):
                            count = note(found, count, RESULT, early, step, row)
                early = last[data, row]
                if own == LD and early >= 0 and segment[early] == segment[step]:
                    zeros = mark[step] == ZERO and rows.mode[at] == WRITE
                    overtakes = mark[early] == NARROW and mark[step] >= WIDE
                    yields = mark[early] == REPEATED and mark[step] == NARROW
                    sums = rows.mode[at] & last[data + 3, row] & READ  # these come in any order
                    widths = (overtakes or yields) and not sums
                    met = rows.low[at] < last[data + 2, row] and last[data + 1, row] < rows.high[at]
                    if (zeros or widths) and met and not ordered(waits, reach, early, step, LD):
                        count = note(found, count, ZEROS if zeros else WIDTHS, early, step, row)
        for at in range(rows.start[step], rows.start[step + 1]):
            for k in range(rows.size[at]):
                row = rows.first[at] + k * rows.stride[at]
                if rows.mode[at] & WRITE:
                    last[QUEUES + own, row] = step
                    if own == EX:
                        last[begun, row] = rows.own[at]
                    if own == LD:
                        again = last[data, row] == step  # copies of pixels lie in other columns
                        last[data + 1, row] = min(rows.low[at], last[data + 1, row]) if again else rows.low[at]
                        last[data + 2, row] = max(rows.high[at], last[data + 2, row]) if again else rows.high[at]
                        last[data + 3, row] = rows.mode[at]
                        last[data, row] = -1 if mark[step] == ZERO else step
                if rows.mode[at] & READ:
                    last[own, row] = step
    return count


@compiled
def dram_conflicts(
    queue: Array, segment: Array, ranges: Rows, last: Array, waits: Array, reach: Array, found: Array
) -> int:
    """Find conflicts in DRAM; return their number.

    `ranges` are stretches of DRAM: no command touches a part of one. `last` int64 [2, stretches], filled with -1, is
    scratch memory: the last command that read, and that wrote, a stretch. A read after a write needs a fence: a store
    is done before its bytes are in DRAM.
    """
    count = 0
    for step in range(queue.shape[0]):
        for at in range(ranges.start[step], ranges.start[step + 1]):
            writes = ranges.mode[at] == WRITE
            for place in range(ranges.first[at], ranges.first[at] + ranges.size[at]):
                early = last[0 if writes else 1, place]
                if early >= 0 and segment[early] == segment[step]:
                    if not writes:
                        count = note(found, count, DRAM_READ, early, step, place)
                    elif not ordered(waits, reach, early, step, ST):
                        count = note(found, count, DRAM_WRITE, early, step, place)
                last[1 if writes else 0, place] = step
    return count
