"""The streams of one LOOP_WS: a blocked matrix product C = A * B + D, or a residual addition C = A + B.

Source: LoopMatmul.scala (ucb-bar/gemmini at 8c3f992), which also defines the names of variables: C has `i` x `j`
blocks, and the inner dimension has `k` blocks. The last column of `at` is unused in a load. In a store, `at` is the
block of the last product on which the store depends.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.targets.gemmini.config import ACC_BYTES, INPUT_BYTES, Config
from tilewright.targets.gemmini.isa.fields import Funct
from tilewright.targets.gemmini.isa.work import NORM
from tilewright.targets.gemmini.loops.limits import LAYERNORM, NORMALISED, SOFTMAX
from tilewright.targets.gemmini.loops.words import (
    ACC,
    ACCUMULATE,
    FULL,
    NOTHING,
    OFFSET_MASK,
    CommandStream,
    OnChip,
    garbage,
    grid,
    interleaved,
    operand,
    stream,
)

Registers = Mapping[str, int]
#: The normaliser keeps the statistics of this number of rows at once.
STATISTICS = 2
#: The norm commands for each pass of an activation (NormCmd.scala). The second command is for the last block of a row,
#: and the first command is for all other blocks.
PASSES = {LAYERNORM: ((1, 2), (3, 4), (0, 0)), SOFTMAX: ((5, 5), (6, 7), (0, 0))}
#: The bit of config_norm by which the command sets only the index of the statistics.
ONLY_STATISTICS = 1 << 17


class Blocks(NamedTuple):
    """A blocked matrix in DRAM and on chip."""

    rows: int
    columns: int
    row_pad: int  # missing elements in the last row of blocks, and in the last column of blocks
    column_pad: int
    dram: int
    stride: int
    size: int  # the size of an element in bytes
    wide: int  # the number of blocks that one move covers
    first: int  # the local address of the first block


def streams(registers: Registers, place: OnChip, config: Config) -> list[CommandStream]:
    """Return the five streams of a loop (see words.STREAMS). The registers must be legal (see limits.py)."""
    r = registers
    full = FULL if registers["full_c"] else 0
    size, wide = (ACC_BYTES, 1) if full else (INPUT_BYTES, config.spad_blocks)
    c = Blocks(r["i"], r["j"], r["pad_i"], r["pad_j"], r["c"], r["c_stride"], size, wide, place.c | ACC | full)
    if r["resadd"]:
        left = c._replace(dram=r["a"], stride=r["a_stride"], size=INPUT_BYTES, wide=config.spad_blocks)
        left = left._replace(first=place.a | ACC)
        # The RTL compares the index of B's last row of blocks with itself, so this row is always loaded completely.
        right = left._replace(dram=r["b"], stride=r["b_stride"], row_pad=0, first=place.b_end | ACC | ACCUMULATE)
        loads = _loads(right, Funct.MVIN2, True, config), _loads(left, Funct.MVIN, False, config)
        return [_stores(c, r, config), NOTHING, NOTHING, *loads]
    size, wide = (INPUT_BYTES, config.spad_blocks) if r["low_d"] else (ACC_BYTES, config.acc_blocks)
    d = c._replace(dram=r["d"], stride=r["d_stride"], size=size, wide=wide, first=place.c | ACC)
    loads_d = _loads(d, Funct.MVIN3, False, config)
    return [_stores(c, r, config), _execute(r, place, config), loads_d, *_load_ab(r, place, config)]


def _load_ab(r: Registers, place: OnChip, config: Config) -> tuple[CommandStream, CommandStream]:
    size = INPUT_BYTES, config.spad_blocks
    a = Blocks(r["i"], r["k"], r["pad_i"], r["pad_k"], r["a"], r["a_stride"], *size, place.a)
    b = Blocks(r["k"], r["j"], 0, r["pad_j"], r["b"], r["b_stride"], *size, place.b_end - r["k"] * r["j"] * config.dim)
    if r["transpose_a"]:
        a = a._replace(rows=r["k"], columns=r["i"], row_pad=r["pad_k"], column_pad=r["pad_i"])
    if r["transpose_b"]:
        b = b._replace(rows=r["j"], columns=r["k"], column_pad=r["pad_k"])
    # The loads of A and of B have k as the outer loop. B's last rows are loaded completely: the RTL compares their
    # index with itself.
    loaded_b = _loads(b, Funct.MVIN2, not r["transpose_b"], config)
    return loaded_b, _loads(a, Funct.MVIN, bool(r["transpose_a"]), config)


def _loads(m: Blocks, funct: int, by_rows: bool, config: Config) -> CommandStream:
    """Return loads of blocks, by rows or by columns. A column has the width of one load."""
    if not m.dram:
        return NOTHING
    rows, columns = np.arange(m.rows), np.arange(0, m.columns, min(m.wide, m.columns))
    order = grid(rows, columns) if by_rows else grid(columns, rows)
    row, column = order if by_rows else reversed(order)
    return stream(funct, *_blocks(m, row, column, config), (*order, 0))


def _blocks(m: Blocks, row: Array, column: Array, config: Config) -> tuple[Array, Array]:
    """Return the DRAM addresses and the operand words of moves whose first blocks are at (row, column)."""
    dim = config.dim
    address = m.dram + ((row * m.stride + column) * dim * m.size & OFFSET_MASK)
    blocks = np.minimum(m.wide, m.columns - column)
    columns = blocks * dim - np.where(column + blocks >= m.columns, m.column_pad, 0)
    rows = dim - np.where(row == m.rows - 1, m.row_pad, 0)
    return address, operand(m.first + (row * m.columns + column) * dim, columns, rows)


def _execute(r: Registers, place: OnChip, config: Config) -> CommandStream:
    dim = config.dim
    nowhere = garbage(config)
    k, j, i = grid(np.arange(r["k"]), np.arange(r["j"]), np.arange(r["i"]))
    a = place.a + (k * r["i"] + i if r["transpose_a"] else i * r["k"] + k) * dim
    # In each half of the scratchpad, A begins at the first row and B ends at the last row, so A and B do not overlap.
    b = place.b_end + (-r["k"] * r["j"] + (j * r["k"] + k if r["transpose_b"] else k * r["j"] + j)) * dim
    c = place.c + (i * r["j"] + j) * dim
    rows, columns, depth = (
        dim - np.where(block == r[f"{name}"] - 1, r[f"pad_{name}"], 0) for name, block in (("i", i), ("j", j), ("k", k))
    )
    first = i == 0  # the first row of a column of blocks loads the weights
    # The first product of a sum overwrites the accumulator, unless the loop accumulates.
    added = np.where((k > 0) | bool(r["ex_accumulate"]), ACC | ACCUMULATE, ACC)
    preload = stream(
        Funct.PRELOAD,
        operand(np.where(first, b, nowhere), columns, depth),
        operand(c | added, columns, rows),
        (k, j, i),
    )
    compute = stream(
        np.where(first, Funct.COMPUTE_PRELOADED, Funct.COMPUTE_ACCUMULATED),
        operand(a, depth, rows),
        operand(np.full(len(k), nowhere), dim, dim),
        (k, j, i),
    )
    return interleaved(preload, compute)


def _stores(c: Blocks, r: Registers, config: Config) -> CommandStream:
    if not c.dram:
        return NOTHING
    if r["activation"] in NORMALISED:
        return _normalised_stores(c, r, config)
    column, row = grid(np.arange(0, c.columns, min(c.wide, c.columns)), np.arange(c.rows))
    last = np.minimum(column + c.wide, c.columns)
    return stream(Funct.MVOUT, *_blocks(c, row, column, config), (r["k"] - 1, last, row))


def _normalised_stores(c: Blocks, r: Registers, config: Config) -> CommandStream:
    # All stores wait for the last execute command. Groups of STATISTICS rows have three passes: the first two collect
    # statistics, and the third stores.
    dim = config.dim
    size = c.size
    i, group, step, stat, j = grid(
        np.arange(c.rows),
        np.arange(0, dim, STATISTICS),
        np.arange(len(PASSES[r["activation"]])),
        np.arange(STATISTICS),
        np.arange(-1, c.columns, 1),  # -1 stands for the config command before the stores
    )
    wide = min(c.wide, c.columns)
    row = group + stat
    kept = (row < dim - np.where(i == c.rows - 1, c.row_pad, 0)) & ((j < 0) | (j % wide == 0))
    i, row, step, stat, j = (axis[kept] for axis in (i, row, step, stat, j))
    last = j + wide >= c.columns
    norm = np.array(PASSES[r["activation"]])[step, last.astype(np.int64)]
    blocks = np.minimum(wide, c.columns - j)
    columns = blocks * dim - np.where(last, c.column_pad, 0)
    local = c.first + (i * c.columns + j) * dim + row | norm << NORM
    address = c.dram + (((i * c.stride + j) * dim + row * c.stride) * size & OFFSET_MASK)
    head = j < 0
    return stream(
        np.where(head, Funct.CONFIG, Funct.MVOUT),
        np.where(head, stat << 8 | ONLY_STATISTICS | 3, address),
        np.where(head, 0, operand(local, columns, 1)),
        (-1, 0, 0),
    )
