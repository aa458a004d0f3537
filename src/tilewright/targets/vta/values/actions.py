"""The plan of the value pass, which is made once and executed on every block of samples.

An `Action` is one instruction, or several merged GEMMs. Machine runs an action as whole-array operations. A `StepBatch`
is a run of many short instructions. `loop.run` executes a batch from tables. A batch ends at a large instruction, or at
an instruction that the loop does not support.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tilewright.array import Array, among, ascending
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.alu import UPSTREAM, AluOp
from tilewright.targets.vta.isa.fields import UOP_MEMORIES, Memory, Uops
from tilewright.targets.vta.isa.own import FIRST_OWN
from tilewright.targets.vta.steps.elaborate import Elaborated
from tilewright.targets.vta.steps.micro_kernel import ALU, ALU_IMMEDIATE, FIELDS, Kernel, Kernels
from tilewright.targets.vta.steps.moves import NOTHING, Move
from tilewright.targets.vta.values import loop, tables

#: Nanoseconds of the loop per multiply-accumulate (with `loop.products`, without it), and per value that is moved or
#: that the ALU changes. Microseconds of the array operations per instruction of any size. Measured with 1 to 16
#: samples.
LANES_NS = 0.04
MAC_NS = 0.35
VALUE_NS = 2
ARRAYS_US = 10
#: Limits for the steps in one batch. For a shorter batch, a call costs more than it saves. The tables of a longer batch
#: do not fit the CPU's caches.
SHORTEST = 64
LONGEST = 1 << 15
#: Minimum steps in all batches of a program that uses the loop (if there are several samples, or no `loop.products`). A
#: call of the loop takes 0.3 ms per sample, as long as array operations for a few hundred steps of a small network.
ENOUGH = 1000
#: With more micro-ops per tile of acc, an ALU instruction must write some tile often. Each such write needs a separate
#: wave, so array operations are slow.
DEEP = 8

_TO = {Memory.INP: loop.TO_INP, Memory.WGT: loop.TO_WGT, Memory.ACC: loop.TO_ACC, Memory.ACC_8BIT: loop.TO_ACC}
#: Memory ids of steps that do not change data: these steps only carry tokens, or load control state.
_SILENT = (NOTHING, *UOP_MEMORIES)
#: The only number of stages that the loop supports, because GEMMs in the loop write the out memory.
STAGES = 3
#: The memory that a LOAD fills, as a number in the result of `_touched`. Memory ids that are not listed have 0 (acc).
_LOADED = {Memory.INP: 1, Memory.WGT: 2, Memory.PAR: 3}


class Action(NamedTuple):
    """A LOAD or STORE (Move), or a GEMM or ALU kernel, to execute."""

    work: Move | Kernel
    where: str  # names the instruction in error messages
    stored: bool = False  # whether a STORE reads the sum that this reset GEMM writes to the out memory


def actions(program: Elaborated, sequence: Array, stored: Container[int]) -> tuple[Action, ...]:
    """Return the actions that execute the steps `sequence`. `stored`: the steps that `stored_resets` returns."""
    kernels = program.kernel[sequence].tolist()
    moves = program.moves.of(sequence)
    used = ascending(program.kernel[sequence])
    used = used[used >= 0]
    accumulates = dict(zip(used.tolist(), program.kernels.accumulates[used].tolist(), strict=True))
    # The loop below runs once for each step: look-ups in dictionaries are faster than in arrays.
    low, high = (dict(zip(used.tolist(), s[:, used].T.tolist(), strict=True)) for s in program.kernels.spans[:2])
    planned: list[Action] = []
    pending = _Pending()
    touched = _touched(program, sequence).T.tolist()
    for step, index, move, extent in zip(sequence.tolist(), kernels, moves, touched, strict=True):
        if index >= 0 and accumulates[index]:
            # Accumulating GEMMs are deferred until another instruction touches their tiles, then merged. This is legal
            # because additions commute, and a few large products take less time than many small products.
            pending.add(index, low[index], high[index])
            continue
        if index < 0 and move.memory in _SILENT:
            continue
        if pending.kernels and pending.conflicts(*extent):
            planned.append(Action(program.fused(tuple(pending.kernels)), f"before instruction {step}"))
            pending = _Pending()
        work = program.kernels[index] if index >= 0 else move
        planned.append(Action(work, f"instruction {step}", step in stored))
    if pending.kernels:
        planned.append(Action(program.fused(tuple(pending.kernels)), "end"))
    return tuple(planned)


class _Pending:
    """The deferred accumulating GEMMs, and the range of tiles of acc, inp and wgt that they touch."""

    def __init__(self) -> None:
        self.kernels: list[int] = []
        self._low = [1 << 62] * 4
        self._high = [0] * 4

    def add(self, index: int, low: Sequence[int], high: Sequence[int]) -> None:
        if high[0] > low[0]:  # the kernel has micro-ops
            self.kernels.append(index)
            self._low[:3] = map(min, self._low, low)
            self._high[:3] = map(max, self._high, high)

    def conflicts(self, memory: int, low: int, high: int) -> bool:
        return low < self._high[memory] and high > self._low[memory]


def _touched(program: Elaborated, sequence: Array) -> Array:
    """Return the memory and range of tiles that each step changes or stores: int64 [3, n].

    Rows are the memory (0 acc, 1 inp, 2 wgt, 3 par), the lowest tile, and the highest tile + 1.
    """
    kernel = program.kernel[sequence]
    moved = program.moves
    memory, base, tiles = (column[sequence] for column in (moved.memory, moved.base, moved.tiles))
    # The rows of `spans` are dst, src, wgt.
    (low, first, _), (high, last, _), _ = program.kernels.spans
    reads = among(program.kernels.form, (ALU, ALU_IMMEDIATE))
    # The range includes the tiles that the ALU (but not REQ) reads, because deferred GEMMs must run before such a read.
    low, high = np.where(reads, np.minimum(low, first), low), np.where(reads, np.maximum(high, last), high)
    runs = kernel >= 0
    loaded = np.array([_LOADED.get(item, 0) for item in Memory] + [0])[memory]
    low, high = np.append(low, 0)[kernel], np.append(high, 0)[kernel]
    return np.array([np.where(runs, 0, loaded), np.where(runs, low, base), np.where(runs, high, base + tiles)])


def stored_resets(program: Elaborated, sequence: Array) -> dict[int, Array]:
    """Return, for the step of each reset GEMM, the out tiles in which a STORE reads the reset's sum.

    The sum that a reset writes to the out memory (Semantics.reset_writes_out) is only needed for these tiles.
    """
    config = program.config
    kernels = program.kernels
    if not kernels.resets.any() or not (config.gemm_writes_out and config.rules.reset_writes_out):
        return {}
    moved = program.moves
    is_store = program.moves.memory == Memory.OUT
    steps = sequence[(program.kernel[sequence] >= 0) | is_store[sequence]]
    columns = steps, program.kernel[steps], moved.base[steps], (moved.base + moved.tiles)[steps]
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    if not _may_store_resets(program, rows):
        return {}
    # The last writer of each out tile, if this writer was a reset. A STORE of such a tile needs the sum that the reset
    # would have accumulated.
    writer = np.full(config.out.depth, -1, np.int64)
    stored: dict[int, list[Array]] = {}
    resets = kernels.resets.tolist()
    written = [item.written for item in kernels]
    for step, kernel, low, high in rows:
        if kernel >= 0:
            writer[written[kernel]] = step if resets[kernel] else -1
        elif (writers := writer[low:high]).max(initial=-1) >= 0:
            for reset in ascending(writers[writers >= 0]).tolist():
                stored.setdefault(reset, []).append(low + np.flatnonzero(writers == reset))
    return {step: ascending(np.concatenate(tiles)) for step, tiles in stored.items()}


def _may_store_resets(program: Elaborated, rows: Iterable[tuple[int, int, int, int]]) -> bool:
    """Return whether a STORE among `rows` (step, kernel, low, high) may read a tile whose last writer is a reset.

    The test may return True although there is no such STORE.
    """
    kernels = program.kernels
    low, high, dense = (part[0] for part in program.kernels.spans)
    spans = list(map(slice, low.tolist(), high.tolist()))
    resets = kernels.resets.tolist()
    # The test assumes that a reset writes its whole range, and that another kernel writes only if its range has no
    # holes.
    certain = (kernels.resets | dense).tolist()
    marks = [bytes([reset]) * (span.stop - span.start) for reset, span in zip(resets, spans, strict=True)]
    by_reset = bytearray(program.config.out.depth)  # slices are short: faster than array operations
    for _, kernel, first, last in rows:
        if kernel >= 0:
            if certain[kernel]:
                by_reset[spans[kernel]] = marks[kernel]
        elif 1 in by_reset[first:last]:
            return True
    return False


@dataclass(frozen=True, eq=False)
class StepBatch:
    """Consecutive short steps: their `numbers` (int64 [n]) in execution order. `stored`: result of `stored_resets`."""

    program: Elaborated
    numbers: Array
    stored: Mapping[int, Array]

    @property
    def microseconds(self) -> int:
        """The estimated time of the batch with array operations."""
        alone = len(self.numbers) == 1
        return ARRAYS_US * (int(self.program.micro_ops[self.numbers[0]]) if alone else len(self.numbers))

    @cached_property
    def actions(self) -> tuple[Action, ...]:
        """The steps as actions, for Machine's array operations."""
        return actions(self.program, self.numbers, self.stored)

    @cached_property
    def table(self) -> Table:
        program = self.program
        moved = self.program.moves
        numbers = self.numbers
        numbers = numbers[(program.kernel[numbers] >= 0) | ~among(moved.memory[numbers], _SILENT)]
        # Kernels get new numbers, because the tables only have the kernels of the batch. -1 is no kernel.
        used, kernel = np.unique(np.append(program.kernel[numbers], -1), return_inverse=True)
        kernel = kernel.reshape(-1)[:-1] - 1
        kinds, kernels, tiles = _kernels(program.kernels, used[1:], program.config)
        kind = np.where(moved.memory[numbers] == Memory.OUT, loop.STORE, loop.LOAD)
        kind = np.where(kernel >= 0, np.append(kinds, 0)[kernel], kind)
        if program.config.rules.reset_writes_out:
            # Only these resets must compute the sum for the out memory.
            kind[np.isin(numbers, list(self.stored))] = loop.RESET_OUT
        column = {name: moved[name][numbers] for name in Move._fields}
        widths = [program.config.sram(item).width for item in Memory]
        widths[Memory.ACC_8BIT] //= 4
        column |= {"kind": kind, "kernel": kernel, "bits": np.array(widths)[column["memory"]]}
        column["to"] = np.array([_TO.get(item, 0) for item in Memory])[column["memory"]]
        column["height"] = column["top"] + column["rows"] + column["bottom"]
        column["width"] = column["left"] + column["columns"] + column["right"]
        steps = tables.Steps(**{name: np.ascontiguousarray(column[name]) for name in tables.Steps._fields})
        return Table(steps, column["address"], moved.dram_end[numbers], kernels, tiles)


