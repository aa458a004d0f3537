"""One instruction of the compute units, relative to the slots that it works on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import numpy as np

from tilewright.targets.vta.compiler.tile_kernels import ONE, Dim, Kernel
from tilewright.targets.vta.isa.alu import AluOp


class Step(NamedTuple):
    """A GEMM (`op` None) or ALU instruction; `reset` GEMMs clear. `imm` None: two operands from acc.

    `parameters`: the second operand is one; `factor`: of REQ, tiles from one outer iteration's factors to the next.
    """

    kernel: Kernel
    op: AluOp | None = None
    imm: int | None = None
    reset: bool = False
    parameters: bool = False
    factor: int = 0


@dataclass(frozen=True, eq=False)
class Run:
    """Steps of one unit with the same operands, one behind the other; one object wherever they recur."""

    steps: tuple[Step, ...]


@lru_cache(maxsize=4096)
def runs(steps: tuple[Step, ...], apart: bool = False) -> tuple[Run, ...]:
    """Steps as runs of equal operands, or each `apart`."""
    if apart:
        return tuple(Run((step,)) for step in steps)
    return tuple(Run(tuple(run)) for _, run in groupby(steps, lambda step: (step.op is None, step.parameters)))


@lru_cache(maxsize=1024)
def over(tiles: int, first: int = 0) -> Kernel:
    """Each of `tiles` tiles from the slot's tile `first`, in place."""
    start = np.full(1, first, np.int64)
    return Kernel(start, start, np.zeros(1, np.int64), ONE, Dim(tiles, 1, 1, 0, False))
