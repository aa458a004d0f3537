"""Micro-op kernels: what a callback records once, to be run by one GEMM or ALU instruction each time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import index
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.targets.vta.config import Config, Sram
from tilewright.targets.vta.isa.alu import ALUS, AluOp
from tilewright.targets.vta.isa.fields import ITER_BITS
from tilewright.targets.vta.runtime.instructions import ONCE, Loop
from tilewright.targets.vta.steps.micro_kernel import FACTOR_TILES

#: Loops of an instruction.
MAX_LOOPS = 2
#: Upstream refuses a micro-op that writes an accumulator tile of the last so many (VerifyDep).
DISTANCE = 2


class Operation(NamedTuple):
    """What all micro-ops of a kernel share. `opcode` None: GEMM. `imm` None: the ALU's second operand is acc[src].

    REQ has par[src] instead, and its factors are from par[wgt] on.
    """

    opcode: AluOp | None
    imm: int | None
    reset: bool

    @property
    def mode(self) -> str:
        return "gemm" if self.opcode is None else "alu"


@dataclass(frozen=True, eq=False)
class UopKernel:
    """Tile indices int64 [3, m] (dst, src, wgt), loops outside in, and the operation."""

    uops: Array
    loops: tuple[Loop, ...]
    op: Operation

    @property
    def nest(self) -> tuple[Loop, Loop]:
        """(outer, inner) of the instruction: a single loop is a GEMM's outer, an ALU's inner one (upstream).

        Only the outer one moves REQ's factors.
        """
        if len(self.loops) == MAX_LOOPS:
            return self.loops[0], self.loops[1]
        single = self.loops[0] if self.loops else ONCE
        return (single, ONCE) if self.op.opcode is None or single.wgt else (ONCE, single)


class UopRecorder:
    """Given to the callback of `push_gemm` and `push_alu`. Errors are ProgramError, naming the call."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._uops: list[tuple[int, int, int]] = []
        self._loops: list[Loop] = []
        self._open = 0
        self._op: Operation | None = None

    def uop_push(
        self,
        dst: int,
        src: int,
        wgt: int = 0,
        *,
        reset: bool = False,
        opcode: AluOp | None = None,
        imm: int | None = None,
    ) -> None:
        """A micro-op: GEMM where `opcode` is None (dst in acc, src in inp, wgt), else ALU (dst and src in acc).

        `reset` clears acc[dst] instead; `imm` is the ALU's second operand instead of acc[src]. REQ: acc[dst] with
        the bias par[src] and the factors from par[wgt] on, the same in the whole kernel. All but the tile indices
        must be the same anyway: they are fields of its instruction.
        """
        if self._open < len(self._loops):
            raise ProgramError("uop_push", "comes after uop_loop_end", "record all micro-ops inside the loops")
        if opcode is not None and opcode not in self._config.alu_ops:
            reason = f"the ALU '{self._config.alu}' has no {AluOp(opcode).name}"
            known = " or ".join(kind for kind, ops in ALUS.items() if opcode in ops and kind != "float")
            raise ProgramError("uop_push", reason, f"set alu to {known}")
        op = Operation(opcode, imm, bool(reset))
        self._op = self._op or op
        for name, value, before in zip(("opcode", "imm", "reset"), op, self._op, strict=True):
            if value != before:
                reason = f"{name} is {_named(value)}, but {_named(before)} in the kernel so far"
                raise ProgramError("uop_push", reason, "record another kernel: one instruction runs them all")
        if opcode == AluOp.REQ and imm is not None:
            raise ProgramError("uop_push", f"imm is {imm}", "REQ has none: its operands are in par")
        if imm is not None and (opcode is None or not -(1 << 15) <= imm < 1 << 15):
            raise ProgramError("uop_push", f"imm is {imm}", "only ALU micro-ops have one, of 16 signed bits")
        if dst in (uop[0] for uop in self._uops[-DISTANCE:]):
            reason = f"dst {dst} was written by one of the last {DISTANCE} micro-ops"
            raise ProgramError("uop_push", reason, "put other tiles between: the pipeline has not written it back")
        self._uops.append((index(dst), index(src), index(wgt)))

    def uop_loop_begin(self, extent: int, dst: int, src: int, wgt: int = 0) -> None:
        """A loop around all micro-ops that moves their indices by `dst`, `src` and `wgt` a round."""
        if self._uops:
            raise ProgramError("uop_loop_begin", "comes after uop_push", "begin the loops first")
        if len(self._loops) == MAX_LOOPS:
            raise ProgramError("uop_loop_begin", f"an instruction has at most {MAX_LOOPS} loops", "push it repeatedly")
        if not 1 <= extent < 1 << ITER_BITS:
            raise ProgramError("uop_loop_begin", f"extent is {extent}, outside 1..{(1 << ITER_BITS) - 1}")
        self._loops.append(Loop(index(extent), index(dst), index(src), index(wgt)))
        self._open += 1

    def uop_loop_end(self) -> None:
        if not self._open:
            raise ProgramError("uop_loop_end", "no loop is open")
        self._open -= 1

    @contextmanager
    def uop_loop(self, extent: int, dst: int, src: int, wgt: int = 0) -> Iterator[None]:
        """`uop_loop_begin` and `uop_loop_end` around a block."""
        self.uop_loop_begin(extent, dst, src, wgt)
        yield
        self.uop_loop_end()

    def kernel(self, call: str, mode: str) -> UopKernel:
        """What was recorded. Raises ProgramError, naming `call`, where an instruction of `mode` cannot run it."""
        if not self._uops or self._op is None:
            raise ProgramError(call, "its kernel records no micro-op", "call uop_push in it")
        if self._open:
            raise ProgramError(call, f"its kernel leaves {self._open} loop(s) open", "call uop_loop_end")
        if self._op.mode != mode:
            raise ProgramError(call, f"its kernel has {self._op.mode} micro-ops", f"use push_{self._op.mode}")
        cache = self._config.sram(self._config.pipeline.uop_memory(alu=mode == "alu"))
        if len(self._uops) > cache.depth:
            reason = f"its kernel has {len(self._uops)} micro-ops; the cache has {cache.depth}"
            raise ProgramError(call, reason, "use loops or several kernels")
        uops = np.array(self._uops, np.int64).T
        if self._op.opcode == AluOp.REQ and (np.ptp(uops[2]) or any(loop.wgt for loop in self._loops[1:])):
            remedy = "use one wgt, and move it by the first loop"
            raise ProgramError(call, "its kernel has several sets of factors in an outer round", remedy)
        for row, (field, operand) in enumerate(zip(("dst", "src", "wgt"), self._operands(self._op), strict=True)):
            factors = [loop[1 + row] for loop in self._loops]
            if operand is None:
                if uops[row].any() or any(factors):
                    raise ProgramError(
                        call, f"its kernel has {field} indices, which the ALU does not read", "leave them out"
                    )
                continue
            chip, tiles = operand
            reach = int(uops[row].max()) + sum((loop.extent - 1) * loop[1 + row] for loop in self._loops) + tiles - 1
            low, high = min(int(uops[row].min()), *factors, 0), max(reach, *factors, 0)
            if low < 0 or high >= chip.depth:
                reason = f"its kernel's {field} reaches tile {low if low < 0 else high}"
                raise ProgramError(call, reason, f"{chip.name} has tiles 0..{chip.depth - 1}")
        return UopKernel(uops, tuple(self._loops), self._op)

    def _operands(self, op: Operation) -> tuple[tuple[Sram, int] | None, ...]:
        """What dst, src and wgt index, and how many tiles from there on; None where an instruction has no such."""
        config = self._config
        if op.opcode is None:
            return (config.acc, 1), (config.inp, 1), (config.wgt, 1)
        if op.opcode == AluOp.REQ:
            return (config.acc, 1), (config.par, 1), (config.par, FACTOR_TILES)
        return (config.acc, 1), (config.acc, 1), None


def _named(value: object) -> str:
    """For messages; no opcode is GEMM's."""
    return value.name if isinstance(value, AluOp) else str(value)