class Table(NamedTuple):
    """The tables for `loop.run`; `address` and `end` (int64 [n]) bound the DRAM bytes that each step moves."""

    steps: tables.Steps
    address: Array
    end: Array
    kernels: tables.KernelTable
    tiles: Uops


def plan(
    program: Elaborated, sequence: Array, stored: Mapping[int, Array], samples: int
) -> tuple[Action | StepBatch, ...]:
    """Return the plan of the value pass: actions and batches, in the order of the steps in `sequence`.

    `stored`: the result of `stored_resets`. `samples`: the number of samples that run at once.
    """
    deep = _deep(program)[sequence]
    # A deep instruction is a separate batch. The steps before and after it are planned recursively.
    for at in np.flatnonzero(deep)[:1].tolist():
        parts = (plan(program, part, stored, samples) for part in (sequence[:at], sequence[at + 1 :]))
        return (*next(parts), StepBatch(program, sequence[at : at + 1], stored), *next(parts))
    enough = SHORTEST if loop.in_lanes(program.config) and samples == 1 else ENOUGH
    if len(sequence) < enough or program.config.stages != STAGES:
        return actions(program, sequence, stored)
    # The number of samples decides which steps the compiled loop runs.
    short = _short(program, samples)[sequence]
    # Pairs (first, one past the last) of consecutive steps that the loop may run.
    runs = np.flatnonzero(np.diff(short, prepend=False, append=False)).reshape(-1, 2)
    runs = runs[runs[:, 1] - runs[:, 0] >= SHORTEST]
    if (runs[:, 1] - runs[:, 0]).sum() < enough:
        return actions(program, sequence, stored)
    planned: list[Action | StepBatch] = []
    done = 0
    for start, stop in runs.tolist():
        planned += actions(program, sequence[done:start], stored)
        cuts = [*range(start, stop, LONGEST), stop]
        planned += [StepBatch(program, sequence[a:b], stored) for a, b in pairwise(cuts)]
        done = stop
    return (*planned, *actions(program, sequence[done:], stored))


