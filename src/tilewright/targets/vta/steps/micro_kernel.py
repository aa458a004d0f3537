"""Kernels: the distinct GEMM and ALU instructions of a stream, with their micro-ops expanded over the loops.

`Kernels` holds their fields as columns, and expands a kernel only when it is indexed.
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
from tilewright.targets.vta.isa.own import OWN
from tilewright.targets.vta.steps.pattern import Origin, Pattern, Product, Tiles, in_a_row, shifted

#: Indices into the spaces of VTA's step tables. BANK: the banks of acc, each used by one unit at a time.
UOP, INP, WGT, ACC, OUT, DRAM, ALU_UOP, PAR, BANK = range(9)
#: The space of each memory id.
SPACE_OF = (UOP, WGT, INP, ACC, OUT, ACC, ALU_UOP, PAR)

#: Tiles of par that hold the factors of REQ: multipliers; shifts and zero points; bounds. See alu.requantise.
FACTOR_TILES = 3


class Loops(NamedTuple):
    """The loop fields of a GEMM or ALU instruction. `dst`, `src`, `wgt`: tiles added per outer, inner iteration."""

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
        """Return the tile indices of all micro-ops that the loops execute, int64 [3, micro_ops]: rows dst, src, wgt.

        `listed` has the micro-ops without loops, int64 [m, 3]. Columns are in execution order: outer loop, inner, list.
        """
        if not self.micro_ops:  # without micro-ops, the loop counts may be too large to expand
            return np.zeros((3, 0), np.int64)
        factors = np.array((self.dst, self.src, self.wgt))[:, :, None]
        outer = np.arange(self.iter_out) * factors[:, 0]
        inner = np.arange(self.iter_in) * factors[:, 1]
        loops = (outer[:, :, None] + inner[:, None, :]).reshape(3, -1, 1)
        return (loops + listed.T[:, None, :]).reshape(3, -1)


#: Operands of micro-ops: the rows of `Loops.expand`, the tiles of REQ's factors, and the acc banks of the destinations.
DST, SRC, WEIGHT, FACTORS, BANKS = range(5)
#: One access of a micro-op: space, mode (READ, WRITE), operand.
Access = tuple[int, int, int]


class _Placed:
    """A kernel: a pattern of micro-ops, and its `origin`, the numbers to add to the pattern's dst, src and wgt."""

    is_alu: ClassVar[bool]
    loop: Loops
    pattern: Pattern
    origin: Origin
    factors: Array | None = None  # REQ: for each micro-op, the first of its FACTOR_TILES tiles of par

    @cached_property
    def dst(self) -> Array:
        """The accumulator tile that each micro-op writes, int64 [n]."""
        return self.pattern.dst + self.origin[0]

    @cached_property
    def src(self) -> Array:
        return self.pattern.src + self.origin[1]

    @cached_property
    def wgt(self) -> Array:
        return self.pattern.wgt + self.origin[2]

    @property
    def size(self) -> int:
        """The number of executed micro-ops."""
        return self.pattern.dst.size

    @cached_property
    def written(self) -> Tiles:
        return shifted(self.pattern.written, self.origin[0])

    def uops(self, config: Config) -> int:
        """Return the number, among the spaces of step tables, of the memory that holds the micro-ops."""
        return SPACE_OF[config.pipeline.uop_memory(self.is_alu)]

    def accesses(self, config: Config) -> tuple[Access, ...]:
        """Return what each micro-op accesses: a tuple (space, READ or WRITE, operand) for each access."""
        raise NotImplementedError

    def footprint(self, config: Config) -> Array:
        """Return the kernel's footprint rows (sim.steps.Footprints): the micro-ops that it reads, then the tiles."""
        factors = self.src[:0] if self.factors is None else np.add.outer(range(FACTOR_TILES), self.factors).reshape(-1)
        operands = self.dst, self.src, self.wgt, factors, banks(self.dst, config)
        begin, length = self.loop.uop_bgn, max(0, self.loop.uop_end - self.loop.uop_bgn)
        listed = np.array([[self.uops(config), READ, begin, length, 1, 0]], np.int64)
        return np.concatenate([listed, *(runs(space, mode, operands[at]) for space, mode, at in self.accesses(config))])


