"""The distinct GEMM and ALU instructions of a stream: their micro-ops expanded over the loops, and what they touch.

`Kernels` has columns for all of them; each is expanded when it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.sim.steps import READ, WRITE, runs
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.alu import AluOp, Semantics
from tilewright.targets.vta.steps.pattern import Origin, Pattern, Product, Tiles, behind, in_a_row

#: The order of `sim.steps.Space` in VTA's step tables; BANK: parts of acc that one unit uses at a time.
UOP, INP, WGT, ACC, OUT, DRAM, ALU_UOP, PAR, BANK = range(9)
#: The space of each memory id.
SPACE_OF = (UOP, WGT, INP, ACC, OUT, ACC, ALU_UOP, PAR)

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

    is_alu: ClassVar[bool]
    loop: Loop
    pattern: Pattern
    origin: Origin
    factors: Array | None = None  # REQ: the first of its FACTOR_TILES tiles of par

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

    def uops(self, config: Config) -> int:
        """The space of its micro-ops."""
        return SPACE_OF[config.pipeline.uop_memory(self.is_alu)]

    def accesses(self, config: Config) -> tuple[Access, ...]:
        """What each micro-op touches."""
        raise NotImplementedError

    def footprint(self, config: Config) -> Array:
        """Footprint rows: the micro-ops that are read, and each access of the tiles of the operands."""
        factors = self.src[:0] if self.factors is None else np.add.outer(range(FACTOR_TILES), self.factors).reshape(-1)
        operands = self.dst, self.src, self.wgt, factors, banks(self.dst, config)
        begin, length = self.loop.uop_bgn, max(0, self.loop.uop_end - self.loop.uop_bgn)
        listed = np.array([[self.uops(config), READ, begin, length, 1, 0]], np.int64)
        return np.concatenate([listed, *(runs(space, mode, operands[at]) for space, mode, at in self.accesses(config))])


@dataclass(frozen=True, eq=False)
class GemmKernel(_Placed):
    """One distinct GEMM."""

    is_alu = False
    loop: Loop
    reset: bool
    pattern: Pattern
    origin: Origin = (0, 0, 0)

    def operands(self) -> Array:
        """Input and weight tiles read."""
        return np.concatenate([runs(INP, READ, self.src), runs(WGT, READ, self.wgt)])

    def accesses(self, config: Config) -> tuple[Access, ...]:
        """A reset clears; what it reads is in a result only if that is stored."""
        acc = ((ACC, WRITE, DST),) if self.reset else ((INP, READ, SRC), (WGT, READ, WEIGHT), (ACC, READ | WRITE, DST))
        writes_out = config.gemm_writes_out and (config.rules.reset_writes_out or not self.reset)
        return (*acc, *(((OUT, WRITE, DST),) if writes_out else ()), *shared(config))

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


def shared(config: Config) -> tuple[Access, ...]:
    """The access to parts of acc, where units share it by parts."""
    return ((BANK, WRITE, BANKS),) if config.stages == 4 else ()


def banks(tiles: Array, config: Config) -> Array:
    """The parts of acc that some tiles are in."""
    return tiles // (config.acc.depth // config.acc_banks)


@dataclass(frozen=True, eq=False)
class AluKernel(_Placed):
    """One distinct ALU instruction; the pattern's wgt means nothing."""

    is_alu = True
    loop: Loop
    op: AluOp
    imm: int | None
    pattern: Pattern
    origin: Origin = (0, 0, 0)
    first_is_src: bool = False  # the first operand is acc[src] (immediate form, Semantics.immediate_reads_src)
    negative_field: bool = False  # the immediate field is negative, used or not (Semantics.shift)
    factors: Array | None = None

    @property
    def reads_source(self) -> bool:
        """Whether a result depends on acc[src]."""
        return (self.imm is None or self.first_is_src) and self.factors is None

    def accesses(self, config: Config) -> tuple[Access, ...]:
        source: tuple[Access, ...] = ((ACC, READ, SRC),) if self.reads_source else ()
        if self.factors is not None:
            source = ((PAR, READ, SRC), (PAR, READ, FACTORS))
        out = ((OUT, WRITE, DST),) if config.rules.out_memory else ()
        return (*source, (ACC, READ | WRITE, DST), *out, *shared(config))

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


