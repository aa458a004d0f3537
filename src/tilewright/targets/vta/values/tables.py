"""The tables of the compiled loop (loop.py): steps, kernels, micro-ops, expressions of own operations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.expression import MAX_DEPTH

#: The number of values that a step of an expression computes at once. If a tile has more values, a step computes one
#: tile.
TOGETHER = 256


class Steps(NamedTuple):
    """The columns of a batch's steps, int64 [n] each. LOAD and STORE ignore `kernel`."""

    kind: Array
    kernel: Array
    to: Array
    base: Array
    top: Array
    left: Array
    height: Array
    width: Array
    rows: Array
    columns: Array
    stride: Array
    bits: Array  # bits of a value in DRAM


class KernelTable(NamedTuple):
    """GEMM and ALU kernels, int64 [k] each. A kernel runs micro-ops start..stop-1 of a list (Uops) in two loops.

    Columns have the names of the instruction's fields (micro_kernel.FIELDS). `adjacent`: whether the tiles of the inner
    loop are consecutive. The columns from `code` on are for the ALU only.
    """

    start: Array
    stop: Array
    iter_out: Array
    iter_in: Array
    dst_factor_out: Array
    dst_factor_in: Array
    src_factor_out: Array
    src_factor_in: Array
    wgt_factor_out: Array
    wgt_factor_in: Array
    adjacent: Array
    code: Array
    use_imm: Array
    imm: Array
    first_is_src: Array
    table: Array  # the row of `shifts` that SHR uses


class Expressions(NamedTuple):
    """The expressions of user-defined operations (isa/expression.py). Operation k has the steps start[k]..stop[k]-1."""

    start: Array
    stop: Array
    do: Array
    value: Array
    stack: Array  # int64 [MAX_DEPTH, n]: working memory for n values, a whole number of tiles

    @classmethod
    def of(cls, config: Config) -> Expressions:
        """Return the expressions of a machine. An operation that is a function has no steps."""
        programs = [operation.expression.steps if operation.expression else () for operation in config.own_alu]
        stop = np.cumsum([len(steps) for steps in programs], dtype=np.int64)
        steps = np.array([step for steps in programs for step in steps], np.int64).reshape(-1, 2)
        tile = config.batch * config.block
        # Several short tiles are computed at once, so that the loops of a step are long enough for vector instructions.
        stack = np.zeros((MAX_DEPTH, tile * max(1, TOGETHER // tile) if programs else 1), np.int64)
        start = stop - np.array([len(steps) for steps in programs], np.int64)
        return cls(start, stop, np.ascontiguousarray(steps[:, 0]), np.ascontiguousarray(steps[:, 1]), stack)