@dataclass(frozen=True, eq=False)
class GemmKernel(_Placed):
    """One distinct GEMM instruction. With `reset`, it clears its acc tiles instead of adding to them."""

    is_alu = False
    loop: Loops
    reset: bool
    pattern: Pattern
    origin: Origin = (0, 0, 0)

    def operands(self) -> Array:
        """Return footprint rows (sim.steps.Footprints): the inp and wgt tiles that the micro-ops read."""
        return np.concatenate([runs(INP, READ, self.src), runs(WGT, READ, self.wgt)])

    def accesses(self, config: Config) -> tuple[Access, ...]:
        """Return what each micro-op accesses. A reset GEMM only writes; `would_read` returns its operands."""
        acc = ((ACC, WRITE, DST),) if self.reset else ((INP, READ, SRC), (WGT, READ, WEIGHT), (ACC, READ | WRITE, DST))
        writes_out = config.gemm_writes_out and (config.rules.reset_writes_out or not self.reset)
        return (*acc, *(((OUT, WRITE, DST),) if writes_out else ()), *shared(config))

    @cached_property
    def products(self) -> tuple[Product, ...]:
        """The micro-ops grouped into a few matrix products."""
        return tuple(product.at(self.origin) for product in self.pattern.products)

    @cached_property
    def last_writes(self) -> tuple[GemmKernel, Array]:
        """Two values: a kernel of only the last micro-op on each acc tile; the acc tiles with several micro-ops."""
        last, again = self.pattern.last
        return replace(self, pattern=last), again + self.origin[0]

    def would_read(self, tiles: Array) -> Array:
        """Return footprint rows: the tiles that a reset GEMM reads for the sums that it writes to the out memory.

        Under Semantics.reset_writes_out, a reset clears acc, but writes the sum that it would have accumulated to the
        out memory. The rows are the operands of these sums, for the out tiles `tiles`: inp, wgt and the old acc.
        """
        last, again = self.last_writes
        mine = np.isin(last.dst, tiles)
        rows = replace(last, pattern=last.pattern.chosen(mine)).operands()
        return np.concatenate([rows, runs(ACC, READ, np.setdiff1d(last.dst[mine], again))])


def shared(config: Config) -> tuple[Access, ...]:
    """Return each micro-op's access to a bank of acc with four stages, where two units share acc; with three, ()."""
    return ((BANK, WRITE, BANKS),) if config.stages == 4 else ()


def banks(tiles: Array, config: Config) -> Array:
    """Return the number of the acc bank that holds each tile."""
    return tiles // (config.acc.depth // config.acc_banks)


@dataclass(frozen=True, eq=False)
class AluKernel(_Placed):
    """One distinct ALU instruction; the pattern's wgt is unused."""

    is_alu = True
    loop: Loops
    op: int  # of AluOp, or the number of an own operation (Config.own_numbers)
    imm: int | None
    pattern: Pattern
    origin: Origin = (0, 0, 0)
    first_is_src: bool = False  # the first operand is acc[src] (immediate form, Semantics.immediate_reads_src)
    field: int = 0  # the immediate field, used as an operand or not (Semantics.shift, own operations)
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
        """The micro-ops in waves (groups without dependences inside), in execution order: (dst, src) tiles of each."""
        reads_own = self.imm is not None and not self.first_is_src
        dst, src, _ = self.origin
        return tuple((shifted(a, dst), shifted(b, src)) for a, b in self.pattern.waves(reads_own, src - dst))

    @cached_property
    def requantised(self) -> tuple[tuple[Tiles, Tiles, Tiles], ...]:
        """As `waves`, for REQ: (dst tiles, par tiles of the bias, first par tiles of the factors) of each wave."""
        assert self.factors is not None
        groups = self.pattern.groups(True, 0)  # only dst can conflict: src is in par, not in acc
        return tuple((in_a_row(self.dst[g]), in_a_row(self.src[g]), in_a_row(self.factors[g])) for g in groups)


Kernel = GemmKernel | AluKernel
#: The loop fields of GEMM and ALU instructions; 0 if the format has no such field.
LOOP_FIELDS: tuple[str, ...] = ("uop_bgn", "uop_end", "iter_out", "iter_in")
LOOP_FIELDS += tuple(f"{name}_factor_{loop}" for name in ("dst", "src", "wgt") for loop in ("out", "in"))
#: The fields that identify a kernel. `code`: reset bit of a GEMM, operation of an ALU.
FIELDS = ("is_alu", *LOOP_FIELDS, "code", "use_imm", "imm")
#: The columns of FIELDS with iterations and factors.
LOOPS = slice(3, 11)
#: The most micro-ops of one instruction, loops included. More are refused, as expanding them could exhaust memory.
MAX_MICRO_OPS = 1 << 22
#: Bits of a set's extent while `spans` sorts sets of tiles as single numbers; the widest gap is in the bits above.
WIDE = 40
#: Forms of a kernel: indices into timing.Intervals.
GEMM, ALU, ALU_IMMEDIATE, REQUANTISE = range(4)


