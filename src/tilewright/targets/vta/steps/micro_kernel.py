"""Kernels: the distinct GEMM and ALU instructions of a stream, with their micro-ops expanded over the loops.

`Kernels` has the fields of the instructions as columns, and only expands a kernel when it is indexed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.sim.steps import READ, WRITE, runs
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.alu import AluOp, Semantics
from tilewright.targets.vta.isa.own import FIRST_OWN
from tilewright.targets.vta.steps.pattern import Origin, Pattern, Product, Tiles, in_a_row, shifted

#: Indices into the spaces of VTA's step tables. BANK: the banks of acc, each used by one unit at a time.
UOP, INP, WGT, ACC, OUT, DRAM, ALU_UOP, PAR, BANK = range(9)
#: The space of each memory id.
SPACE_OF = (UOP, WGT, INP, ACC, OUT, ACC, ALU_UOP, PAR)

#: The number of par tiles with the factors of REQ. The tiles contain multipliers, shifts with zero points, and bounds
#: (alu.requantise).
FACTOR_TILES = 3


def expanded(listed: Array, loops: Array) -> Array:
    """Expand micro-ops over two loops. Return the tile indices, int64 [3, micro-ops], with rows dst, src, wgt.

    `listed`: the listed micro-ops, int64 [m, 3]. `loops`: the fields LOOPS. Columns are in execution order: by outer
    loop, by inner loop, by list.
    """
    outer, inner = loops[:2].tolist()
    if not len(listed) * outer * inner:  # without micro-ops, the loop counts may be too large to expand
        return np.zeros((3, 0), np.int64)
    factors = loops[2:].reshape(3, 2, 1)
    steps = (np.arange(outer) * factors[:, 0])[:, :, None] + (np.arange(inner) * factors[:, 1])[:, None, :]
    return (steps.reshape(3, -1, 1) + listed.T[:, None, :]).reshape(3, -1)


def uop_counts(config: Config) -> int:
    """Return the number of values of the counter of micro-ops, which has the width of the field uop_end."""
    return 2 << config.index_bits.uop


#: The number that stands for GEMM among the numbers of ALU operations.
GEMM_OP = -1
#: The operands of micro-ops: the rows of `expanded`, the tiles of REQ's factors, and the destinations' acc banks.
DST, SRC, WEIGHT, FACTORS, BANKS = range(5)
#: One access of a micro-op: space, mode (READ, WRITE), operand.
Access = tuple[int, int, int]


@dataclass(frozen=True, eq=False)
class Kernel:
    """One distinct GEMM or ALU instruction: a pattern of micro-ops, with `origin` to add to dst, src and wgt.

    `op` is one of AluOp, or the number of an own operation (Config.own_numbers), or GEMM_OP. With `reset`, a GEMM
    clears its acc tiles instead of adding to these tiles. The ALU does not use the pattern's wgt.
    """

    op: int
    uops: range  # the micro-ops that the kernel reads, in the memory of micro-ops
    outer: int  # iterations of the outer loop
    pattern: Pattern
    origin: Origin = (0, 0, 0)
    reset: bool = False
    imm: int | None = None
    first_is_src: bool = False  # the first operand is acc[src] (immediate form, Semantics.immediate_reads_src)
    field: int = 0  # the immediate field, even if no operand (Semantics.shift and user-defined operations)
    factors: Array | None = None  # REQ: for each micro-op, the first of its FACTOR_TILES tiles of par

    @property
    def is_alu(self) -> bool:
        return self.op != GEMM_OP

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
        return self.pattern.dst.size

    @cached_property
    def written(self) -> Tiles:
        return shifted(self.pattern.written, self.origin[0])

    @property
    def reads_source(self) -> bool:
        """Whether a result of the ALU depends on acc[src]."""
        return self.is_alu and (self.imm is None or self.first_is_src) and self.factors is None

    def uop_space(self, config: Config) -> int:
        """Return the space number, in step tables, of the memory with the kernel's micro-ops."""
        return SPACE_OF[config.pipeline.uop_memory(self.is_alu)]

    def accesses(self, config: Config) -> tuple[Access, ...]:
        """Return the accesses of each micro-op: a tuple (space, READ or WRITE, operand) for each.

        A reset GEMM only writes; `would_read` returns the operands. With four stages, two units share the banks of acc.
        """
        operands: tuple[Access, ...] = ((INP, READ, SRC), (WGT, READ, WEIGHT))
        if self.reset:
            operands = ()
        elif self.factors is not None:
            operands = (PAR, READ, SRC), (PAR, READ, FACTORS)
        elif self.is_alu:
            operands = ((ACC, READ, SRC),) if self.reads_source else ()
        # Upstream's compute unit writes each result to acc and to the out memory.
        writes_out = config.rules.out_memory if self.is_alu else config.gemm_writes_out
        if self.reset and not config.rules.reset_writes_out:
            writes_out = False
        out: tuple[Access, ...] = ((OUT, WRITE, DST),) if writes_out else ()
        bank: tuple[Access, ...] = ((BANK, WRITE, BANKS),) if config.stages == 4 else ()
        return *operands, (ACC, WRITE if self.reset else READ | WRITE, DST), *out, *bank

    def footprint(self, config: Config) -> Array:
        """Return the kernel's footprint rows (sim.steps.Footprints), first for its micro-ops, then for its tiles."""
        factors = self.src[:0] if self.factors is None else np.add.outer(range(FACTOR_TILES), self.factors).reshape(-1)
        operands = self.dst, self.src, self.wgt, factors, banks(self.dst, config)
        first, count = uops_read(np.array(self.uops.start), np.array(self.uops.stop), config)
        listed = np.array([[self.uop_space(config), READ, first, count, 1, 0]], np.int64)
        return np.concatenate([listed, *(runs(space, mode, operands[at]) for space, mode, at in self.accesses(config))])

    @cached_property
    def follows(self) -> Array:
        """Whether acc[src] of each micro-op is the tile that the micro-op just before it writes: bool [n]."""
        follows = np.zeros(self.size, np.bool_)
        if self.is_alu and self.factors is None:
            follows[1:] = self.src[1:] == self.dst[:-1]
        return follows

    @cached_property
    def products(self) -> tuple[Product, ...]:
        """The micro-ops of a GEMM grouped into a few matrix products."""
        return tuple(product.at(self.origin) for product in self.pattern.products)

    @cached_property
    def last_writes(self) -> tuple[Kernel, Array]:
        """The kernel reduced to the last micro-op on each acc tile, and the acc tiles that have several micro-ops."""
        last, again = self.pattern.last
        return replace(self, pattern=last), again + self.origin[0]

    def would_read(self, tiles: Array) -> Array:
        """Return footprint rows: what a reset GEMM reads for the sums that it writes to the out tiles `tiles`."""
        # Under Semantics.reset_writes_out, a reset clears acc, but writes the sum that it would have accumulated to the
        # out memory. The operands of this sum are inp, wgt, and acc before the reset.
        last, again = self.last_writes
        mine = np.isin(last.dst, tiles)
        acc = np.setdiff1d(last.dst[mine], again)
        operands = (INP, last.src[mine]), (WGT, last.wgt[mine]), (ACC, acc)
        return np.concatenate([runs(space, READ, read) for space, read in operands])

    @cached_property
    def waves(self) -> tuple[tuple[Tiles, Tiles], ...]:
        """The (dst, src) tiles of each wave, in execution order. A wave is a group of micro-ops without dependences."""
        dst, src, _ = self.origin
        groups = self.pattern.waves(not self.reads_source, src - dst)
        return tuple((shifted(a, dst), shifted(b, src)) for a, b in groups)

    @cached_property
    def requantised(self) -> tuple[tuple[Tiles, Tiles, Tiles], ...]:
        """The waves of a REQ: (dst tiles, par tiles of biases, first par tiles of factors) for each wave."""
        assert self.factors is not None
        groups = self.pattern.groups(True, 0)  # only dst can conflict: src is in par, not in acc
        return tuple((in_a_row(self.dst[g]), in_a_row(self.src[g]), in_a_row(self.factors[g])) for g in groups)