def _deep(program: Elaborated) -> Array:
    """Return, for each step, whether it is a long ALU instruction, for which array operations are slow: bool [n]."""
    config = program.config
    kernels = program.kernels
    deep = ~kernels.is_gemm & among(kernels.column("code"), UPSTREAM) & (config.stages == STAGES) & ~kernels.stale
    chosen: Array = np.append(deep & (kernels.micro_ops > DEEP * config.acc.depth), False)[program.kernel]
    return chosen


def _short(program: Elaborated, samples: int) -> Array:
    """Return, for each step, whether the loop supports the step and is faster than array operations: bool [n]."""
    config = program.config
    kernels = program.kernels
    memory = program.moves.memory
    values = np.array([config.sram(item).shape[0] * config.sram(item).shape[1] for item in Memory])[memory]
    moved = program.moves.tiles * values * samples * VALUE_NS
    in_lanes = loop.in_lanes(config)
    mac_ns = LANES_NS if in_lanes else MAC_NS
    ns = np.where(kernels.is_gemm, mac_ns * config.macs_per_cycle, VALUE_NS * config.batch * config.block)
    ran = np.append(kernels.micro_ops * samples * ns, 0)[program.kernel]
    # A Python function cannot run in compiled code, an expression can.
    expressed = np.array([*(operation.expression is not None for operation in config.own_alu), False])[
        kernels.own_index
    ]
    supported = (kernels.is_gemm | among(kernels.column("code"), UPSTREAM) | expressed) & ~kernels.stale
    supported = np.append(supported, False)[program.kernel]
    supported |= among(memory, (*_TO, Memory.OUT, *_SILENT)) & (program.kernel < 0)
    if in_lanes:  # the loop multiplies as fast as BLAS
        return supported
    quiet = among(memory, _SILENT)
    return supported & (np.where(program.kernel >= 0, ran, np.where(quiet, 0, moved)) <= 1000 * ARRAYS_US)