class Kernels:
    """The k kernels of a stream. `fields`: int64 [k, len(FIELDS)]. `lists`: for each, int64 [m, 3] of dst, src, wgt.

    A kernel is expanded only when it is indexed: timing and most checks do not need it.
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
        """Return the field `name`, one of FIELDS, of each kernel: int64 [k]."""
        column: Array = self.fields[:, FIELDS.index(name)]
        return column

    @cached_property
    def micro_ops(self) -> Array:
        """The number of micro-ops that each kernel executes, int64 [k]."""
        listed = np.maximum(self.column("uop_end") - self.column("uop_bgn"), 0)
        micro_ops: Array = listed * self.column("iter_out") * self.column("iter_in")
        return micro_ops

    @cached_property
    def listed(self) -> Array:
        """The number of micro-ops that each kernel lists, before loops, int64 [k]."""
        return np.array([len(part) for part in self.lists], np.int64)

    @cached_property
    def is_gemm(self) -> Array:
        """Whether each kernel is a GEMM: bool [k]."""
        return self.column("is_alu") == 0

    @cached_property
    def resets(self) -> Array:
        """Whether each kernel is a reset GEMM: bool [k]."""
        return self.is_gemm & (self.column("code") == 1)

    @cached_property
    def accumulates(self) -> Array:
        """Whether each kernel is a GEMM that adds to the accumulator: bool [k]."""
        return self.is_gemm & ~self.resets

    @cached_property
    def own(self) -> Array:
        """The index in Config.own_alu of the operation of each kernel, or -1 if it is none of these: int64 [k]."""
        code = self.column("code")
        return np.where(code >= OWN, code - OWN, -1)

    @cached_property
    def form(self) -> Array:
        """The form of each kernel (GEMM, ALU, ALU_IMMEDIATE or REQUANTISE): int64 [k]."""
        alu = np.where(self.column("code") == AluOp.REQ, REQUANTISE, ALU + self.column("use_imm"))
        return np.where(self.is_gemm, GEMM, alu)

    @cached_property
    def kinds(self) -> tuple[Array, Array]:
        """Kinds of kernels with the same accesses: the number of one kernel per kind, and each kernel's kind [k]."""
        _, example, kind = np.unique(2 * self.form + self.resets, return_index=True, return_inverse=True)
        return example, kind

    @cached_property
    def spans(self) -> tuple[Array, Array, Array]:
        """Three arrays [3, k], rows dst, src, wgt: lowest tile, highest tile + 1, whether all between are touched.

        A tile index is the sum of one number from each of three sets: listed indices, outer steps, inner steps. Sorted
        by widest gap, the sets cover a range without holes if no set has a gap wider than the range that the sets
        before it cover. The third array is False also where this is not known.
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
        """Check that no kernel is too large. `kernel` is the number of each instruction's kernel, or -1.

        Raises MachineError if a kernel executes more than MAX_MICRO_OPS micro-ops.
        """
        for index in np.flatnonzero(self.micro_ops > MAX_MICRO_OPS)[:1].tolist():
            reason = f"runs {self.micro_ops[index]} micro-ops; at most {MAX_MICRO_OPS} are simulated"
            raise MachineError(f"instruction {np.argmax(kernel == index)}", reason)

    def _make(self, index: int) -> Kernel:
        fields, listed = self.fields[index], self.lists[index]
        is_alu, bgn, end, iter_out, iter_in, *factors, code, use_imm, imm = fields.tolist()
        dst_factors, src_factors, wgt_factors = zip(factors[::2], factors[1::2], strict=True)
        loop = Loops(bgn, end, iter_out, iter_in, dst_factors, src_factors, wgt_factors)
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
        elif code == AluOp.REQ:  # the immediate is the outer loop factor of `first`: one set of factors an iteration
            first = listed[:1, 2].repeat(pattern.dst.size)
            first += imm * np.arange(iter_out).repeat(len(listed) * iter_in)[: len(first)]
            kernel = AluKernel(loop, AluOp.REQ, None, pattern, (dst, src, wgt), factors=first)
        else:
            first_is_src = bool(use_imm) and self._rules.immediate_reads_src
            operand = imm if use_imm else None
            kernel = AluKernel(loop, code, operand, pattern, (dst, src, wgt), first_is_src, imm)
        self._made[index] = kernel
        return kernel
