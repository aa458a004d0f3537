"""The data that LOAD and STORE move, decoded once for timing and values, and the footprint of each step.

A footprint lists the tiles that a step reads and writes. The footprints of GEMM and ALU are closed-form bounds; exact
rows are computed on request.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tilewright.array import Array, among
from tilewright.program.instruction import Column
from tilewright.sim.steps import BASE, COUNT, LENGTH, MODE, PARTLY, READ, SPACE, STRIDE, WRITE, Footprints
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import REGION_OF, ROW_BITS, UOP_MEMORIES, Fields, Memory, Opcode, Stream
from tilewright.targets.vta.steps.micro_kernel import (
    ACC,
    BANKS,
    DRAM,
    DST,
    FACTOR_TILES,
    FACTORS,
    REQUANTISE,
    SPACE_OF,
    Kernels,
    banks,
    uops_read,
)

NOTHING = -1


class Move(NamedTuple):
    """The data that one LOAD or STORE moves. `memory`: a Memory, or NOTHING, for which all other fields are 0.

    On chip, the tiles are consecutive from tile `base` on, in rows of `left + columns + right` tiles: first `top` rows
    of padding, then `rows` rows with data, then `bottom` rows of padding. In DRAM, there are `rows` rows of `row_bytes`
    bytes from byte `address` on, `stride` bytes apart. `row_bytes`: 0 if only padding is written.
    """

    memory: int
    base: int
    top: int
    bottom: int
    left: int
    right: int
    rows: int
    columns: int
    address: int
    row_bytes: int
    stride: int

    @property
    def height(self) -> int:
        return self.top + self.rows + self.bottom

    @property
    def width(self) -> int:
        return self.left + self.columns + self.right

    @property
    def end(self) -> int:
        """The number of the last on-chip tile, plus 1."""
        return self.base + self.height * self.width


class Moves(Fields):
    """The moves of n instructions: a column for each field of `Move`, int64 [n]."""

    @cached_property
    def tiles(self) -> Column:
        """For each move, the number of on-chip tiles, padding included: int64 [n]."""
        return (self.top + self.rows + self.bottom) * (self.left + self.columns + self.right)

    @cached_property
    def transfers(self) -> Array:
        """Whether each move transfers data from or to DRAM: bool [n]."""
        return (self.rows > 0) & (self.row_bytes > 0)

    @cached_property
    def stores(self) -> Array:
        return (self.memory == Memory.OUT) & self.transfers

    @cached_property
    def padding(self) -> Column:
        """The number of tiles of zeros that each LOAD writes, int64 [n]."""
        return self.tiles - self.rows * self.columns

    @cached_property
    def dram_end(self) -> Column:
        """One more than the last byte of DRAM that each move transfers: int64 [n]."""
        return self.address + np.where(self.transfers, (self.rows - 1) * self.stride + self.row_bytes, 0)

    @cached_property
    def of_uops(self) -> Array:
        """Whether each move loads micro-ops (control state): bool [n]."""
        return among(self.memory, UOP_MEMORIES)

    @cached_property
    def as_list(self) -> list[Move]:
        return self.of(slice(None))

    def of(self, steps: Array | slice) -> list[Move]:
        columns = (self[name][steps].tolist() for name in Move._fields)
        return list(map(Move._make, zip(*columns, strict=True)))


def moves(stream: Stream, config: Config, bases: Mapping[str, int]) -> Moves:
    """Return the moves of a stream; `bases` are the byte addresses in the control registers."""
    rules = config.rules
    mem = stream.mem
    store = stream.opcode == Opcode.STORE
    load = stream.opcode == Opcode.LOAD
    # NOTHING marks a transfer that the upstream implementation ignores.
    memory = np.where(store, int(Memory.OUT), np.where(load, mem.memory_type, NOTHING))
    memory = np.where(load & (memory == Memory.OUT), NOTHING, memory)
    if not rules.loads_acc_8bit or (config.acc.width, config.inp.width) != (32, 8):  # fsim aborts on other widths
        memory = np.where(memory == Memory.ACC_8BIT, NOTHING, memory)
    if not rules.empty_loads_pad:
        memory = np.where(mem.x_size == 0, NOTHING, memory)
    active = memory != NOTHING
    # In upstream's HLS design, only LOADs of inp and acc pad, and a LOAD of micro-ops has one row.
    pads = load & active & (rules.full_loads | among(memory, (Memory.INP, Memory.ACC)))
    one_row = among(memory, UOP_MEMORIES) & (not rules.full_loads)
    no_rows = 1 << ROW_BITS if rules.counters_wrap else 0  # the rows of a STORE with y_size 0
    tile = np.array([config.dram_tile_bytes(item) for item in Memory] + [0], np.int64)[memory]
    base = np.array([bases[name] for name in REGION_OF] + [0], np.int64)[memory]

    def where(mask: Array, column: Array) -> Column:
        return np.where(mask, column, 0).astype(np.int64)

    return Moves(
        memory=memory.astype(np.int64),
        base=where(active, mem.sram_base),
        top=where(pads, mem.y_pad_0),
        bottom=where(pads, mem.y_pad_1),
        left=where(pads, mem.x_pad_0),
        right=where(pads, mem.x_pad_1),
        rows=where(active, np.where(one_row, 1, np.where(store & (mem.y_size == 0), no_rows, mem.y_size))),
        columns=where(active, mem.x_size),
        address=where(active, base + mem.dram_base * tile),
        row_bytes=where(active, mem.x_size * tile),
        stride=where(active, mem.x_stride * tile),
    )


def footprints(config: Config, moved: Moves, kernel: Array, kernels: Kernels) -> tuple[Array, Footprints]:
    """Return a footprint number for each step, and a list of all footprints."""
    of_kernels = bounds(kernels, config)
    of_moves = _moves(config, moved)
    kernel_count = len(kernels)
    width = of_kernels.shape[1]
    # Footprint 0 is empty. Footprints 1..k belong to the k kernels, the following footprints to LOADs and STOREs.
    footprint = kernel + 1
    footprint[moved.memory != NOTHING] = kernel_count + 1 + np.arange(len(of_moves))
    start = np.concatenate(
        [
            [0],
            width * np.arange(kernel_count + 1),
            width * kernel_count + of_moves.shape[1] * (1 + np.arange(len(of_moves))),
        ]
    )

    def exact(index: int) -> Array:
        if 1 <= index <= kernel_count:
            return kernels[index - 1].footprint(config)
        return of_moves[index - kernel_count - 1] if index else of_moves.reshape(-1, 6)[:0]

    return footprint, Footprints(np.concatenate([of_kernels.reshape(-1, 6), of_moves.reshape(-1, 6)]), start, exact)


def bounds(kernels: Kernels, config: Config) -> Array:
    """Return each kernel's footprint rows, from the lowest to the highest tile of each access: int64 [k, rows, 6].

    The first row of a kernel is the read of its micro-ops. Rows whose mode lacks PARTLY are exact. Unused rows are
    zeros.
    """
    live = np.flatnonzero(kernels.micro_ops)
    if not live.size:
        return np.zeros((len(kernels), 1, 6), np.int64)
    low, high, dense = _derived(kernels, live, config)
    # One kernel as an example for all kernels with the same accesses.
    _, examples, kind = np.unique(2 * kernels.form + kernels.resets, return_index=True, return_inverse=True)
    accesses = [kernels[index].accesses(config) for index in examples.tolist()]
    table = np.zeros((len(examples), max(map(len, accesses)), 3), np.int64)
    for mine, item in zip(table, accesses, strict=True):
        mine[: len(item)] = item
    # An access is (space, mode, operand); the operand selects the row of `low`, `high` and `dense`.
    space, mode, operand = table[kind[live]].transpose(2, 0, 1)
    number = np.arange(len(live))[:, None]
    live_rows = np.zeros((len(live), 1 + table.shape[1], 6), np.int64)
    live_rows[:, 0, SPACE] = np.array([kernels[index].uop_space(config) for index in examples.tolist()])[kind[live]]
    live_rows[:, 0, MODE] = READ
    live_rows[:, :, COUNT] = 1
    begin = kernels.column("uop_bgn")[live]
    live_rows[:, 0, BASE], live_rows[:, 0, LENGTH] = uops_read(begin, kernels.column("uop_end")[live], config)
    live_rows[:, 1:, SPACE] = space
    live_rows[:, 1:, MODE] = np.where(dense[operand, number], mode, mode | PARTLY)
    live_rows[:, 1:, BASE] = low[operand, number]
    live_rows[:, 1:, LENGTH] = np.where(mode > 0, high[operand, number] - low[operand, number], 0)
    rows = np.zeros((len(kernels), *live_rows.shape[1:]), np.int64)
    rows[live] = live_rows
    return rows


def _derived(kernels: Kernels, live: Array, config: Config) -> tuple[Array, Array, Array]:
    """Return Kernels.spans for the kernels `live`, [5, k] each. The extra rows are REQ's factors and the acc banks."""
    spans = (part[:, live] for part in kernels.spans)
    low, high, dense = (np.concatenate([part, np.zeros((2, len(live)), part.dtype)]) for part in spans)
    for index in np.flatnonzero(kernels.form[live] == REQUANTISE).tolist():
        factors = kernels[live[index]].factors
        assert factors is not None
        low[FACTORS, index] = factors.min()
        high[FACTORS, index] = factors.max() + FACTOR_TILES
    # The last tile is in bank `banks(high - 1)`, and ranges end one later.
    low[BANKS] = banks(low[DST], config)
    high[BANKS] = banks(high[DST] - 1, config) + 1
    dense[BANKS] = dense[DST]
    return low, high, dense


