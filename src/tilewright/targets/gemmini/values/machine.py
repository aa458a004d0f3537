"""The data memories of one Gemmini, and the execution of a program's primitive commands on them."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass

import numpy as np

from tilewright.array import Array
from tilewright.program.launch_image import Dram
from tilewright.targets.gemmini.config import ACC_BYTES, Config
from tilewright.targets.gemmini.isa.work import Computes, Local, Moves, Work
from tilewright.targets.gemmini.values import loop

#: Microseconds that the uncompiled loop takes for one element or one multiply-accumulate.
ELEMENT_US = 0.3


def transfers(moves: Moves, config: Config, out: bool) -> tuple[Array, Array]:
    """Return the first DRAM byte of each mvin (with `out`: mvout) and the byte after its last, int64 [k] each.

    A command without DRAM access (zeros, no rows) has an empty range.
    """
    place, own = moves.local, moves.own
    wide = place.full & place.acc if out else place.acc & (1 - own["shrunk"])
    size = place.cols * np.where(wide, ACC_BYTES, 1)
    last, rows = (place.rows - 1) * own["stride"], place.rows
    if out:
        pooled = own["pool_stride"] > 0
        far = (own["porows"] - 1) * own["out_dim"] + own["pocols"] - 1
        last, rows = np.where(pooled, far * own["stride"], last), np.where(pooled, own["porows"] * own["pocols"], rows)
    used = (rows > 0) & (place.cols > 0) & (moves.dram != 0)
    first = moves.dram + np.minimum(last, 0)
    return first, np.where(used, moves.dram + np.maximum(last, 0) + size, first)


@dataclass(frozen=True, eq=False)
class Plan:
    """A program as the loop executes it: its tables, DRAM ranges (int64 [k]) and number of elements."""

    tables: loop.Tables
    loads: tuple[Array, Array]
    stores: tuple[Array, Array]
    elements: int


def plan(work: Work, config: Config) -> Plan:
    """Return the plan of a program, whose commands must be legal and inside the memories (hazards/legal.py)."""
    action, index = np.full((2, len(work.kind)), -1)
    for kind, steps in (
        (loop.LOAD, work.loads.step),
        (loop.STORE, work.stores.step),
        (loop.COMPUTE, work.computes.step),
    ):
        action[steps], index[steps] = kind, np.arange(len(steps))
    action[work.stores.step[work.stores.own["pool_stride"] > 0]] = loop.POOL
    tables = loop.Tables(action, index, _loads(work.loads), _stores(work.stores), _computes(work.computes, config))
    moved = [(moves.local.rows * moves.local.cols).sum() for moves in (work.loads, work.stores)]
    products = work.computes.a.rows * work.computes.a.cols * config.dim
    elements = int(sum(moved) + products.sum())
    return Plan(tables, transfers(work.loads, config, False), transfers(work.stores, config, True), elements)


def _float(bits: Array) -> Array:
    """Return float32 numbers from their bits (int64)."""
    return bits.astype(np.uint32).view(np.float32)


def _loads(moves: Moves) -> loop.Loads:
    place, own, none = moves.local, moves.own, np.zeros(len(moves.step), np.int64)
    wide = (place.acc == 1) & (own["shrunk"] == 0)
    scale = np.where(wide, np.float32(1), _float(own["scale"]))
    zeros = (moves.dram == 0).astype(np.int64)
    sizes = place.rows, place.cols, place.acc, place.accumulate, zeros, own["stride"], own["block_stride"]
    pixels = np.where(place.acc == 1, 1, np.maximum(own["pixels"], 1))
    return loop.Loads(place.row, *sizes, own["shrunk"], pixels, scale, none, none)


def _stores(moves: Moves) -> loop.Stores:
    place, own, none = moves.local, moves.own, np.zeros(len(moves.step), np.int64)
    relu = (own["activation"] == loop.RELU).astype(np.int64)
    sizes = place.rows, place.cols, place.acc, place.full & place.acc, own["stride"], relu
    names = "upad", "lpad", "pool_stride", "pool_size", "out_dim", "porows", "pocols", "orows", "ocols"
    return loop.Stores(place.row, *sizes, _float(own["scale"]), none, none, *(own[name] for name in names))


def _extent(place: Local) -> tuple[Array, Array, Array]:
    """Return the row, rows and columns of operands; a garbage operand has no rows and no columns."""
    real = 1 - place.garbage
    return place.row, place.rows * real, place.cols * real


def _computes(work: Computes, config: Config) -> loop.Computes:
    own, (c_row, c_rows, c_cols) = work.own, _extent(work.c)
    weights = own["dataflow"]
    if config.rules.extra_rows == "kept":
        c_rows = np.minimum(c_rows, work.streamed)
    return loop.Computes(
        *_extent(work.a),
        own["a_stride"],
        own["transpose_a"],
        *_extent(work.d),
        own["transpose_b"],
        work.fresh,
        *_extent(work.w),
        own["transpose_b"] & weights,
        *(c_row, c_rows, c_cols, own["c_stride"], work.c.acc, work.c.accumulate),
        weights,
        np.where(weights, 0, own["shift"]),
        (own["activation"] == loop.RELU).astype(np.int64),
    )


class Machine:
    """The memories of a Gemmini for S samples: spad int8 and acc int32 (S, rows, dim), array int32 (S, dim, dim)."""

    def __init__(self, config: Config, dram: Dram, samples: int) -> None:
        self.config, self.dram, self.samples, rules = config, dram, samples, config.rules
        self.spad = np.zeros((samples, config.all_spad_rows, config.dim), np.int8)
        self.acc = np.zeros((samples, config.acc_rows, config.dim), np.int32)
        self.array = np.zeros((samples, config.dim, config.dim), np.int32)
        bits = config.pe_bits if rules.sums == "pe_bits" else 32
        self._rules = loop.Rules(int(rules.relu == "before_scale"), int(rules.os_shift == "always"), bits)

    def copy(self) -> Machine:
        """Return a copy; both share DRAM until one of them writes there."""
        made = copy(self)
        made.dram, made.spad, made.acc = self.dram.copy(), self.spad.copy(), self.acc.copy()
        made.array = self.array.copy()
        return made

    def run(self, plan: Plan, sequence: Array) -> None:
        """Execute the steps in `sequence` (int64) of a plan. Raises MachineError if one leaves its DRAM segment."""
        loads, stores = plan.tables.loads, plan.tables.stores
        used = np.zeros((2, max(len(loads.row), len(stores.row))), np.bool_)
        chosen = plan.tables.action[sequence]
        used[0, plan.tables.entry[sequence[chosen == loop.LOAD]]] = True
        used[1, plan.tables.entry[sequence[(chosen == loop.STORE) | (chosen == loop.POOL)]]] = True
        kept = used[0, : len(loads.row)], used[1, : len(stores.row)]
        first = np.concatenate([plan.loads[0], plan.stores[0]])
        end = np.where(np.concatenate(kept), np.concatenate([plan.loads[1], plan.stores[1]]), first)
        written = np.arange(len(first)) >= len(loads.row)
        memory, places = self.dram.span(self.samples, first, end, written)
        place, pitch = places.T.copy()
        count = len(loads.row)
        tables = plan.tables._replace(
            loads=loads._replace(place=place[:count], pitch=pitch[:count]),
            stores=stores._replace(place=place[count:], pitch=pitch[count:]),
        )
        chips = loop.Chips(memory.view(np.int8), self.spad, self.acc, self.array, np.zeros(self.config.dim, np.int32))
        share = len(sequence) / max(len(plan.tables.action), 1)
        run = loop.run.of(int(ELEMENT_US * plan.elements * self.samples * share))
        run(np.ascontiguousarray(sequence), tables, chips, self._rules)
