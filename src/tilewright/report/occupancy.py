"""When the elements of scratchpads are live, from the footprints of a launch's steps.

Scratchpads are cut into blocks. Between two accesses of a block, the block is live if the second one reads it, or only
writes a part of it and a read follows. Where a row of a footprint is only a bound (PARTLY), all its elements count as
read if it reads, and none as overwritten if it writes. So, without bounds, a block of one element is live exactly as
long as it holds a value that will be read, and a larger block is live as long as one of its elements or longer.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array, numbers
from tilewright.sim.steps import BASE, COUNT, LENGTH, MODE, READ, SPACE, STRIDE, WRITE, StepTable, Trace

#: Most blocks of all scratchpads together: their numbers fit 16 bits, which NumPy sorts fastest.
MAX_BLOCKS = 1 << 16
#: Most accesses (a step touches a block) that are sorted. Blocks become larger until there are no more.
MAX_ACCESSES = 1 << 22


class Changes(NamedTuple):
    """Changes of the number of live elements, in no order: int64 arrays [c]. `space` indexes StepTable.spaces."""

    time: Array
    space: Array
    elements: Array


class Touched(NamedTuple):
    """The blocks that each footprint touches: footprint f has the entries `start[f]:start[f + 1]` of the other columns.

    An entry has a `block`, and says whether the footprint `reads` it and, if not, whether it `fills` it: overwrites all
    its elements. `space` [b] and `size` [b] are the memory and the number of elements of each block.
    """

    start: Array
    block: Array
    reads: Array
    fills: Array
    space: Array
    size: Array


def changes(trace: Trace) -> Changes:
    """Return when elements of scratchpads become live (+) and stop being live (-) in a launch."""
    table = trace.table
    touched = _touched(table)
    order = np.argsort(trace.start, kind="stable")
    footprint = table.footprint[order]
    entry, step = numbers(touched.start[footprint], np.diff(touched.start)[footprint])
    if not len(entry):
        return Changes(*np.zeros((3, 0), np.int64))
    block = touched.block[entry].astype(np.uint16)
    by_block = np.argsort(block, kind="stable")
    entry, step, block = entry[by_block], order[step[by_block]], block[by_block]
    reads, fills = touched.reads[entry], touched.fills[entry]
    start, end = trace.start[step], trace.end[step]

    count = len(entry)
    same = np.append(block[1:] == block[:-1], False)  # the next access is of the same block
    decides = np.where(reads | fills, np.arange(count), count - 1)
    following = np.minimum.accumulate(decides[::-1])[::-1]  # the first access from here on that reads or fills
    needed = reads[following] & (block[following] == block)  # the contents before this access
    lives = same & np.append(needed[1:], False)  # until the next access
    last = reads & ~lives  # the last read of these contents
    begins = (lives | last) & ~np.concatenate([[False], lives[:-1]])
    value = np.cumsum(begins) * (trace.cycles + 1)
    ends = np.maximum.accumulate(np.where(reads, end, 0) + value) - value  # of all reads of these contents so far
    over = np.append(following[1:], count - 1)  # after a last read: the access that overwrites the block, if any
    overwritten = fills[over] & (block[over] == block) & same
    stop = np.where(overwritten, np.minimum(ends, start[over]), ends)[last]
    first = np.concatenate([[True], ~same[:-1]])
    begin = np.where(first & reads, 0, start)[begins]
    time = np.concatenate([begin, stop])
    own = np.concatenate([block[begins], block[last]])
    sign = np.repeat([1, -1], [len(begin), len(stop)])
    return Changes(time, touched.space[own], sign * touched.size[own])


def _touched(table: StepTable) -> Touched:
    """Return the blocks of the scratchpads: as small as MAX_BLOCKS and MAX_ACCESSES allow."""
    footprints = table.footprints
    sizes = np.array([space.size if space.scratchpad else 0 for space in table.spaces], np.int64)
    mine = footprints.live.copy()
    mine[mine] = sizes[footprints.rows[mine, SPACE]] > 0
    rows, end, owner = footprints.rows[mine], footprints.end[mine], footprints.owner()[mine]
    uses = np.bincount(table.footprint, minlength=len(footprints))[owner]
    shifts, split = _cut(rows, end, uses, sizes)
    many = -(-sizes >> shifts)  # blocks
    first = np.concatenate([[0], np.cumsum(many)])
    space = np.repeat(np.arange(len(sizes)), many)
    size = np.minimum(1 << shifts[space], sizes[space] - (np.arange(first[-1]) - first[space] << shifts[space]))

    k, row = numbers(np.zeros(len(rows), np.int64), np.where(split, rows[:, COUNT], 1))
    low = rows[row, BASE] + k * rows[row, STRIDE]
    high = np.where(split[row], low + rows[row, LENGTH], end[row])
    shift = shifts[rows[row, SPACE]]
    number, piece = numbers(low >> shift, (high - 1 >> shift) - (low >> shift) + 1)
    row, shift, low, high = row[piece], shift[piece], low[piece], high[piece]
    inside = np.minimum(high, number + 1 << shift) - np.maximum(low, number << shift)
    dense = split | (rows[:, COUNT] == 1) | (rows[:, STRIDE] <= rows[:, LENGTH])
    written = np.where((rows[:, MODE] == WRITE)[row] & dense[row], inside, 0)
    key, entry = np.unique(owner[row] * first[-1] + first[rows[row, SPACE]] + number, return_inverse=True)
    block, reads = key % max(1, first[-1]), np.bincount(entry, rows[row, MODE] & READ, len(key)) > 0
    fills = ~reads & (np.bincount(entry, written, len(key)) >= size[block])
    start = np.searchsorted(key, np.arange(len(footprints) + 1) * first[-1])
    return Touched(start, block, reads, fills, space, size)


def _cut(rows: Array, end: Array, uses: Array, sizes: Array) -> tuple[Array, Array]:
    """Return the size of each memory's blocks, as log2, and which footprint rows are taken in parts, bool [r].

    The parts of a row are the stretches without gaps; rows whose gaps are smaller than a block are taken as a whole.
    `end` is 1 + the highest element of each row, `uses` the number of steps that have the row.
    """
    limit = MAX_BLOCKS // max(1, int(np.count_nonzero(sizes)))
    while True:
        shifts = np.array([max(0, -(-size // limit) - 1).bit_length() for size in sizes.tolist()], np.int64)
        shift = shifts[rows[:, SPACE]]
        split = (rows[:, COUNT] > 1) & (rows[:, STRIDE] > np.maximum(rows[:, LENGTH], 1 << shift))
        whole = (end - 1 >> shift) - (rows[:, BASE] >> shift) + 1
        most = uses * np.where(split, rows[:, COUNT] * ((rows[:, LENGTH] >> shift) + 2), whole)
        if limit == 1 or int(most.sum()) <= MAX_ACCESSES:
            return shifts, split
        limit //= 2
