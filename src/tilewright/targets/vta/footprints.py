"""Which tiles the steps of a stream touch: bounds in closed form, and on request exactly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.array import Array
from tilewright.sim.steps import BASE, COUNT, LENGTH, MODE, PARTLY, READ, SPACE, STRIDE, WRITE, Footprints
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import Memory
from tilewright.targets.vta.kernel import ACC, DRAM, INP, OUT, UOP, WGT, Access, AluKernel, GemmKernel
from tilewright.targets.vta.moves import NOTHING, Moves
from tilewright.targets.vta.semantics import SEMANTICS, Semantics

_SPACE = {Memory.UOP: UOP, Memory.WGT: WGT, Memory.INP: INP, Memory.ACC: ACC, Memory.OUT: OUT, Memory.ACC_8BIT: ACC}


def footprints(
    config: Config, moved: Moves, kernel: Array, kernels: Sequence[GemmKernel | AluKernel], lists: Sequence[Array]
) -> tuple[Array, Footprints]:
    """The footprint of each step, and all footprints: 0 is empty, 1..k are of kernels, the rest of LOAD and STORE.

    `lists` are the micro-ops that each kernel lists, int64 [m, 3]: dst, src, wgt.
    """
    rules = SEMANTICS[config.semantics]
    of_kernels, of_moves = bounds(kernels, lists, rules), _moves(config, moved, rules)
    known, width = len(kernels), of_kernels.shape[1]
    footprint = kernel + 1
    footprint[moved.memory != NOTHING] = known + 1 + np.arange(len(of_moves))
    start = np.concatenate(
        [[0], width * np.arange(known + 1), width * known + of_moves.shape[1] * (1 + np.arange(len(of_moves)))]
    )

    def exact(index: int) -> Array:
        if 1 <= index <= known:
            return kernels[index - 1].footprint(rules)
        return of_moves[index - known - 1] if index else of_moves.reshape(-1, 6)[:0]

    return footprint, Footprints(np.concatenate([of_kernels.reshape(-1, 6), of_moves.reshape(-1, 6)]), start, exact)


def bounds(kernels: Sequence[GemmKernel | AluKernel], lists: Sequence[Array], rules: Semantics) -> Array:
    """Rows between the lowest and highest tile of each access: int64 [k, rows, 6], the micro-ops read first.

    Rows without PARTLY are exact; some kernels have rows of nothing.
    """
    live = [index for index, kernel in enumerate(kernels) if kernel.loop.micro_ops]
    groups: dict[tuple[Access, ...], tuple[list[int], list[int]]] = {}
    for place, index in enumerate(live):
        at, places = groups.setdefault(kernels[index].accesses(rules), ([], []))
        at.append(index)
        places.append(place)
    rows = np.zeros((len(kernels), 1 + max(map(len, groups), default=0), 6), np.int64)
    if not live:
        return rows
    low, high, dense = _spans([kernels[index] for index in live], [lists[index] for index in live])
    for accesses, (at, places) in groups.items():
        for row, (space, mode, operand) in enumerate(accesses, 1):
            rows[at, row, SPACE], rows[at, row, BASE], rows[at, row, COUNT] = space, low[places, operand], 1
            rows[at, row, LENGTH] = high[places, operand] - low[places, operand]
            rows[at, row, MODE] = np.where(dense[places, operand], mode, mode | PARTLY)
    fetched = np.array([(kernels[index].loop.uop_bgn, len(lists[index])) for index in live], np.int64)
    rows[live, 0, SPACE], rows[live, 0, MODE], rows[live, 0, COUNT] = UOP, READ, 1
    rows[live, 0, BASE], rows[live, 0, LENGTH] = fetched[:, 0], fetched[:, 1]
    return rows


def _spans(kernels: Sequence[GemmKernel | AluKernel], lists: Sequence[Array]) -> tuple[Array, Array, Array]:
    """Lowest tile, highest + 1, and whether all between are certainly touched: [k, 3] for dst, src, wgt.

    The tiles are sums of one number each from three sets: listed indices, outer and inner steps. Taken by their
    widest gap, each set must leave no gap wider than what the ones before it fill without any.
    """
    first = np.cumsum([0, *map(len, lists[:-1])])
    listed = np.concatenate(lists)
    lowest, highest = np.minimum.reduceat(listed, first), np.maximum.reduceat(listed, first)
    owner = np.repeat(np.arange(len(lists)) * (1 + int(listed.max())), [len(part) for part in lists])[:, None]
    ascending = np.sort(listed + owner, axis=0)
    jump = np.diff(ascending, axis=0, prepend=0)
    jump[first] = 0
    loops = np.array([(k.loop.iter_out, k.loop.iter_in, *k.loop.dst, *k.loop.src, *k.loop.wgt) for k in kernels])
    step = loops[:, 2:].reshape(-1, 3, 2)
    reach = (loops[:, None, :2] - 1) * step
    gaps = np.concatenate([np.maximum.reduceat(jump, first)[:, :, None], np.where(reach > 0, step, 0)], axis=2)
    extents = np.concatenate([(highest - lowest)[:, :, None], reach], axis=2)
    by_gap = np.argsort(gaps, axis=2)
    gaps, extents = np.take_along_axis(gaps, by_gap, 2), np.take_along_axis(extents, by_gap, 2)
    filled = 1 + np.cumsum(extents, axis=2) - extents
    return lowest, highest + reach.sum(axis=2) + 1, (gaps <= filled).all(axis=2)


def granule(config: Config) -> int:
    """Bytes of the smallest tile: the element in which DRAM footprints count."""
    return min(config.inp.tile_bytes, config.wgt.tile_bytes, config.acc.tile_bytes, config.out.tile_bytes)


def _moves(config: Config, moved: Moves, rules: Semantics) -> Array:
    """Rows of each LOAD and STORE, on chip and in DRAM: int64 [steps that move something, 2, 6]."""
    unit = granule(config)
    steps = np.flatnonzero(moved.memory != NOTHING)
    memory = moved.memory[steps]
    store = memory == Memory.OUT
    space = np.array([_SPACE[item] for item in Memory])
    if not rules.out_memory:
        space[Memory.OUT] = ACC
    rows = np.zeros((len(steps), 2, 6), np.int64)
    chip, port = rows[:, 0], rows[:, 1]
    chip[:, SPACE], chip[:, MODE] = space[memory], np.where(store, READ, WRITE)
    chip[:, BASE], chip[:, LENGTH], chip[:, COUNT] = moved.base[steps], moved.tiles[steps], 1
    port[:, SPACE], port[:, MODE] = DRAM, np.where(store, WRITE, READ)
    address = moved.address[steps]
    port[:, BASE], port[:, LENGTH] = address // unit, -(-(address % unit + moved.row_bytes[steps]) // unit)
    # Micro-ops are control state: their DRAM is not part of the data check.
    port[:, COUNT] = np.where(memory == Memory.UOP, 0, moved.rows[steps])
    port[:, STRIDE] = moved.stride[steps] // unit
    return rows
