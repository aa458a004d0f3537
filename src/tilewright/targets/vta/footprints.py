"""Which tiles the steps of a stream touch: bounds in closed form, and on request exactly."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.array import Array
from tilewright.sim.steps import BASE, COUNT, LENGTH, MODE, PARTLY, READ, SPACE, STRIDE, WRITE, Footprints
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import UOP_MEMORIES, Memory
from tilewright.targets.vta.kernel import (
    ACC,
    ALU_UOP,
    BANKS,
    DRAM,
    DST,
    FACTOR_TILES,
    FACTORS,
    INP,
    OUT,
    PAR,
    UOP,
    WGT,
    Access,
    AluKernel,
    GemmKernel,
    banks,
)
from tilewright.targets.vta.moves import NOTHING, Moves
from tilewright.targets.vta.semantics import SEMANTICS, Semantics

#: The space of each memory id.
_SPACES = np.array([UOP, WGT, INP, ACC, OUT, ACC, ALU_UOP, PAR])
_OUT = int(Memory.OUT)


#: A set of tiles is one number while sets are sorted: its widest gap above so many bits of its extent.
WIDE = 40


def footprints(
    config: Config, moved: Moves, kernel: Array, kernels: Sequence[GemmKernel | AluKernel], lists: Sequence[Array]
) -> tuple[Array, Footprints]:
    """The footprint of each step, and all footprints: 0 is empty, 1..k are of kernels, the rest of LOAD and STORE.

    `lists` are the micro-ops that each kernel lists, int64 [m, 3]: dst, src, wgt.
    """
    rules = SEMANTICS[config.semantics]
    of_kernels, of_moves = bounds(kernels, lists, config), _moves(config, moved, rules)
    known, width = len(kernels), of_kernels.shape[1]
    footprint = kernel + 1
    footprint[moved.memory != NOTHING] = known + 1 + np.arange(len(of_moves))
    start = np.concatenate(
        [[0], width * np.arange(known + 1), width * known + of_moves.shape[1] * (1 + np.arange(len(of_moves)))]
    )

    def exact(index: int) -> Array:
        if 1 <= index <= known:
            return kernels[index - 1].footprint(config)
        return of_moves[index - known - 1] if index else of_moves.reshape(-1, 6)[:0]

    return footprint, Footprints(np.concatenate([of_kernels.reshape(-1, 6), of_moves.reshape(-1, 6)]), start, exact)


def bounds(kernels: Sequence[GemmKernel | AluKernel], lists: Sequence[Array], config: Config) -> Array:
    """Rows between the lowest and highest tile of each access: int64 [k, rows, 6], the micro-ops read first.

    Rows without PARTLY are exact; some kernels have rows of nothing.
    """
    live = [index for index, kernel in enumerate(kernels) if kernel.loop.micro_ops]
    if not live:
        return np.zeros((len(kernels), 1, 6), np.int64)
    items = [kernels[index] for index in live]
    low, high, dense = _derived(items, _spans(items, [lists[index] for index in live]), config)
    patterns: dict[tuple[Access, ...], int] = {}
    mine = [patterns.setdefault(item.accesses(config), len(patterns)) for item in items]
    table = np.zeros((len(patterns), max(map(len, patterns)), 3), np.int64)
    for accesses, pattern in patterns.items():
        table[pattern, : len(accesses)] = accesses
    space, mode, operand = table[mine].transpose(2, 0, 1)
    each = np.arange(len(items))[:, None]
    found = np.zeros((len(items), 1 + table.shape[1], 6), np.int64)
    found[:, 0, SPACE], found[:, 0, MODE], found[:, :, COUNT] = [item.uops(config) for item in items], READ, 1
    found[:, 0, BASE] = [item.loop.uop_bgn for item in items]
    found[:, 0, LENGTH] = [len(lists[index]) for index in live]
    found[:, 1:, SPACE], found[:, 1:, MODE] = space, np.where(dense[operand, each], mode, mode | PARTLY)
    found[:, 1:, BASE] = low[operand, each]
    found[:, 1:, LENGTH] = np.where(mode > 0, high[operand, each] - low[operand, each], 0)
    if len(live) == len(kernels):
        return found
    rows = np.zeros((len(kernels), *found.shape[1:]), np.int64)
    rows[live] = found
    return rows


def _spans(kernels: Sequence[GemmKernel | AluKernel], lists: Sequence[Array]) -> tuple[Array, Array, Array]:
    """Lowest tile, highest + 1, and whether all between are certainly touched: [3, k] for dst, src, wgt.

    The tiles are sums of one number each from three sets: listed indices, outer and inner steps. Taken by their
    widest gap, each set must leave no gap wider than what the ones before it fill without any.
    """
    sizes = np.array([len(part) for part in lists])
    first = np.cumsum(sizes) - sizes
    listed = np.ascontiguousarray(np.concatenate(lists).T)
    lowest, highest = np.minimum.reduceat(listed, first, axis=1), np.maximum.reduceat(listed, first, axis=1)
    apart = np.repeat(np.arange(len(lists)) * (1 + int(highest.max())), sizes)
    jump = np.zeros_like(listed)
    ascending = np.sort(listed + apart)
    np.subtract(ascending[:, 1:], ascending[:, :-1], out=jump[:, 1:])
    jump[:, first] = 0
    loops = np.array([(k.loop.iter_out, k.loop.iter_in, *k.loop.dst, *k.loop.src, *k.loop.wgt) for k in kernels]).T
    step = loops[2:].reshape(3, 2, -1)
    reach = (loops[:2] - 1) * step
    sets = np.empty((3, 3, len(kernels)), np.int64)
    sets[0] = np.maximum.reduceat(jump, first, axis=1) << WIDE | highest - lowest
    sets[1:] = (step * (reach > 0) << WIDE | reach).swapaxes(0, 1)
    sets.sort(axis=0)
    gaps, extents = sets >> WIDE, sets & (1 << WIDE) - 1
    filled = 1 + np.cumsum(extents, axis=0) - extents
    return lowest, highest + reach.sum(axis=1) + 1, (gaps <= filled).all(axis=0)


def _derived(
    kernels: Sequence[GemmKernel | AluKernel], spans: tuple[Array, Array, Array], config: Config
) -> tuple[Array, Array, Array]:
    """The same [5, k] for the tiles of factors and the parts of acc as well."""
    low, high, dense = (np.concatenate([part, np.zeros((2, len(kernels)), part.dtype)]) for part in spans)
    for index, item in enumerate(kernels):
        if isinstance(item, AluKernel) and item.factors is not None:
            low[FACTORS, index], high[FACTORS, index] = item.factors.min(), item.factors.max() + FACTOR_TILES
    low[BANKS], high[BANKS] = banks(low[DST], config), banks(high[DST] - 1, config) + 1
    dense[BANKS] = dense[DST]
    return low, high, dense


def granule(config: Config) -> int:
    """Bytes of the smallest tile: the element in which DRAM footprints count."""
    chips = (config.inp, config.wgt, config.acc, config.out, *([config.par] if config.has_parameters else []))
    return min(chip.tile_bytes for chip in chips)


def _moves(config: Config, moved: Moves, rules: Semantics) -> Array:
    """Rows of each LOAD and STORE, on chip and in DRAM: int64 [steps that move something, 2, 6]."""
    unit = granule(config)
    steps = np.flatnonzero(moved.memory != NOTHING)
    memory = moved.memory[steps]
    store = memory == _OUT
    space = _SPACES[memory] if rules.out_memory else np.where(store, ACC, _SPACES[memory])
    rows = np.zeros((len(steps), 2, 6), np.int64)
    chip, port = rows[:, 0], rows[:, 1]
    chip[:, SPACE], chip[:, MODE] = space, np.where(store, READ, WRITE)
    chip[:, BASE], chip[:, LENGTH], chip[:, COUNT] = moved.base[steps], moved.tiles[steps], 1
    port[:, SPACE], port[:, MODE] = DRAM, np.where(store, WRITE, READ)
    address = moved.address[steps]
    port[:, BASE], port[:, LENGTH] = address // unit, -(-(address % unit + moved.row_bytes[steps]) // unit)
    # Micro-ops are control state: their DRAM is not part of the data check.
    port[:, COUNT] = np.where(np.isin(memory, UOP_MEMORIES), 0, moved.rows[steps])
    port[:, STRIDE] = moved.stride[steps] // unit
    return rows
