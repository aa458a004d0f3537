"""The data memories of one Gemmini, and the execution of primitive commands on these memories."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.array import Array
from tilewright.program.launch_image import Dram
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.work import MVOUT, Computes, Local, Moves, Work
from tilewright.targets.gemmini.traffic import transfers
from tilewright.targets.gemmini.values import loop
from tilewright.targets.gemmini.values.norm import Normaliser, RtlNormaliser, rounded

RELU = 1  # the only activation that works without a normaliser
#: The uncompiled loop takes this time for an element or a multiply-accumulate, in microseconds.
ELEMENT_US = 0.3


@dataclass(frozen=True, eq=False)
class Plan:
    """A program for the loop: its tables, DRAM ranges (int64 [k]) and number of elements.

    The loop executes all steps except the steps in `norms`, which `Machine` executes. On machines with a normaliser,
    these are every config_st, every config_norm, and every mvout of the accumulator without pooling.
    """

    work: Work
    tables: loop.Tables
    loads: tuple[Array, Array]
    stores: tuple[Array, Array]
    elements: int
    norms: Array


def plan(work: Work, config: Config) -> Plan:
    """Return the plan of a program whose commands are legal (see hazards/legal.py)."""
    action, index = np.full((2, len(work.kind)), -1)
    for kind, steps in (
        (loop.LOAD, work.loads.step),
        (loop.STORE, work.stores.step),
        (loop.COMPUTE, work.computes.step),
    ):
        action[steps] = kind
        index[steps] = np.arange(len(steps))
    action[work.stores.step[work.stores.settings["pool_stride"] > 0]] = loop.POOL
    moves = *_loads(work.loads), *_stores(work.stores)
    tables = loop.Tables(action, index, *moves, _computes(work.computes, config))
    moved = [(moves.local.rows * moves.local.cols).sum() for moves in work.moves]
    products = work.computes.a.rows * work.computes.a.cols * config.dim
    elements = int(sum(moved) + products.sum())
    norms = np.zeros(0, np.int64)
    if config.normaliser:
        stores = work.stores.step[(work.stores.local.acc == 1) & (work.stores.settings["pool_stride"] == 0)]
        norms = np.sort(np.concatenate([work.config_st[0], work.config_norm[0], stores]))
    return Plan(work, tables, transfers(work.loads), transfers(work.stores), elements, norms)


def _float(bits: Array) -> Array:
    return bits.astype(np.uint32).view(np.float32)


def _rows(*columns: Array) -> Array:
    return np.ascontiguousarray(np.stack(columns, axis=1))


def _loads(moves: Moves) -> tuple[Array, Array]:
    """Return the table of mvins, and the scale of each mvin, float32 [k]. The loop does not scale int32 elements."""
    place = moves.local
    settings = moves.settings
    none = np.zeros(len(moves.step), np.int64)
    zeros = (moves.dram == 0).astype(np.int64)
    pixels = np.where(place.acc == 1, 1, np.maximum(settings["pixels"], 1))
    sizes = place.rows, place.cols, place.acc, place.accumulate, zeros, settings["stride"], settings["block_stride"]
    return _rows(place.row, *sizes, settings["shrunk"], pixels, none, none), _float(settings["scale"])


def _stores(moves: Moves) -> tuple[Array, Array]:
    place = moves.local
    settings = moves.settings
    none = np.zeros(len(moves.step), np.int64)
    relu = (settings["activation"] == RELU).astype(np.int64)
    sizes = place.rows, place.cols, place.acc, place.full & place.acc, settings["stride"], relu
    names = "upad", "lpad", "pool_stride", "pool_size", "out_dim", "porows", "pocols", "orows", "ocols"
    return _rows(place.row, *sizes, none, none, *(settings[name] for name in names)), _float(settings["scale"])


def _extent(place: Local) -> tuple[Array, Array, Array]:
    """Return the first row of operands, and their numbers of rows and columns, which are 0 for garbage operands."""
    real = 1 - place.garbage
    return place.row, place.rows * real, place.cols * real


def _computes(work: Computes, config: Config) -> Array:
    settings = work.settings
    c_row, c_rows, c_cols = _extent(work.c)
    weights = settings["dataflow"]
    if config.rules.extra_rows == "kept":
        c_rows = np.minimum(c_rows, work.streamed)
    return _rows(
        *_extent(work.a),
        settings["a_stride"],
        settings["transpose_a"],
        *_extent(work.d),
        settings["transpose_b"],
        work.fresh,
        *_extent(work.w),
        settings["transpose_b"] & weights,
        *(c_row, c_rows, c_cols, settings["c_stride"], work.c.acc, work.c.accumulate),
        weights,
        np.where(weights, 0, settings["shift"]),
        (settings["activation"] == RELU).astype(np.int64),
        # SUMS: since the last fresh weights, an OS compute has left sums in the array.
        weights & (_last(weights == 0) >= np.maximum(_last(work.fresh == 1), 0)),
    )


def _last(marked: Array) -> Array:
    """Return the last marked index up to each index, or -1 if there is none, int64 [k]."""
    return np.maximum.accumulate(np.where(marked, np.arange(len(marked)), -1))


class Machine:
    """The memories of a Gemmini for S samples: spad int8 and acc int32 (S, rows, dim), array int32 (S, dim, dim)."""

    def __init__(self, config: Config, dram: Dram, samples: int) -> None:
        self.config = config
        self.dram = dram
        self.samples = samples
        rules = config.rules
        self.spad = np.zeros((samples, config.all_spad_rows, config.dim), np.int8)
        self.acc = np.zeros((samples, config.acc_rows, config.dim), np.int32)
        self.array = np.zeros((samples, config.dim, config.dim), np.int32)
        bits = config.pe_bits if rules.sums == "pe_bits" else 32
        self.normaliser = RtlNormaliser(samples, config.rtl) if config.semantics == "rtl" else Normaliser(samples)
        # The loop wraps sums only if a row of A times a column of W, plus D, can exceed the width of a sum.
        overflows = config.dim * (1 << 14) + (1 << 7) >= 1 << (bits - 1)
        first = rules.relu == "before_scale"
        shifts = rules.os_shift == "always"
        floor = config.half if rules.repeats == "half" else 0
        self._rules = loop.Rules(int(first), int(shifts), bits, int(overflows), floor)

    def run(self, plan: Plan, sequence: Array) -> None:
        """Execute the steps `sequence` (int64) of a plan. Raises MachineError for an access outside a segment."""
        # Steps of the normaliser divide the sequence into parts for the loop.
        low = 0
        for high in np.flatnonzero(np.isin(sequence, plan.norms)).tolist():
            self._run(plan, sequence[low:high])
            self._normalise(plan, int(sequence[high]))
            low = high + 1
        self._run(plan, sequence[low:])

    def _run(self, plan: Plan, sequence: Array) -> None:
        tables = plan.tables
        chosen = plan.tables.action[sequence]
        count = len(tables.loads)
        entry = tables.entry[sequence]
        used = np.zeros(count + len(tables.stores), np.bool_)
        used[entry[chosen == loop.LOAD]] = True
        used[count + entry[(chosen == loop.STORE) | (chosen == loop.POOL)]] = True
        first = np.concatenate([plan.loads[0], plan.stores[0]])
        end = np.where(used, np.concatenate([plan.loads[1], plan.stores[1]]), first)
        # For the loop, copy the DRAM ranges of all steps to one array. A move that does not run gets an empty range,
        # which needs no segment.
        memory, places = self.dram.span(self.samples, first, end, np.arange(len(first)) >= count)
        tables.loads[:, [loop.L_PLACE, loop.L_PITCH]] = places[:count]
        tables.stores[:, [loop.S_PLACE, loop.S_PITCH]] = places[count:]
        sums = np.zeros_like(self.array[0])
        memories = loop.Memories(
            memory.view(np.int8), self.spad, self.acc, self.array, sums, np.zeros(len(sums), np.int8)
        )
        share = len(sequence) / max(len(tables.action), 1)
        run = loop.run.of(int(ELEMENT_US * plan.elements * self.samples * share))
        run(np.ascontiguousarray(sequence), tables, memories, self._rules)

    def _normalise(self, plan: Plan, step: int) -> None:
        for (steps, mvout), set_by in (
            (plan.work.config_st, self.normaliser.config_st),
            (plan.work.config_norm, self.normaliser.config_norm),
        ):
            for index in np.flatnonzero(steps == step).tolist():
                set_by({name: int(column[index]) for name, column in mvout.items()})
        if plan.work.kind[step] != MVOUT:
            return
        at = plan.tables.entry[step]
        moves = plan.work.stores
        mvout = plan.tables.stores[at]
        dim = self.config.dim
        cols = int(mvout[loop.S_COLS])
        command = int(moves.local.norm[at])
        for line in range(mvout[loop.S_ROWS]):
            row = mvout[loop.S_ROW] + line
            blocks = [self.acc[:, row + first, : cols - first] for first in range(0, cols, dim)]
            scale = plan.tables.store_scales[at]
            if not self.normaliser.count_row(blocks, command, scale):
                continue
            values = np.concatenate(blocks, axis=1)
            if not isinstance(self.normaliser, RtlNormaliser):
                values = self.normaliser.activated(values)
                if not mvout[loop.S_FULL]:
                    values = self._requantised(values, mvout[loop.S_RELU], scale).astype(np.int8)
            elif not mvout[loop.S_FULL]:  # int32 rows pass the activation
                values = self.normaliser.stored(values, scale)
            data = np.ascontiguousarray(values).view(np.uint8)
            address = int(moves.dram[at] + line * mvout[loop.S_STRIDE])
            self.dram.writable(self.samples, address, 1, data.shape[1], 0, f"mvout {step}")[:, 0] = data

    def _requantised(self, values: Array, relu: int, scale: Array) -> Array:
        if relu and self._rules.relu_first:
            values = np.maximum(values, 0)
        scaled = rounded(values, scale)
        return np.maximum(scaled, 0) if relu and not self._rules.relu_first else scaled