def _kernels(kernels: Kernels, used: Array, config: Config) -> tuple[Array, tables.KernelTable, Uops]:
    """Return, for `loop.run`, the step kinds of the kernels `used` (int64 [k]), their table and their tiles."""
    rules = config.rules
    column = {name: kernels.column(name)[used] for name in FIELDS}
    is_gemm = column["is_alu"] == 0
    code = column["code"]
    reset = loop.RESET if rules.reset_writes_out else loop.RESET_KEEP
    kinds = np.where(is_gemm, np.where(code == 1, reset, loop.ADD), np.where(code >= FIRST_OWN, loop.OWN_ALU, loop.ALU))
    if not rules.multiplies:
        code = np.where(code == AluOp.MUL, loop.NONE, code)
    stop = np.cumsum(kernels.listed[used])
    # An inner loop runs over adjacent tiles if its step is 1 for dst, and also for src if src is read.
    first_is_src = column["use_imm"] * rules.immediate_reads_src * (code != loop.NONE)
    one_source = is_gemm | ((column["use_imm"] == 1) & (first_is_src == 0))
    side_by_side = (column["dst_factor_in"] == 1) & ((column["src_factor_in"] == 1) | one_source)
    column |= {
        "start": stop - kernels.listed[used],
        "stop": stop,
        "iter_out": column["iter_out"] * (kernels.micro_ops[used] > 0),  # loops without micro-ops may be very long
        "adjacent": (kernels.listed[used] == 1) & side_by_side,
        "code": code,
        "imm": column["imm"].astype(np.int32 if rules.wide_alu else f"int{config.acc.width}").astype(np.int64),
        "first_is_src": first_is_src,
        "table": (column["imm"] < 0).astype(np.int64),
    }
    lists = np.concatenate([np.zeros((0, 3), np.int64), *(kernels.lists[index] for index in used.tolist())])
    tiles = Uops(*map(np.ascontiguousarray, lists.T))
    return (
        kinds,
        tables.KernelTable(*(np.ascontiguousarray(column[name]) for name in tables.KernelTable._fields)),
        tiles,
    )
