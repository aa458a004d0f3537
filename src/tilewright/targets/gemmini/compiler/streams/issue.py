"""List scheduling of commands: each command gets a time, and the program is sorted by these times.

The DMA, the array and the writer are three units, and each of them executes one command at a time. The duration of a
command is an estimate from the steady rates of the RTL ("rule" refers to the specs of the golden data). The exact clock
(timing/) measures the complete program afterwards.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.fields import rows_of
from tilewright.targets.gemmini.isa.macros import GARBAGE_ADDR
from tilewright.targets.gemmini.isa.work import ACC, ACCUMULATE, LEAST_ROWS
from tilewright.targets.gemmini.passes import SCALE_CYCLES, SCALE_ROWS, SLOT

#: A load completes this number of cycles after its last beat (rule 2).
ARRIVES = 13
#: A load of zeros (rule 4), or of repeated rows (measured), takes this number of cycles plus one cycle per row.
ZEROS = 3
REPEATED = 7
#: Cycles from the last product of a job to the job's first store, and cycles of the scale unit per row.
STORE_DELAY = 50
SCALED = SCALE_CYCLES / SCALE_ROWS
#: The load states for inputs, for weights, and for offsets (one row of DRAM is written to many rows).
INPUTS, WEIGHTS, OFFSETS = range(3)


class Group(NamedTuple):
    """The products of a block of weights with blocks of A.

    `weights` and `a` are the first scratchpad rows of the operands, and `c` is the first accumulator row of the sums.
    With `adds`, products are added to these sums. A row of A has `inner` numbers, and a row of sums has `columns`
    numbers.
    """

    time: float
    weights: int
    a: int
    c: int
    inner: int
    columns: int
    adds: int


class Issue:
    """The commands of a program with their times.

    The DMA is busy until cycle `loaded`, the array until `computed`, and the writer until `stored`. The array begins
    the newest group in cycle `began`.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        self.loaded = self.began = self.computed = self.stored = 0.0
        self._loads: list[tuple[float, ...]] = []  # time, load state, then the other columns that _moves encodes
        self._stores: list[tuple[float, ...]] = []
        self._others: list[tuple[float, Array]] = []
        self._groups: dict[tuple[int, ...], list[Group]] = {}

    def load(self, free: float, state: int, dram: int, local: int, columns: int, rows: int, beats: int = 1) -> float:
        """Load rows of `beats` beats each, and return the cycle in which the last row arrives.

        The load cannot begin before cycle `free`, when the rows on chip become free. Address 0 loads zeros.
        """
        start = max(self.loaded, free)
        config = self.config
        self._loads.append((start, state, dram, local, columns, rows))
        if dram == 0:
            self.loaded = start + ZEROS + rows * -(-columns // config.dim)
            return self.loaded
        if state == OFFSETS:
            self.loaded = start + rows + REPEATED
        else:
            # A row takes one cycle per beat, or more if the latency of memory keeps all slots of the DMA busy (rule 6).
            held = config.memory_latency + SLOT + beats
            self.loaded = start + rows * max(beats, held / config.reads_in_flight)
        return self.loaded + config.memory_latency + ARRIVES

    def compute(self, ready: float, blocks: tuple[int, ...], group: Group) -> None:
        """Compute a group of products, not before cycle `ready`. `blocks` has the number of rows of each block of A."""
        # During the last block, the array loads the next weights, so `dim` rows stream.
        self.began = start = max(self.computed, ready)
        self._groups.setdefault(blocks, []).append(Group(start, *group[1:]))
        self.computed = start + sum(max(rows, LEAST_ROWS) for rows in blocks[:-1]) + self.config.dim

    def store(self, dram: int, local: int, columns: int, rows: int, cost: float) -> None:
        """Store rows of the newest sums. The store takes `cost` cycles."""
        start = max(self.stored, self.computed + STORE_DELAY)
        self._stores.append((start, dram, local, columns, rows))
        self.stored = start + cost

    def configure(self, commands: Array) -> None:
        """Insert commands, uint64 [n, 3], directly before the next store: half a cycle earlier than the store."""
        self._others.append((max(self.stored, self.computed + STORE_DELAY) - 0.5, commands))

    def array(self) -> Array:
        parts = [(np.full(len(commands), time), commands) for time, commands in self._others]
        parts += [self._pairs(blocks, groups) for blocks, groups in self._groups.items()]
        loads = np.array(self._loads).reshape(-1, 6)
        stores = np.array(self._stores).reshape(-1, 5)
        for state, name in enumerate(("mvin", "mvin2", "mvin3")):
            parts.append(_moves(name, np.delete(loads[loads[:, 1] == state], 1, axis=1)))
        parts.append(_moves("mvout", stores))
        times, commands = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        return commands[np.argsort(times, kind="stable")]

    def _pairs(self, blocks: tuple[int, ...], groups: list[Group]) -> tuple[Array, Array]:
        """Return the times and commands of groups with equal `blocks`. Each preload is directly before its compute."""
        sizes = np.array(blocks)
        count = len(groups)
        cycles = np.maximum(sizes, LEAST_ROWS)
        time = np.array([group.time for group in groups])[:, None] + np.cumsum(cycles) - cycles
        operands_of_group = np.array([group[1:] for group in groups], np.int64)
        weights, a, c, inner, columns, adds = np.repeat(operands_of_group, len(blocks), axis=0).T
        rows, first, fresh = (
            np.tile(per_block, count) for per_block in (sizes, np.cumsum(sizes) - sizes, np.arange(len(blocks)) == 0)
        )
        result = {"c": 1 << ACC | adds << ACCUMULATE | c + first, "c_cols": columns, "c_rows": rows}
        block_operand = {"bd": np.where(fresh, weights, GARBAGE_ADDR), "bd_cols": columns, "bd_rows": inner}
        preloads = rows_of("preload", **block_operand, **result)
        full = np.full(len(rows), self.config.dim)
        operands = {"a": a + first, "a_cols": inner, "a_rows": rows}
        operands |= {"bd": np.full(len(rows), GARBAGE_ADDR), "bd_cols": full, "bd_rows": rows}
        computes = rows_of("compute_accumulated", **operands)
        computes[fresh] = rows_of("compute_preloaded", **{name: column[fresh] for name, column in operands.items()})
        return np.repeat(time.reshape(-1), 2), np.stack([preloads, computes], axis=1).reshape(-1, 3)


def _moves(name: str, rows: Array) -> tuple[Array, Array]:
    """Return the times and commands of moves, float64 [n, 5]: time, address, local address, columns, rows."""
    dram, local, columns, count = rows[:, 1:].astype(np.int64).T
    return rows[:, 0], rows_of(name, dram=dram, local=local, cols=columns, rows=count)
