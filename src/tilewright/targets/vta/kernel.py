"""GEMM and ALU instructions in whole: their micro-ops expanded over the loops, and the form they are evaluated in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.sim.steps import READ, WRITE, runs
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import AluOp, Memory
from tilewright.targets.vta.semantics import SEMANTICS

#: The order of `sim.steps.Space` in VTA's step tables; BANK: parts of acc that one unit uses at a time.
UOP, INP, WGT, ACC, OUT, DRAM, ALU_UOP, PAR, BANK = range(9)


#: Of REQ: multipliers; shifts and zero points; bounds. See machine.requantise.
FACTOR_TILES = 3


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

    def footprint(self, space: int) -> Array:
        """The micro-ops that are read."""
        length = max(0, self.uop_end - self.uop_bgn)
        return np.array([[space, READ, self.uop_bgn, length, 1, 0]], np.int64)

    def expand(self, listed: Array) -> Array:
        """Tile indices of all micro-ops, int64 [3, micro_ops], of those listed, int64 [m, 3].

        In the order of execution: outer, inner, list. Rows are dst, src, wgt.
        """
        if not self.micro_ops:  # an empty list may stand in loops of any size
            return np.zeros((3, 0), np.int64)
        factors = np.array((self.dst, self.src, self.wgt))[:, :, None]
        outer = np.arange(self.iter_out) * factors[:, 0]
        inner = np.arange(self.iter_in) * factors[:, 1]
        loops = (outer[:, :, None] + inner[:, None, :]).reshape(3, -1, 1)
        return (loops + listed.T[:, None, :]).reshape(3, -1)


#: An operand of micro-ops: a row of `Loop.expand`, the tiles of factors, the parts of acc with the destinations.
DST, SRC, WEIGHT, FACTORS, BANKS = range(5)
#: What becomes of an operand's tile: space, mode, operand.
Access = tuple[int, int, int]


class Product(NamedTuple):
    """acc[dst] += inp[src] . wgt[wgt]: P destinations by G columns, each a sum of R tile products.

    src int64 [P, R], wgt [G, R]; dst holds the P accumulator tiles of each column. src is NO_TILE where a
    destination has no such term (a convolution's border): that input tile is always zero.
    """

    src: Array
    wgt: Array
    dst: tuple[Tiles, ...]


#: Tile numbers, as a slice where they are in a row.
Tiles = Array | slice
NO_TILE = -1


@dataclass(frozen=True, eq=False)
class GemmKernel:
    """One distinct GEMM: tile indices of every micro-op, int64 [n] each."""

    loop: Loop
    reset: bool
    dst: Array
    src: Array
    wgt: Array

    def operands(self) -> Array:
        """Input and weight tiles read."""
        return np.concatenate([runs(INP, READ, self.src), runs(WGT, READ, self.wgt)])

    def accesses(self, config: Config) -> tuple[Access, ...]:
        """What each micro-op touches. A reset clears; what it reads is in a result only if that is stored."""
        acc = ((ACC, WRITE, DST),) if self.reset else ((INP, READ, SRC), (WGT, READ, WEIGHT), (ACC, READ | WRITE, DST))
        writes_out = config.gemm_writes_out and (SEMANTICS[config.semantics].reset_writes_out or not self.reset)
        return (*acc, *(((OUT, WRITE, DST),) if writes_out else ()), *shared(config))

    def footprint(self, config: Config) -> Array:
        """Tiles touched."""
        operands = self.dst, self.src, self.wgt, None, banks(self.dst, config)
        return _touched(self.uops(config), self.loop, self.accesses(config), operands)

    def uops(self, config: Config) -> int:
        """The space of its micro-ops."""
        return UOP

    @cached_property
    def written(self) -> Tiles:
        return in_a_row(distinct(self.dst))

    @cached_property
    def products(self) -> tuple[Product, ...]:
        """The micro-ops as few matrix products, by their index patterns.

        Destinations with the same weight tiles, or some of them, are rows of one product; products that read the
        same input tiles are its columns.
        """
        merged: dict[tuple[int, bytes], list[tuple[Array, Array, Array]]] = {}
        for src, wgt, dst in _families(self.dst, self.src, self.wgt):
            merged.setdefault((wgt.size, src.tobytes()), []).append((src, wgt, dst))
        return tuple(
            Product(parts[0][0], np.stack([part[1] for part in parts]), tuple(in_a_row(part[2]) for part in parts))
            for parts in merged.values()
        )

    @cached_property
    def spans(self) -> tuple[Span, Span, Span]:
        """The tiles of acc, inp and wgt between which all of its own lie."""
        return span(self.dst), span(self.src), span(self.wgt)

    @cached_property
    def last_writes(self) -> tuple[GemmKernel, Array]:
        """The last micro-op of each destination, and the destinations that have more than one."""
        _, from_end, count = np.unique(self.dst[::-1], return_index=True, return_counts=True)
        last = self.dst.size - 1 - from_end
        kernel = GemmKernel(self.loop, self.reset, self.dst[last], self.src[last], self.wgt[last])
        return kernel, self.dst[last][count > 1]

    def would_read(self, tiles: Array) -> Array:
        """Footprint rows of a reset GEMM for what the out memory gets at some of its destinations."""
        last, again = self.last_writes
        mine = np.isin(last.dst, tiles)
        rows = GemmKernel(self.loop, self.reset, last.dst[mine], last.src[mine], last.wgt[mine]).operands()
        return np.concatenate([rows, runs(ACC, READ, np.setdiff1d(last.dst[mine], again))])

    @classmethod
    def fused(cls, kernels: Sequence[GemmKernel]) -> GemmKernel:
        """Accumulating instructions that follow each other as one: their sums commute."""
        parts = [np.concatenate([getattr(kernel, name) for kernel in kernels]) for name in ("dst", "src", "wgt")]
        return cls(kernels[0].loop, False, *parts)


def _touched(uops: int, loop: Loop, accesses: tuple[Access, ...], operands: Sequence[Array | None]) -> Array:
    """Footprint rows of a kernel: the micro-ops that it reads, and each access of the tiles of its operands."""
    rows = [loop.footprint(uops)]
    for space, mode, at in accesses:
        tiles = operands[at]
        assert tiles is not None
        rows.append(runs(space, mode, tiles))
    return np.concatenate(rows)


def shared(config: Config) -> tuple[Access, ...]:
    """The access to parts of acc, where units share it by parts."""
    return ((BANK, WRITE, BANKS),) if config.stages == 4 else ()


def banks(tiles: Array, config: Config) -> Array:
    """The parts of acc that some tiles are in."""
    return tiles // (config.acc.depth // config.acc_banks)


Span = tuple[int, int]


def span(tiles: Array) -> Span:
    """(lowest, highest + 1) of some tile numbers."""
    return (int(tiles.min()), int(tiles.max()) + 1) if tiles.size else (0, 0)


def distinct(tiles: Array) -> Array:
    """The tile numbers that occur, ascending."""
    low, high = span(tiles)
    touched = np.zeros(high - low, np.bool_)
    touched[tiles - low] = True
    found: Array = np.flatnonzero(touched) + low
    return found


def in_a_row(tiles: Array) -> Tiles:
    """The same tiles as a slice, where each follows the one before."""
    first = int(tiles[0]) if tiles.size else 0
    return slice(first, first + tiles.size) if np.array_equal(tiles, np.arange(first, first + tiles.size)) else tiles


def behind(tiles: Tiles, by: int) -> Tiles:
    """The tiles `by` behind."""
    return slice(tiles.start + by, tiles.stop + by) if isinstance(tiles, slice) else tiles + by


def _families(dst: Array, src: Array, wgt: Array) -> list[tuple[Array, Array, Array]]:
    """(src [P, R], wgt [R], dst [P]) of each set of destinations that read the same weight tiles, or most of them."""
    order = np.argsort(dst, kind="stable")
    dst, src, wgt = dst[order], src[order], wgt[order]
    first = np.flatnonzero(np.diff(dst, prepend=-1))
    depth = np.diff(np.append(first, dst.size))
    families: list[_Family] = []
    for terms in sorted(set(depth.tolist()), reverse=True):  # longest lists first: shorter ones join them
        heads = first[depth == terms]
        rows = heads[:, None] + np.arange(terms)
        same: dict[bytes, list[int]] = {}
        for index, weights in enumerate(wgt[rows]):
            same.setdefault(weights.tobytes(), []).append(index)
        for mine in same.values():
            family, place = _join(families, wgt[rows[mine[0]]].tolist())
            inputs = np.full((len(mine), len(family.weights)), NO_TILE, np.int64)
            inputs[:, place] = src[rows[mine]]
            family.src.append(inputs)
            family.dst.append(dst[heads[mine]])
    found = []
    for family in families:
        target = np.concatenate(family.dst)
        ascending = np.argsort(target)
        source = np.ascontiguousarray(np.concatenate(family.src)[ascending])
        found.append((source, np.array(family.weights, np.int64), target[ascending]))
    return found


class _Family(NamedTuple):
    """Destinations that read some of the tiles `weights`; `place` of each there, empty where one occurs twice."""

    weights: list[int]
    place: dict[int, int]
    src: list[Array]
    dst: list[Array]


def _join(families: list[_Family], weights: list[int]) -> tuple[_Family, list[int]]:
    """The family for a list of weight tiles, and the place of each in it; a new one where the list fits none."""
    place = {tile: index for index, tile in enumerate(weights)}
    distinct = len(place) == len(weights)
    for family in families:
        if distinct and 3 * len(weights) >= len(family.weights) and place.keys() <= family.place.keys():
            return family, [family.place[tile] for tile in weights]
    families.append(_Family(weights, place if distinct else {}, [], []))
    return families[-1], list(range(len(weights)))


@dataclass(frozen=True, eq=False)
class AluKernel:
    """One distinct ALU instruction: tile indices of every micro-op, int64 [n] each."""

    loop: Loop
    op: AluOp
    imm: int | None
    dst: Array
    src: Array
    first_is_src: bool = False  # the first operand is acc[src] (immediate form, Semantics.immediate_reads_src)
    negative_field: bool = False  # the immediate field is negative, used or not (Semantics.shift)
    factors: Array | None = None  # REQ: the first of its FACTOR_TILES tiles of par

    @property
    def reads_source(self) -> bool:
        """Whether a result depends on acc[src]."""
        return (self.imm is None or self.first_is_src) and self.factors is None

    def accesses(self, config: Config) -> tuple[Access, ...]:
        """What each micro-op touches."""
        source: tuple[Access, ...] = ((ACC, READ, SRC),) if self.reads_source else ()
        if self.factors is not None:
            source = ((PAR, READ, SRC), (PAR, READ, FACTORS))
        out = ((OUT, WRITE, DST),) if SEMANTICS[config.semantics].out_memory else ()
        return (*source, (ACC, READ | WRITE, DST), *out, *shared(config))

    def footprint(self, config: Config) -> Array:
        """Tiles touched."""
        factors = (
            None if self.factors is None else np.concatenate([self.factors + tile for tile in range(FACTOR_TILES)])
        )
        operands = self.dst, self.src, None, factors, banks(self.dst, config)
        return _touched(self.uops(config), self.loop, self.accesses(config), operands)

    def uops(self, config: Config) -> int:
        """The space of its micro-ops."""
        return ALU_UOP if config.pipeline.uop_memory(alu=True) == Memory.ALU_UOP else UOP

    @cached_property
    def written(self) -> Tiles:
        return in_a_row(distinct(self.dst))

    @cached_property
    def touched(self) -> Span:
        """The accumulator tiles between which all of its own lie."""
        return span(self.dst if self.factors is not None else np.concatenate([self.dst, self.src]))

    @cached_property
    def waves(self) -> tuple[tuple[Tiles, Tiles], ...]:
        """The micro-ops as (dst, src) groups, in order, each free of dependences inside."""
        return tuple((in_a_row(self.dst[mine]), in_a_row(self.src[mine])) for mine in self._groups)

    @cached_property
    def requantised(self) -> tuple[tuple[Tiles, Tiles, Tiles], ...]:
        """The same for REQ: (dst, tiles of par with the bias, with the first of the factors)."""
        assert self.factors is not None
        dst, src, factors = self.dst, self.src, self.factors
        return tuple((in_a_row(dst[mine]), in_a_row(src[mine]), in_a_row(factors[mine])) for mine in self._groups)

    @property
    def _groups(self) -> tuple[Array | slice, ...]:
        reads_own = (self.imm is not None and not self.first_is_src) or np.array_equal(self.dst, self.src)
        reads_own = reads_own or self.factors is not None  # its source is another memory
        once = np.unique(self.dst).size == self.dst.size
        if once and (reads_own or not np.isin(self.src, self.dst).any()):
            return (slice(None),)
        written: dict[int, int] = {}
        read: dict[int, int] = {}
        level = np.empty(self.dst.size, np.int64)
        sources = self.dst if reads_own else self.src
        for index, (dst, src) in enumerate(zip(self.dst.tolist(), sources.tolist(), strict=True)):
            # A wave reads all its operands before it writes: a write may share a wave with an earlier read.
            wave = max(written.get(dst, -1) + 1, written.get(src, -1) + 1, read.get(dst, 0))
            written[dst] = wave
            read[src] = max(read.get(src, -1), wave)
            level[index] = wave
        return tuple(level == wave for wave in range(int(level.max()) + 1))
