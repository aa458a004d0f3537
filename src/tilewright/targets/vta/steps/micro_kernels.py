"""The distinct GEMM and ALU instructions of a stream: columns for all of them, each in whole when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from tilewright.array import Array
from tilewright.errors import MachineError
from tilewright.targets.vta.isa.fields import AluOp
from tilewright.targets.vta.isa.semantics import Semantics
from tilewright.targets.vta.steps.micro_kernel import AluKernel, GemmKernel, Loop
from tilewright.targets.vta.steps.pattern import Pattern

Kernel = GemmKernel | AluKernel
#: What an instruction says of its kernel. `code`: reset of a GEMM, operation of an ALU; `imm` 0 where it is not used.
FIELDS: tuple[str, ...] = ("is_alu", "uop_bgn", "uop_end", "iter_out", "iter_in", "dst_out", "dst_in")
FIELDS += ("src_out", "src_in", "wgt_out", "wgt_in", "code", "use_imm", "imm", "negative_imm")
#: Of these, iterations and factors.
LOOPS = slice(3, 11)
#: Micro-ops of one instruction, loops included; a program beyond it is refused before it fills the memory.
MAX_MICRO_OPS = 1 << 22
#: A set of tiles is one number while sets are sorted: its widest gap above so many bits of its extent.
WIDE = 40
#: Fields of ports.Intervals.
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

    def require(self, rows: Sequence[int]) -> None:
        """Raises MachineError for absurd loop counts; `rows` are the instructions of which the kernels are."""
        for index in np.flatnonzero(self.micro_ops > MAX_MICRO_OPS)[:1].tolist():
            reason = f"runs {self.micro_ops[index]} micro-ops; at most {MAX_MICRO_OPS} are simulated"
            raise MachineError(f"instruction {rows[index]}", reason)

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