def granule(config: Config) -> int:
    """Return the bytes of the smallest tile, which is the unit of DRAM footprints."""
    chips = (config.inp, config.wgt, config.acc, config.out, *([config.par] if config.has_parameters else []))
    return min(chip.tile_bytes for chip in chips)


def _moves(config: Config, moved: Moves) -> Array:
    """Return two footprint rows, on chip and in DRAM, for each LOAD and STORE that moves data: int64 [moves, 2, 6]."""
    unit = granule(config)
    steps = np.flatnonzero(moved.memory != NOTHING)
    memory = moved.memory[steps]
    store = memory == Memory.OUT
    space = np.array(SPACE_OF)[memory]
    if not config.rules.out_memory:
        space[store] = ACC
    rows = np.zeros((len(steps), 2, 6), np.int64)
    chip = rows[:, 0]
    port = rows[:, 1]
    chip[:, SPACE] = space
    chip[:, MODE] = np.where(store, READ, WRITE)
    chip[:, BASE] = moved.base[steps]
    chip[:, LENGTH] = moved.tiles[steps]
    chip[:, COUNT] = 1
    port[:, SPACE] = DRAM
    port[:, MODE] = np.where(store, WRITE, READ)
    address = moved.address[steps]
    port[:, BASE] = address // unit
    port[:, LENGTH] = -(-(address % unit + moved.row_bytes[steps]) // unit)
    # Micro-ops are control state, so the data-hazard check ignores the DRAM from which they are loaded.
    port[:, COUNT] = np.where(moved.of_uops[steps], 0, moved.rows[steps])
    port[:, STRIDE] = moved.stride[steps] // unit
    return rows