Kernel = GemmKernel | AluKernel
#: What an instruction says of its loops: fields of both formats, 0 where it has none.
LOOP_FIELDS: tuple[str, ...] = ("uop_bgn", "uop_end", "iter_out", "iter_in")
LOOP_FIELDS += tuple(f"{name}_factor_{loop}" for name in ("dst", "src", "wgt") for loop in ("out", "in"))
#: And of its kernel. `code`: reset of a GEMM, operation of an ALU; `imm` 0 where it is not used.
FIELDS = ("is_alu", *LOOP_FIELDS, "code", "use_imm", "imm", "negative_imm")
#: Of these, iterations and factors.
LOOPS = slice(3, 11)
#: Micro-ops of one instruction, loops included; a program beyond it is refused before it fills the memory.
MAX_MICRO_OPS = 1 << 22
#: A set of tiles is one number while sets are sorted: its widest gap above so many bits of its extent.
WIDE = 40
#: Fields of timing.Intervals.
GEMM, ALU, ALU_IMMEDIATE, REQUANTISE = range(4)


class Kernels:
    """`fields` int64 [k, FIELDS]; `lists` the micro-ops that each lists, int64 [m, 3]: dst, src, wgt.

    A kernel is expanded when it is asked for: times and most checks need none.
    """

    def __init__(self, fields: Array, lists: Sequence[Array], rules: Semantics) -> None:
        self.fields, self.lists, self._rules = fields, lists, rules
        self._made: list[Kernel | None] = [None] * len(lists)
        self._patterns: dict[tuple[bytes, ...], Pattern] = {}  # by micro-ops from tile 0, and loops

    def __len__(self) -> int:
        return len(self._made)

    def __iter__(self) -> Iterator[Kernel]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, index: int) -> Kernel:
        return self._made[index] or self._make(index)

    def column(self, name: str) -> Array:
        """One of FIELDS, int64 [k]."""
        column: Array = self.fields[:, FIELDS.index(name)]
        return column

    @cached_property
    def micro_ops(self) -> Array:
        """How many each executes, int64 [k]."""
        listed = np.maximum(self.column("uop_end") - self.column("uop_bgn"), 0)
        micro_ops: Array = listed * self.column("iter_out") * self.column("iter_in")
        return micro_ops

    @cached_property
    def listed(self) -> Array:
        """How many micro-ops each lists, int64 [k]."""
        return np.array([len(part) for part in self.lists], np.int64)

    @cached_property
    def is_gemm(self) -> Array:
        """bool [k]."""
        return self.column("is_alu") == 0

    @cached_property
    def resets(self) -> Array:
        """Which are GEMMs that clear: bool [k]."""
        return self.is_gemm & (self.column("code") == 1)

    @cached_property
    def accumulates(self) -> Array:
        """Which are GEMMs that add to the accumulator: bool [k]."""
        return self.is_gemm & ~self.resets

    @cached_property
    def form(self) -> Array:
        """GEMM to REQUANTISE, int64 [k]."""
        alu = np.where(self.column("code") == AluOp.REQ, REQUANTISE, ALU + self.column("use_imm"))
        return np.where(self.is_gemm, GEMM, alu)

    @cached_property
    def kinds(self) -> tuple[Array, Array]:
        """What touches its tiles in the same way: an example of each kind, and the kind of each kernel [k]."""
        _, example, kind = np.unique(2 * self.form + self.resets, return_index=True, return_inverse=True)
        return example, kind

    @cached_property
    def spans(self) -> tuple[Array, Array, Array]:
        """Lowest tile, highest + 1, and whether all between are certainly touched: [3, k] for dst, src, wgt.

        The tiles are sums of one number each from three sets: listed indices, outer and inner steps. Taken by their
        widest gap, each set must leave no gap wider than what the ones before it fill without any.
        """
        low, high, dense = (np.zeros((3, len(self)), kind) for kind in (np.int64, np.int64, np.bool_))
        live = np.flatnonzero(self.micro_ops)
        if not live.size:
            return low, high, dense
        sizes = self.listed[live]
        first = np.cumsum(sizes) - sizes
        listed = np.ascontiguousarray(np.concatenate([self.lists[index] for index in live.tolist()]).T)
        lowest, highest = np.minimum.reduceat(listed, first, axis=1), np.maximum.reduceat(listed, first, axis=1)
        apart = np.repeat(np.arange(len(live)) * (1 + int(highest.max())), sizes)
        jump = np.zeros_like(listed)
        ascending = np.sort(listed + apart)
        np.subtract(ascending[:, 1:], ascending[:, :-1], out=jump[:, 1:])
        jump[:, first] = 0
        loops = self.fields[live, LOOPS].T
        step = loops[2:].reshape(3, 2, -1)
        reach = (loops[:2] - 1) * step
        sets = np.empty((3, 3, len(live)), np.int64)
        sets[0] = np.maximum.reduceat(jump, first, axis=1) << WIDE | highest - lowest
        sets[1:] = (step * (reach > 0) << WIDE | reach).swapaxes(0, 1)
        sets.sort(axis=0)
        gaps, extents = sets >> WIDE, sets & (1 << WIDE) - 1
        filled = 1 + np.cumsum(extents, axis=0) - extents
        low[:, live], high[:, live] = lowest, highest + reach.sum(axis=1) + 1
        dense[:, live] = (gaps <= filled).all(axis=0)
        return low, high, dense

    def require(self, kernel: Array) -> None:
        """Raises MachineError for absurd loop counts; `kernel` is that of each instruction, or -1."""
        for index in np.flatnonzero(self.micro_ops > MAX_MICRO_OPS)[:1].tolist():
            reason = f"runs {self.micro_ops[index]} micro-ops; at most {MAX_MICRO_OPS} are simulated"
            raise MachineError(f"instruction {np.argmax(kernel == index)}", reason)

    def _make(self, index: int) -> Kernel:
        fields, listed = self.fields[index], self.lists[index]
        is_alu, bgn, end, iter_out, iter_in, *factors, code, use_imm, imm, negative = fields.tolist()
        dst_factors, src_factors, wgt_factors = zip(factors[::2], factors[1::2], strict=True)
        loop = Loop(bgn, end, iter_out, iter_in, dst_factors, src_factors, wgt_factors)
        lowest = np.minimum.reduce(listed) if len(listed) else np.zeros(3, np.int64)
        moved = listed - lowest
        same = moved.tobytes(), fields[LOOPS].tobytes()
        pattern = self._patterns.get(same)
        if pattern is None:
            pattern = self._patterns[same] = Pattern(*loop.expand(moved))
        dst, src, wgt = lowest.tolist()
        kernel: Kernel
        if not is_alu:
            kernel = GemmKernel(loop, bool(code), pattern, (dst, src, wgt))
        elif code == AluOp.REQ:  # the immediate is a loop factor: one set of factors serves an outer iteration
            first = listed[:1, 2].repeat(pattern.dst.size)
            first += imm * np.arange(iter_out).repeat(len(listed) * iter_in)[: len(first)]
            kernel = AluKernel(loop, AluOp.REQ, None, pattern, (dst, src, wgt), factors=first)
        else:
            first_is_src = bool(use_imm) and self._rules.immediate_reads_src
            operand = imm if use_imm else None
            kernel = AluKernel(loop, AluOp(code), operand, pattern, (dst, src, wgt), first_is_src, bool(negative))
        self._made[index] = kernel
        return kernel
