"""Which tiles the steps of a stream touch: bounds in closed form, and on request exactly."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.sim.steps import BASE, COUNT, LENGTH, MODE, PARTLY, READ, SPACE, STRIDE, WRITE, Footprints
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import Memory
from tilewright.targets.vta.isa.semantics import SEMANTICS, Semantics
from tilewright.targets.vta.steps.micro_kernel import (
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
    AluKernel,
    banks,
)
from tilewright.targets.vta.steps.micro_kernels import REQUANTISE, Kernels
from tilewright.targets.vta.steps.moves import NOTHING, Moves

#: The space of each memory id.
_SPACES = np.array([UOP, WGT, INP, ACC, OUT, ACC, ALU_UOP, PAR])
_OUT = int(Memory.OUT)


def footprints(config: Config, moved: Moves, kernel: Array, kernels: Kernels) -> tuple[Array, Footprints]:
    """The footprint of each step, and all footprints: 0 is empty, 1..k are of kernels, the rest of LOAD and STORE."""
    rules = SEMANTICS[config.semantics]
    of_kernels, of_moves = bounds(kernels, config), _moves(config, moved, rules)
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


def bounds(kernels: Kernels, config: Config) -> Array:
    """Rows between the lowest and highest tile of each access: int64 [k, rows, 6], the micro-ops read first.

    Rows without PARTLY are exact; some kernels have rows of nothing.
    """
    live = np.flatnonzero(kernels.micro_ops)
    if not live.size:
        return np.zeros((len(kernels), 1, 6), np.int64)
    low, high, dense = _derived(kernels, live, config)
    examples, kind = kernels.kinds
    accesses = [kernels[index].accesses(config) for index in examples.tolist()]
    table = np.zeros((len(examples), max(map(len, accesses)), 3), np.int64)
    for mine, item in zip(table, accesses, strict=True):
        mine[: len(item)] = item
    space, mode, operand = table[kind[live]].transpose(2, 0, 1)
    each = np.arange(len(live))[:, None]
    found = np.zeros((len(live), 1 + table.shape[1], 6), np.int64)
    found[:, 0, SPACE] = np.array([kernels[index].uops(config) for index in examples.tolist()])[kind[live]]
    found[:, 0, MODE], found[:, :, COUNT] = READ, 1
    found[:, 0, BASE], found[:, 0, LENGTH] = kernels.column("uop_bgn")[live], kernels.listed[live]
    found[:, 1:, SPACE], found[:, 1:, MODE] = space, np.where(dense[operand, each], mode, mode | PARTLY)
    found[:, 1:, BASE] = low[operand, each]
    found[:, 1:, LENGTH] = np.where(mode > 0, high[operand, each] - low[operand, each], 0)
    if len(live) == len(kernels):
        return found
    rows = np.zeros((len(kernels), *found.shape[1:]), np.int64)
    rows[live] = found
    return rows


def _derived(kernels: Kernels, live: Array, config: Config) -> tuple[Array, Array, Array]:
    """Kernels.spans of some [5, k], the tiles of factors and the parts of acc as well."""
    spans = (part[:, live] for part in kernels.spans)
    low, high, dense = (np.concatenate([part, np.zeros((2, len(live)), part.dtype)]) for part in spans)
    for index in np.flatnonzero(kernels.form[live] == REQUANTISE).tolist():
        item = kernels[live[index]]
        assert isinstance(item, AluKernel) and item.factors is not None
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
    port[:, COUNT] = np.where(moved.of_uops[steps], 0, moved.rows[steps])
    port[:, STRIDE] = moved.stride[steps] // unit
    return rows
