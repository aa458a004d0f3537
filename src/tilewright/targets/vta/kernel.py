"""GEMM and ALU instructions in whole: their micro-ops expanded over the loops, and the form they are evaluated in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.sim.steps import READ, WRITE, runs
from tilewright.targets.vta.isa.fields import AluOp

#: The order of `sim.steps.Space` in VTA's step tables.
UOP, INP, WGT, ACC, OUT, DRAM = range(6)


class Loop(NamedTuple):
    """The loop fields of a GEMM or ALU; index = micro-op field + outer * factor[0] + inner * factor[1]."""

    uop_bgn: int
    uop_end: int
    iter_out: int
    iter_in: int
    dst: tuple[int, int]
    src: tuple[int, int]
    wgt: tuple[int, int] = (0, 0)

    @property
    def micro_ops(self) -> int:
        return max(0, self.uop_end - self.uop_bgn) * self.iter_out * self.iter_in

    def expand(self, field: Array, factor: tuple[int, int]) -> Array:
        """int64 [micro_ops], in the order of execution: outer, inner, micro-op."""
        outer = np.arange(self.iter_out)[:, None, None] * factor[0]
        inner = np.arange(self.iter_in)[None, :, None] * factor[1]
        return (outer + inner + field[None, None, :]).reshape(-1)


class Product(NamedTuple):
    """acc[dst] += inp[src] . wgt[wgt]: P destinations by G columns, each a sum of R tile products.

    src int64 [P, R], wgt [G, R]; dst holds the P accumulator tiles of each column, a slice where they are in a row.
    """

    src: Array
    wgt: Array
    dst: tuple[Array | slice, ...]


@dataclass(frozen=True, eq=False)
class GemmKernel:
    """One distinct GEMM: tile indices of every micro-op, int64 [n] each."""

    loop: Loop
    reset: bool
    dst: Array
    src: Array
    wgt: Array

    def footprint(self) -> Array:
        """Tiles touched. A reset only clears: what it would have read takes no part in any result."""
        uops = runs(UOP, READ, np.arange(self.loop.uop_bgn, self.loop.uop_end))
        out = runs(OUT, WRITE, self.dst)
        if self.reset:
            return np.concatenate([uops, runs(ACC, WRITE, self.dst), out])
        operands = [runs(INP, READ, self.src), runs(WGT, READ, self.wgt), runs(ACC, READ | WRITE, self.dst)]
        return np.concatenate([uops, *operands, out])

    @cached_property
    def written(self) -> Array:
        return np.unique(self.dst)

    @cached_property
    def products(self) -> tuple[Product, ...]:
        """The micro-ops as few matrix products, by their index patterns.

        Destinations with the same list of weight tiles are rows of one product; products with the same rows of
        input tiles are its columns.
        """
        order = np.argsort(self.dst, kind="stable")
        dst, src, wgt = self.dst[order], self.src[order], self.wgt[order]
        first = np.flatnonzero(np.diff(dst, prepend=-1))
        depth = np.diff(np.append(first, dst.size))
        merged: dict[tuple[int, bytes], list[tuple[Array, Array, Array]]] = {}
        for terms in np.unique(depth):
            heads = first[depth == terms]
            rows = heads[:, None] + np.arange(terms)
            lists, group = np.unique(wgt[rows], axis=0, return_inverse=True)
            for index, weights in enumerate(lists):
                mine = group.reshape(-1) == index
                inputs = np.ascontiguousarray(src[rows[mine]])
                merged.setdefault((int(terms), inputs.tobytes()), []).append((inputs, weights, dst[heads[mine]]))
        return tuple(
            Product(parts[0][0], np.stack([part[1] for part in parts]), tuple(_in_a_row(part[2]) for part in parts))
            for parts in merged.values()
        )

    @classmethod
    def fused(cls, kernels: Sequence[GemmKernel]) -> GemmKernel:
        """Accumulating instructions that follow each other as one: their sums commute."""
        parts = [np.concatenate([getattr(kernel, name) for kernel in kernels]) for name in ("dst", "src", "wgt")]
        return cls(kernels[0].loop, False, *parts)


def _in_a_row(tiles: Array) -> Array | slice:
    first = int(tiles[0])
    return slice(first, first + tiles.size) if np.array_equal(tiles, np.arange(first, first + tiles.size)) else tiles


@dataclass(frozen=True, eq=False)
class AluKernel:
    """One distinct ALU instruction: tile indices of every micro-op, int64 [n] each."""

    loop: Loop
    op: AluOp
    imm: int | None
    dst: Array
    src: Array

    def footprint(self) -> Array:
        uops = runs(UOP, READ, np.arange(self.loop.uop_bgn, self.loop.uop_end))
        source = [] if self.imm is not None else [runs(ACC, READ, np.setdiff1d(self.src, self.dst))]
        return np.concatenate([uops, *source, runs(ACC, READ | WRITE, self.dst), runs(OUT, WRITE, self.dst)])

    @cached_property
    def written(self) -> Array:
        return np.unique(self.dst)

    @cached_property
    def waves(self) -> tuple[tuple[Array, Array], ...]:
        """The micro-ops as (dst, src) groups, in order, each free of dependences inside."""
        reads_own = self.imm is not None or np.array_equal(self.dst, self.src)
        if self.written.size == self.dst.size and (reads_own or not np.isin(self.src, self.written).any()):
            return ((self.dst, self.src),)
        written: dict[int, int] = {}
        read: dict[int, int] = {}
        level = np.empty(self.dst.size, np.int64)
        sources = self.dst if self.imm is not None else self.src
        for index, (dst, src) in enumerate(zip(self.dst.tolist(), sources.tolist(), strict=True)):
            # A wave reads all its operands before it writes: a write may share a wave with an earlier read.
            wave = max(written.get(dst, -1) + 1, written.get(src, -1) + 1, read.get(dst, 0))
            written[dst] = wave
            read[src] = max(read.get(src, -1), wave)
            level[index] = wave
        return tuple((self.dst[level == wave], self.src[level == wave]) for wave in range(int(level.max()) + 1))