def uops_read(begin: Array, end: Array, config: Config) -> tuple[Array, Array]:
    """Return, for instructions with the micro-ops `begin`..`end`, the first micro-op and the number of micro-ops read.

    A range that runs through the whole counter (Semantics.counters_wrap) reads the whole memory, several times.
    """
    wraps = end >= uop_counts(config)
    return np.where(wraps, 0, begin), np.where(wraps, config.uop.depth, np.maximum(end - begin, 0))


def banks(tiles: Array, config: Config) -> Array:
    return tiles // (config.acc.depth // config.acc_banks)


#: The loop fields of GEMM and ALU instructions; 0 if the format has no such field.
LOOP_FIELDS: tuple[str, ...] = ("uop_bgn", "uop_end", "iter_out", "iter_in")
LOOP_FIELDS += tuple(f"{name}_factor_{loop}" for name in ("dst", "src", "wgt") for loop in ("out", "in"))
#: The fields that identify a kernel. `code`: reset bit of a GEMM, operation of an ALU.
FIELDS = ("is_alu", *LOOP_FIELDS, "code", "use_imm", "imm")
#: The columns of FIELDS with iterations and factors.
LOOPS = slice(3, 11)
#: Maximum micro-ops of one instruction, loops included. Instructions with more are refused: their expansion could
#: exhaust memory.
MAX_MICRO_OPS = 1 << 22
#: Bits of a set's extent in the numbers that `spans` sorts. The higher bits have the set's widest gap.
WIDE = 40
#: The forms of a kernel, as indices into timing.Intervals.
GEMM, ALU, ALU_IMMEDIATE, REQUANTISE = range(4)


