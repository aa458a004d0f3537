"""What the machine does to its data memories, step by step: decided once, then run on every block of samples."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.targets.vta.isa.fields import UOP_MEMORIES, Memory
from tilewright.targets.vta.isa.semantics import SEMANTICS
from tilewright.targets.vta.steps.elaborate import Elaborated
from tilewright.targets.vta.steps.micro_kernel import AluKernel, GemmKernel
from tilewright.targets.vta.steps.moves import NOTHING, Move
from tilewright.targets.vta.steps.pattern import Span

#: Which of a product's memories a LOAD fills; all others are acc's.
_LOADED = {int(Memory.INP): 1, int(Memory.WGT): 2, int(Memory.PAR): 3}
#: Memory ids of steps that do nothing to data: tokens only, or control state.
_SILENT = frozenset((NOTHING, *map(int, UOP_MEMORIES)))


class Action(NamedTuple):
    """A move or a kernel; `stored`: a reset GEMM whose value in the out memory is stored; `where` for errors."""

    work: Move | GemmKernel | AluKernel
    where: str
    stored: bool = False


def actions(program: Elaborated, sequence: Array, stored: Container[int]) -> tuple[Action, ...]:
    """The actions of `sequence`, `stored` as `stored_resets` finds them.

    Accumulating GEMMs are put off until something touches their tiles: sums commute, and a few large products
    take less time than many small ones.
    """
    kernels, moves = program.kernel[sequence].tolist(), program.moves.of(sequence)
    accumulates = program.kernels.accumulates.tolist()
    found: list[Action] = []
    pending = _Pending()
    for step, index, move in zip(sequence.tolist(), kernels, moves, strict=True):
        if index >= 0 and accumulates[index]:
            pending.add(index, program.kernels[index].spans)
            continue
        if index < 0 and move.memory in _SILENT:
            continue
        if pending.kernels and pending.conflicts(_touched(program, index, move)):
            found.append(Action(program.fused(tuple(pending.kernels)), f"before instruction {step}"))
            pending = _Pending()
        work = program.kernels[index] if index >= 0 else move
        found.append(Action(work, f"instruction {step}", step in stored))
    if pending.kernels:
        found.append(Action(program.fused(tuple(pending.kernels)), "end"))
    return tuple(found)


class _Pending:
    """Accumulating GEMMs put off, and the tiles of acc, inp and wgt that they touch."""

    def __init__(self) -> None:
        self.kernels: list[int] = []
        self._low = [1 << 62] * 4
        self._high = [0] * 4

    def add(self, index: int, spans: Iterable[Span]) -> None:
        self.kernels.append(index)
        for memory, (low, high) in enumerate(spans):
            self._low[memory] = min(self._low[memory], low)
            self._high[memory] = max(self._high[memory], high)

    def conflicts(self, touched: tuple[int, int, int]) -> bool:
        memory, low, high = touched
        return low < self._high[memory] and high > self._low[memory]


def _touched(program: Elaborated, kernel: int, move: Move) -> tuple[int, int, int]:
    """Memory (0 acc, 1 inp, 2 wgt, 3 par), and the tiles between which those that a step changes or stores lie."""
    if kernel >= 0:
        item = program.kernels[kernel]
        return (0, *item.touched) if isinstance(item, AluKernel) else (0, *item.spans[0])
    return _LOADED.get(move.memory, 0), move.base, move.end


def stored_resets(program: Elaborated, sequence: Array) -> dict[int, Array]:
    """Reset GEMMs whose result a STORE reads, and which tiles: only there does the out memory's odd value matter."""
    config, kernels = program.config, program.kernels
    if not kernels.resets.any() or not (config.gemm_writes_out and SEMANTICS[config.semantics].reset_writes_out):
        return {}
    moved, is_store = program.moves, program.moves.memory == Memory.OUT
    steps = sequence[(program.kernel[sequence] >= 0) | is_store[sequence]]
    columns = steps, program.kernel[steps], moved.base[steps], (moved.base + moved.tiles)[steps]
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    if not _may_store_resets(program, rows):
        return {}
    writer = np.full(config.out.depth, -1, np.int64)
    stored: dict[int, list[Array]] = {}
    resets, written = kernels.resets.tolist(), [item.written for item in kernels]
    for step, kernel, low, high in rows:
        if kernel >= 0:
            writer[written[kernel]] = step if resets[kernel] else -1
        elif (writers := writer[low:high]).max(initial=-1) >= 0:
            for reset in np.unique(writers[writers >= 0]).tolist():
                stored.setdefault(reset, []).append(low + np.flatnonzero(writers == reset))
    return {step: np.unique(np.concatenate(tiles)) for step, tiles in stored.items()}


def _may_store_resets(program: Elaborated, rows: Iterable[tuple[int, int, int, int]]) -> bool:
    """Whether any STORE among (step, kernel, low, high) may read what a reset wrote, by the bounds of kernels.

    What a reset may have written it is taken to have; what another has certainly written is its own.
    """
    kernels, (low, high, dense) = program.kernels, (part[0] for part in program.kernels.spans)
    spans = list(map(slice, low.tolist(), high.tolist()))
    resets, certain = kernels.resets.tolist(), dense.tolist()
    by_reset = np.zeros(program.config.out.depth, np.bool_)
    for _, kernel, first, last in rows:
        if kernel >= 0:
            if resets[kernel] or certain[kernel]:
                by_reset[spans[kernel]] = resets[kernel]
        elif by_reset[first:last].any():
            return True
    return False
