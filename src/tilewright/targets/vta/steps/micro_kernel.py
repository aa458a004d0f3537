"""GEMM and ALU instructions in whole: their micro-ops expanded over the loops, and what they touch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.sim.steps import READ, WRITE, runs
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import AluOp, Memory
from tilewright.targets.vta.isa.semantics import SEMANTICS
from tilewright.targets.vta.steps.pattern import Origin, Pattern, Product, Span, Tiles, behind, in_a_row

#: The order of `sim.steps.Space` in VTA's step tables; BANK: parts of acc that one unit uses at a time.
UOP, INP, WGT, ACC, OUT, DRAM, ALU_UOP, PAR, BANK = range(9)


#: Of REQ: multipliers; shifts and zero points; bounds. See alu.requantise.
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


class _Placed:
    """A pattern of micro-ops and where it lies: the tiles by which its dst, src and wgt are moved."""

    pattern: Pattern
    origin: Origin

    @cached_property
    def dst(self) -> Array:
        """The accumulator tile of every micro-op, int64 [n]."""
        return self.pattern.dst + self.origin[0]

    @cached_property
    def src(self) -> Array:
        return self.pattern.src + self.origin[1]

    @cached_property
    def wgt(self) -> Array:
        return self.pattern.wgt + self.origin[2]

    @property
    def size(self) -> int:
        """Micro-ops."""
        return self.pattern.dst.size

    @cached_property
    def written(self) -> Tiles:
        return behind(self.pattern.written, self.origin[0])

    @cached_property
    def spans(self) -> tuple[Span, Span, Span]:
        """The tiles between which all of its dst, src and wgt lie."""
        (a, b), (c, d), (e, f) = self.pattern.spans
        dst, src, wgt = self.origin
        return (a + dst, b + dst), (c + src, d + src), (e + wgt, f + wgt)


@dataclass(frozen=True, eq=False)
class GemmKernel(_Placed):
    """One distinct GEMM."""

    loop: Loop
    reset: bool
    pattern: Pattern
    origin: Origin = (0, 0, 0)

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
    def products(self) -> tuple[Product, ...]:
        """The micro-ops as few matrix products."""
        return tuple(product.at(self.origin) for product in self.pattern.products)

    @cached_property
    def last_writes(self) -> tuple[GemmKernel, Array]:
        """The last micro-op of each destination, and the destinations that have more than one."""
        last, again = self.pattern.last
        return replace(self, pattern=last), again + self.origin[0]

    def would_read(self, tiles: Array) -> Array:
        """Footprint rows of a reset GEMM for what the out memory gets at some of its destinations."""
        last, again = self.last_writes
        mine = np.isin(last.dst, tiles)
        rows = replace(last, pattern=last.pattern.chosen(mine)).operands()
        return np.concatenate([rows, runs(ACC, READ, np.setdiff1d(last.dst[mine], again))])


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


@dataclass(frozen=True, eq=False)
class AluKernel(_Placed):
    """One distinct ALU instruction; the pattern's wgt means nothing."""

    loop: Loop
    op: AluOp
    imm: int | None
    pattern: Pattern
    origin: Origin = (0, 0, 0)
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
    def touched(self) -> Span:
        """The accumulator tiles between which all of its own lie."""
        (low, high), (first, last), _ = self.spans
        return (low, high) if self.factors is not None else (min(low, first), max(high, last))

    @cached_property
    def waves(self) -> tuple[tuple[Tiles, Tiles], ...]:
        """The micro-ops as (dst, src) groups, in order, each free of dependences inside."""
        reads_own = self.imm is not None and not self.first_is_src
        dst, src, _ = self.origin
        return tuple((behind(a, dst), behind(b, src)) for a, b in self.pattern.waves(reads_own, src - dst))

    @cached_property
    def requantised(self) -> tuple[tuple[Tiles, Tiles, Tiles], ...]:
        """The same for REQ: (dst, tiles of par with the bias, with the first of the factors)."""
        assert self.factors is not None
        groups = self.pattern.groups(True, 0)  # its source is another memory
        return tuple((in_a_row(self.dst[g]), in_a_row(self.src[g]), in_a_row(self.factors[g])) for g in groups)