class Kernels:
    """The k kernels of a stream.

    `fields`: int64 [k, len(FIELDS)]. `lists`: the micro-ops of each kernel, int64 [m, 3] with columns dst, src, wgt.

    A kernel is expanded only when it is indexed: timing and most checks do not need it.
    """

    def __init__(self, fields: Array, lists: Sequence[Array], rules: Semantics) -> None:
        self.fields = fields
        self.lists = lists
        self._rules = rules
        self._kernels: list[Kernel | None] = [None] * len(lists)
        self._patterns: dict[tuple[bytes, ...], Pattern] = {}  # by loops and micro-ops, with tiles counted from 0

    def __len__(self) -> int:
        return len(self._kernels)

    def __iter__(self) -> Iterator[Kernel]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, index: int) -> Kernel:
        kernel = self._kernels[index]
        if kernel is None:
            kernel = self._kernels[index] = self._make(index)
        return kernel

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
        """The number of listed micro-ops of each kernel, without loops, int64 [k]."""
        return np.array([len(part) for part in self.lists], np.int64)

    @cached_property
    def is_gemm(self) -> Array:
        return self.column("is_alu") == 0

    @cached_property
    def resets(self) -> Array:
        return self.is_gemm & (self.column("code") == 1)

    @cached_property
    def accumulates(self) -> Array:
        """Whether each kernel is a GEMM that adds to the accumulator: bool [k]."""
        return self.is_gemm & ~self.resets

    @cached_property
    def stale(self) -> Array:
        """Whether each kernel has a micro-op that reads a tile without its last write: bool [k]."""
        stale = np.zeros(len(self), np.bool_)
        for index in np.flatnonzero(self._rules.reads_stale & ~self.is_gemm).tolist():
            stale[index] = self[index].follows.any()
        return stale

    @cached_property
    def own_index(self) -> Array:
        """The index in Config.own_alu of the operation of each kernel, or -1 for other operations: int64 [k]."""
        code = self.column("code")
        return np.where(code >= FIRST_OWN, code - FIRST_OWN, -1)

    @cached_property
    def form(self) -> Array:
        """The form of each kernel (GEMM, ALU, ALU_IMMEDIATE or REQUANTISE): int64 [k]."""
        alu = np.where(self.column("code") == AluOp.REQ, REQUANTISE, ALU + self.column("use_imm"))
        return np.where(self.is_gemm, GEMM, alu)

    @cached_property
    def spans(self) -> tuple[Array, Array, Array]:
        """The lowest tile, the highest tile + 1, and whether the range has no holes: [3, k] each, rows dst, src, wgt.

        A tile index is the sum of one number from each of three sets: listed indices, outer steps, inner steps. The
        sets are sorted by their widest gap. The sums have no holes if each set's widest gap is at most the range that
        the earlier sets cover. The rule is sufficient, not necessary: the third array may be False for a range without
        holes.
        """
        low, high, dense = (np.zeros((3, len(self)), kind) for kind in (np.int64, np.int64, np.bool_))
        live = np.flatnonzero(self.micro_ops)  # kernels with micro-ops; the others touch no tile
        if not live.size:
            return low, high, dense
        # The lists of all kernels are joined, so that one sort and one reduceat are enough for all kernels.
        sizes = self.listed[live]
        first = np.cumsum(sizes) - sizes
        listed = np.ascontiguousarray(np.concatenate([self.lists[index] for index in live.tolist()]).T)
        lowest = np.minimum.reduceat(listed, first, axis=1)
        highest = np.maximum.reduceat(listed, first, axis=1)
        # An offset moves the numbers of each list above the previous list, so that one sort keeps lists apart. `jump`:
        # the gap below each number of a list.
        shift_of_list = np.repeat(np.arange(len(live)) * (1 + int(highest.max())), sizes)
        jump = np.zeros_like(listed)
        ascending = np.sort(listed + shift_of_list)
        np.subtract(ascending[:, 1:], ascending[:, :-1], out=jump[:, 1:])
        jump[:, first] = 0
        loops = self.fields[live, LOOPS].T
        step = loops[2:].reshape(3, 2, -1)
        reach = (loops[:2] - 1) * step
        # Pack each set into one number with the widest gap in the high bits and the extent in the low bits, so that a
        # plain sort orders the sets by gap.
        sets = np.empty((3, 3, len(live)), np.int64)
        sets[0] = np.maximum.reduceat(jump, first, axis=1) << WIDE | highest - lowest
        sets[1:] = (step * (reach > 0) << WIDE | reach).swapaxes(0, 1)
        sets.sort(axis=0)
        gaps = sets >> WIDE
        extents = sets & (1 << WIDE) - 1
        filled = 1 + np.cumsum(extents, axis=0) - extents
        low[:, live] = lowest
        high[:, live] = highest + reach.sum(axis=1) + 1
        dense[:, live] = (gaps <= filled).all(axis=0)
        return low, high, dense

    def require(self, kernel: Array) -> None:
        """Raises MachineError if a kernel runs more than MAX_MICRO_OPS micro-ops. `kernel` [n]: numbers, or -1."""
        for index in np.flatnonzero(self.micro_ops > MAX_MICRO_OPS)[:1].tolist():
            reason = f"runs {self.micro_ops[index]} micro-ops; at most {MAX_MICRO_OPS} are simulated"
            raise MachineError(f"instruction {np.argmax(kernel == index)}", reason)

    def _make(self, index: int) -> Kernel:
        fields = self.fields[index]
        listed = self.lists[index]
        is_alu, bgn, end, outer, inner, *_, code, use_imm, imm = fields.tolist()
        # Count tiles from the lowest index, so that equal instructions at other places share a pattern.
        lowest = np.minimum.reduce(listed) if len(listed) else np.zeros(3, np.int64)
        moved = listed - lowest
        same = moved.tobytes(), fields[LOOPS].tobytes()
        pattern = self._patterns.get(same)
        if pattern is None:
            pattern = self._patterns[same] = Pattern(*expanded(moved, fields[LOOPS]))
        factors = None
        if is_alu and code == AluOp.REQ:  # the immediate is the outer loop factor of wgt
            factors = listed[:1, 2].repeat(pattern.dst.size)
            factors += imm * np.arange(outer).repeat(len(listed) * inner)[: len(factors)]
        dst, src, wgt = lowest.tolist()
        return Kernel(
            op=code if is_alu else GEMM_OP,
            uops=range(bgn, max(bgn, end)),
            outer=outer,
            pattern=pattern,
            origin=(dst, src, wgt),
            reset=not is_alu and code == 1,
            imm=imm if use_imm and factors is None else None,
            first_is_src=bool(use_imm) and self._rules.immediate_reads_src and factors is None,
            field=imm,
            factors=factors,
        )
