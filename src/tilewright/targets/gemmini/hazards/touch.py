"""The rows that primitive commands access, and the ranges of rows that the reservation station compares.

Rows are numbered through the scratchpad and then through the accumulator. An operand that begins past the end of the
scratchpad gets row numbers from OUTSIDE on. The compared ("tracked") ranges follow ReservationStation.scala
(ucb-bar/gemmini at 8c3f992), and RTL runs confirmed them (docs/gemmini.md).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array, numbers
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.work import NONE, Computes, Local, Moves, Work
from tilewright.targets.gemmini.traffic import rows_in_dram

READ, WRITE = 1, 2
#: An operand past the end of the scratchpad gets row numbers from this number on. No real row has such a number.
OUTSIDE = 1 << 40


class Touches(NamedTuple):
    """Accesses of commands to rows, int64 [m] each: rows `first + k * stride` for k < `size`, columns `low` to `high`.

    `base` is the first row of the operand to which the access belongs.
    """

    step: Array
    mode: Array
    base: Array
    first: Array
    size: Array
    stride: Array
    low: Array
    high: Array

    @property
    def last(self) -> Array:
        return self.first + np.maximum(self.size - 1, 0) * self.stride


class Rows(NamedTuple):
    """Accesses to rows or bytes, sorted by step: step s has the entries `start[s]` to `start[s + 1]` (exclusive)."""

    start: Array  # int64 [n + 1]
    mode: Array  # int64 [m]
    base: Array  # int64 [m]: the first row of the operand
    first: Array  # int64 [m]
    size: Array  # int64 [m]
    stride: Array  # int64 [m]
    low: Array  # int64 [m]: the first column
    high: Array  # int64 [m]: the end of the columns (exclusive)


def by_step(touches: Touches, steps: int) -> Rows:
    """Sort accesses by step, and remove empty accesses."""
    order = np.argsort(touches.step, kind="stable")
    order = order[touches.size[order] > 0]
    start = np.searchsorted(touches.step[order], np.arange(steps + 1))
    return Rows(start, *(np.ascontiguousarray(column[order]) for column in touches[1:]))


def _number(place: Local, config: Config) -> Array:
    outside = (place.acc == 0) & (place.row >= config.all_spad_rows)
    return place.row + place.acc * config.all_spad_rows + OUTSIDE * outside


def _joined(*parts: Touches) -> Touches:
    return Touches(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _operand(
    step: Array, place: Local, mode: Array | int, count: Array, stride: Array | int, config: Config
) -> Touches:
    """Return the accesses to operands of `count` rows. A garbage operand has no rows."""
    first = _number(place, config)
    count = np.where(place.garbage, 0, count)
    mode, stride = (np.broadcast_to(value, step.shape) for value in (mode, stride))
    return Touches(step, mode, first, first, count, stride, np.zeros_like(step), np.full_like(step, config.dim))


def _blocks(moves: Moves, mode: Array | int, block_stride: Array | int, config: Config) -> Touches:
    """Return an access for each block of columns of a move. Successive blocks are `block_stride` rows apart."""
    place = moves.local
    block, of = numbers(np.zeros(len(moves.step), np.int64), -(-place.cols // config.dim))
    first = _number(place, config)
    modes = np.broadcast_to(mode, moves.step.shape)
    step = np.broadcast_to(block_stride, moves.step.shape)[of]
    wide = np.minimum(place.cols[of] - block * config.dim, config.dim)
    begin = first[of] + block * step
    ones = np.ones_like(of)
    # `wide` is the number of columns, which is smaller in the last block.
    return Touches(moves.step[of], modes[of], first[of], begin, place.rows[of], ones, np.zeros_like(of), wide)


def touched(work: Work, config: Config, preloads: bool = True) -> Touches:
    """Return the accesses of all commands. Without `preloads`, a compute gets the accesses of its preload."""
    loads = work.loads
    stores = work.stores
    computes = work.computes
    adds = WRITE | READ * (loads.local.acc & loads.local.accumulate)
    moved = _blocks(loads, adds, loads.settings["block_stride"], config)
    pooled = stores.settings["pool_stride"] > 0
    rows = np.where(pooled, 0, stores.local.rows)
    # A pooled store ignores its number of rows, and may read every pixel of the image that its config_st describes.
    plain = _blocks(stores._replace(local=stores.local._replace(rows=rows)), READ, config.dim, config)
    image = stores.settings["orows"] * stores.settings["ocols"] * pooled
    pixels = stores.local._replace(garbage=np.zeros_like(image))  # the garbage address reads outside of the memories
    return _joined(
        *(moved, _repeated(loads, config), plain, _operand(stores.step, pixels, READ, image, 1, config)),
        *_executed(computes, config, preloads),
    )


def _repeated(loads: Moves, config: Config) -> Touches:
    """Return the accesses of repeated pixels: copy q of a row is q rows above the row and q widths to the right."""
    # Copies before the row's half of the scratchpad (PixelRepeater.scala) or before row 0 are not written.
    place = loads.local
    more = np.where(place.acc, 0, np.maximum(loads.settings["pixels"], 1) - 1)
    copy, of = numbers(np.ones(len(more), np.int64), more)
    row = _number(place, config)[of]
    mode = np.full(len(of), WRITE)
    floor = np.where(row >= config.half, config.half, 0) * (config.rules.repeats == "half")
    cut = np.maximum(copy + floor - row, 0)
    first = row - copy + cut
    columns = copy * place.cols[of]
    size = np.maximum(place.rows[of] - cut, 0)
    return Touches(loads.step[of], mode, row, first, size, np.ones_like(of), columns, columns + place.cols[of])


def _executed(computes: Computes, config: Config, preloads: bool) -> tuple[Touches, ...]:
    """Return the accesses of computes to A and D (B in OS), and of their preloads to W (D in OS) and C."""
    # W is read only by a compute that loads fresh weights. The numbers of rows are those after transposition.
    settings = computes.settings
    paired = computes.preload != NONE
    home = computes.preload if preloads else computes.step
    flipped = settings["transpose_b"] == 1
    weights = settings["dataflow"] == 1
    adds = WRITE | READ * (computes.c.acc & computes.c.accumulate)
    a_rows = np.where(settings["transpose_a"], computes.a.cols, computes.a.rows)
    d_rows = np.where(flipped & ~weights, computes.d.cols, computes.d.rows)
    w_rows = np.where(flipped & weights, computes.w.cols, computes.w.rows) * computes.fresh * paired
    return (
        _operand(computes.step, computes.a, READ, a_rows, settings["a_stride"], config),
        _operand(computes.step, computes.d, READ, d_rows, 1, config),
        _operand(home, computes.w, READ, w_rows, 1, config),
        _operand(home, computes.c, adds, computes.c.rows * paired, settings["c_stride"], config),
    )


def tracked(work: Work, config: Config, looped: Array) -> Touches:
    """Return the ranges that the reservation station compares, from an operand's first row to its last row."""
    # `set_operands` in timing/station.py computes the same ranges for one command. A range ends at the end of its
    # memory, even if the strides go further. With repeated pixels, the hardware moves the start of the range without
    # making the range longer. The range then lacks the last rows of the load (ReservationStation.scala). For loads of
    # hardware loops (`looped`), the model adds the missing rows. The station does not enforce this order, but in all
    # RTL runs, the computes of the loop before the previous loop had already read these rows.
    loads = work.loads
    stores = work.stores
    computes = work.computes
    settings = work.computes.settings
    blocks = -(-loads.local.cols // config.dim)
    rows = (blocks - 1) * loads.settings["block_stride"] + loads.local.rows
    earlier = np.where(loads.local.acc, 0, np.maximum(loads.settings["pixels"], 1) - 1)
    earlier = np.minimum(earlier, loads.local.row - np.where(loads.local.row > config.half, config.half, 0))
    tracked_rows = rows + np.where(looped[loads.step], earlier, 0)
    moved = _operand(loads.step, loads.local, WRITE, tracked_rows, 1, config)
    moved = moved._replace(first=moved.first - earlier)
    read = (-(-stores.local.cols // config.dim) - 1) * config.dim + stores.local.rows
    bank = config.acc_rows // config.acc_banks
    pooled = np.where(stores.local.acc == 1, bank - stores.local.row % bank, 1)  # up to the end of the bank
    read = np.where(stores.settings["pool_stride"] > 0, pooled, read)
    a_rows = np.where(settings["transpose_a"], computes.a.cols, computes.a.rows) * settings["a_stride"]
    paired = computes.preload != NONE
    ranges = _joined(
        moved,
        _operand(stores.step, stores.local, READ, read, 1, config),
        _operand(computes.step, computes.a, READ, a_rows, 1, config),
        _operand(computes.step, computes.d, READ, computes.d.rows, 1, config),
        _operand(computes.preload, computes.w, READ, computes.w.rows * paired, 1, config),
        _operand(computes.preload, computes.c, WRITE, computes.c.rows * settings["c_stride"] * paired, 1, config),
    )
    spad = config.all_spad_rows
    end = np.where(ranges.base < spad, spad, spad + config.acc_rows)
    return ranges._replace(size=np.minimum(ranges.size, end - ranges.first))


def dram(work: Work) -> Touches:
    """Return the accesses of moves to DRAM bytes, one for each row."""
    parts = []
    for moves in work.moves:
        groups = rows_in_dram(moves)
        first, group = groups.single()
        move = groups.move[group]
        none = np.zeros_like(group)
        mode = none + (WRITE if moves.out else READ)
        width = groups.width[group]
        parts.append(Touches(moves.step[move], mode, moves.dram[move], first, width, none + 1, none, none))
    return _joined(*parts)
