"""A lower bound for any schedule of a program's instructions: the work of each unit and of the DRAM port."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.targets.vta.isa.fields import INSN_BYTES, Opcode
from tilewright.targets.vta.steps.elaborate import Elaborated
from tilewright.targets.vta.timing import MODELS
from tilewright.targets.vta.timing.model import compute, stores


class Limits(NamedTuple):
    """Least cycles of one layer on each resource: GEMM, ALU, and the DRAM port's read and write bus."""

    gemm: int
    alu: int
    read: int
    write: int
    shared: bool  # one unit runs GEMM and ALU

    @property
    def compute(self) -> int:
        """The cycles of GEMM plus ALU if one unit runs both, else the larger of the two."""
        return self.gemm + self.alu if self.shared else max(self.gemm, self.alu)

    @property
    def dram(self) -> int:
        return max(self.read, self.write)

    @property
    def bound(self) -> int:
        return max(self.compute, self.dram)


def summed(parts: Collection[Limits]) -> Limits:
    """Return the sum of the limits of some layers."""
    gemm, alu, read, write = (sum(column) for column in zip(*(part[:4] for part in parts), strict=True))
    return Limits(gemm, alu, read, write, all(part.shared for part in parts))


def of_layers(program: Elaborated, layer: Array | None, count: int, timing: str) -> list[Limits]:
    """Return the limits of the `count` layers of a launch in a timing model; if `count` is 0, of the whole launch.

    `layer` int64 [n] is the layer of each instruction (None: there is one layer).
    """
    mine = np.zeros(len(program.stream), np.int64) if layer is None else layer
    columns = [np.bincount(mine, column, max(1, count)).astype(int).tolist() for column in _columns(program, timing)]
    shared = program.config.pipeline.gemm == program.config.pipeline.alu
    return [Limits(gemm, alu, read, write, shared) for gemm, alu, read, write in zip(*columns, strict=True)]


def _columns(program: Elaborated, timing: str) -> tuple[Array, Array, Array, Array]:
    """Return four arrays: the cycles that each instruction occupies GEMM, ALU, read bus (with its fetch), write bus.

    In a model without a shared DRAM port (ideal), only the reads of `load` count for the read bus.
    """
    model, moved, opcode = MODELS[timing], program.moves, program.stream.opcode
    busy = compute(program, model) - np.where(program.kernel >= 0, model.pipeline, 0)
    beat = program.config.bus_bits // 8
    beats = np.where(moved.transfers, moved.rows * -(-moved.row_bytes // beat), 0)
    write = np.where(stores(program), beats, 0)
    read = beats - write + INSN_BYTES / beat
    if model.channel(program.config).burst == 0:
        read = np.where(program.table.unit == program.config.pipeline.load, beats, 0)
    return np.where(opcode == Opcode.GEMM, busy, 0), np.where(opcode == Opcode.ALU, busy, 0), read, write
