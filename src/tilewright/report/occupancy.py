"""Compute when the elements of scratchpads are live, from the footprints of a launch's steps.

Scratchpads are cut into blocks. Between two accesses, a block is live if the second access reads the block. The block
is also live if the second access overwrites only a part of the block, and a later access reads the block. A block of
one element is live exactly while its value will still be read. A larger block is live at least as long as any of its
elements.

If a row of a footprint has the mark PARTLY, the step touches an unknown part of its elements. A step that reads counts
as reading all these elements. A step that writes counts as overwriting none of them, so that no live element is missed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array, ascending
from tilewright.sim.jit import compiled, part
from tilewright.sim.steps import BASE, COUNT, LENGTH, MODE, READ, SPACE, STRIDE, WRITE, StepTable, Trace

#: All scratchpads together have at most this many blocks.
MAX_BLOCKS = 1 << 16
#: The blocks are made so large that there are at most this many accesses (one for each block that a step touches).
MAX_ACCESSES = 1 << 22
#: `_sweep` takes about this many microseconds per access if it is not compiled.
ACCESS_US = 2


class Levels(NamedTuple):
    """The number of live elements. Scratchpad p has `live[p, i]` from cycle `time[i]` to cycle `time[i + 1]`.

    `time` is int64 [k] and ascends strictly from 0 to the launch's cycles. `live` is int64 [scratchpads, k].
    """

    time: Array
    live: Array


class Pieces(NamedTuple):
    """The ranges of scratchpad elements that footprints touch. Footprint f has the rows `start[f]:start[f + 1]`.

    Row r touches `parts[r]` ranges of elements in a scratchpad: range k begins at `low[r] + k * stride[r]` and ends
    before `high[r] + k * stride[r]`. The number of the scratchpad's first block is `first[r]`. Each of its blocks has
    `1 << shift[r]` elements. `reads` (bool) says whether the row reads, and `fills` (bool) says whether the row
    certainly overwrites all elements of its ranges.
    """

    start: Array
    low: Array
    high: Array
    parts: Array
    stride: Array
    first: Array
    shift: Array
    reads: Array
    fills: Array


def levels(trace: Trace, pads: tuple[str, ...]) -> Levels:
    """Return the number of live elements of each of the scratchpads `pads` during a launch."""
    table = trace.table
    sizes = np.array([space.size if space.scratchpad else 0 for space in table.spaces], np.int64)
    pieces, shifts, accesses = _pieces(table, sizes)
    many = -(-sizes >> shifts)  # the number of blocks
    first = np.cumsum(many) - many
    space = np.repeat(np.arange(len(sizes)), many)
    size = np.minimum(1 << shifts[space], sizes[space] - (np.arange(len(space)) - first[space] << shifts[space]))
    pad = np.array([pads.index(memory.scratchpad) if memory.scratchpad else 0 for memory in table.spaces], np.int64)
    order = np.argsort(trace.start, kind="stable")
    time = ascending(np.concatenate([trace.start, trace.end, [0, trace.cycles]]))
    start, end = (np.searchsorted(time, column) for column in (trace.start, trace.end))
    change = np.zeros((len(pads), len(time)), np.int64)
    if accesses:
        steps = (order, np.ascontiguousarray(table.footprint, np.int64), start, end)
        sweep = Sweep(*steps, pad[space], size.astype(np.int64), *np.full((6, len(space)), -1, np.int64))
        _sweep.of(accesses * ACCESS_US)(sweep, pieces, change)
    return Levels(time, np.cumsum(change, 1))


def _pieces(table: StepTable, sizes: Array) -> tuple[Pieces, Array, int]:
    """Return the pieces, the log2 of each memory's block size, and the largest possible number of accesses.

    `sizes` has the number of elements of each memory, or 0 for a memory that is no scratchpad.
    """
    footprints = table.footprints
    mine = footprints.live.copy()
    mine[mine] = sizes[footprints.rows[mine, SPACE]] > 0
    rows = footprints.rows[mine]
    end = footprints.end[mine]
    owner = footprints.owner()[mine]
    uses = np.bincount(table.footprint, minlength=len(footprints))[owner]
    shifts, split, accesses = _cut(rows, end, uses, sizes)
    many = -(-sizes >> shifts)
    space = rows[:, SPACE]
    low = rows[:, BASE]
    dense = split | (rows[:, COUNT] == 1) | (rows[:, STRIDE] <= rows[:, LENGTH])
    pieces = Pieces(
        start=np.searchsorted(owner, np.arange(len(footprints) + 1)),
        low=low,
        high=np.where(split, low + rows[:, LENGTH], end),
        parts=np.where(split, rows[:, COUNT], 1),
        stride=rows[:, STRIDE],
        first=(np.cumsum(many) - many)[space],
        shift=shifts[space],
        reads=rows[:, MODE] & READ > 0,
        fills=(rows[:, MODE] == WRITE) & dense,
    )
    return Pieces(*(np.ascontiguousarray(column) for column in pieces)), shifts, accesses


def _cut(rows: Array, end: Array, uses: Array, sizes: Array) -> tuple[Array, Array, int]:
    """Return the log2 of each memory's block size, whether to split each row, and the largest number of accesses.

    A row with gaps is split into its ranges if its stride is larger than a block. Only then can a whole block lie in a
    gap. `end` is 1 + the highest element of each
    row, and `uses` is the number of steps that have the row.
    """
    limit = MAX_BLOCKS // max(1, int(np.count_nonzero(sizes)))
    space, base, length, count, stride = (rows[:, column].copy() for column in (SPACE, BASE, LENGTH, COUNT, STRIDE))
    last = end - 1
    while True:
        shifts = np.array([max(0, -(-size // limit) - 1).bit_length() for size in sizes.tolist()], np.int64)
        shift = shifts[space]
        most = (last >> shift) - (base >> shift) + 1
        split = (count > 1) & (stride > np.maximum(length, 1 << shift))
        if split.any():
            most[split] = count[split] * ((length[split] >> shift[split]) + 2)
        accesses = int(uses @ most)
        if limit == 1 or accesses <= MAX_ACCESSES:
            return shifts, split, accesses
        limit //= 2


class Sweep(NamedTuple):
    """The steps of a launch in the order of their starts, and the state of all blocks.

    A step lasts from `begins` to `ends`, which are indices of `Levels.time`. `pad` has the scratchpad of each block,
    and `size` has its number of elements. The six columns that follow are int64 [blocks], all -1 at first.
    """

    order: Array
    footprint: Array
    begins: Array
    ends: Array
    pad: Array
    size: Array
    touched: Array  # the blocks that the present step touches, then unused entries
    seen: Array  # the last step that touched the block, as an index of `order`
    read: Array  # 1 if the last step that touched the block reads the block, else 0
    written: Array  # the number of the block's elements that this last step certainly overwrites
    begun: Array  # the start of the block's present value; -1: no step has touched the block
    until: Array  # the end of this value's last read so far; -1: no step has read the value


@compiled
def _sweep(sweep: Sweep, pieces: Pieces, change: Array) -> None:
    """Add the change of the number of live elements at each time to `change` [scratchpads, times]."""
    read = sweep.read
    begun = sweep.begun
    until = sweep.until
    pad = sweep.pad
    size = sweep.size
    # The last read of a value is known only when another value replaces it, or when the launch ends. Until then, the
    # changes for this value are not added.
    for place in range(len(sweep.order)):
        step = sweep.order[place]
        count = 0
        for row in range(pieces.start[sweep.footprint[step]], pieces.start[sweep.footprint[step] + 1]):
            count = _touch(sweep, pieces, row, place, count)
        for index in range(count):
            block = sweep.touched[index]
            # A step that reads and writes a block keeps the old value alive, because the new value may depend on the
            # old one.
            overwritten = read[block] == 0 and sweep.written[block] >= size[block]
            if begun[block] < 0:  # the first access; if it reads, the value is older than the launch
                begun[block] = 0 if read[block] != 0 else sweep.begins[step]
            elif overwritten:
                if until[block] >= 0:  # a value that no step has read was never live
                    change[pad[block], begun[block]] += size[block]
                    # The last reader may still run when this step begins to write. The block must not count twice.
                    change[pad[block], min(until[block], sweep.begins[step])] -= size[block]
                begun[block] = sweep.begins[step]
                until[block] = -1
            if read[block] != 0:
                until[block] = max(until[block], sweep.ends[step])
    for block in range(len(size)):
        if until[block] >= 0:
            change[pad[block], begun[block]] += size[block]
            change[pad[block], until[block]] -= size[block]


@part
def _touch(sweep: Sweep, pieces: Pieces, row: int, place: int, count: int) -> int:
    """Record which blocks a row touches. `count` is the number of blocks that the step has touched so far."""
    shift = pieces.shift[row]
    for stretch in range(pieces.parts[row]):
        bottom, top = pieces.low[row] + stretch * pieces.stride[row], pieces.high[row] + stretch * pieces.stride[row]
        for number in range(bottom >> shift, (top - 1 >> shift) + 1):
            block = pieces.first[row] + number
            if sweep.seen[block] != place:  # the first time in this step: the block has the record of an earlier step
                sweep.seen[block] = place
                sweep.read[block] = 0
                sweep.written[block] = 0
                sweep.touched[count] = block
                count += 1
            if pieces.reads[row]:
                sweep.read[block] = 1
            elif pieces.fills[row]:
                sweep.written[block] += min(top, number + 1 << shift) - max(bottom, number << shift)
    return count
