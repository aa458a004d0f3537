"""Micro-op kernels. A callback records each kernel, and a GEMM or ALU instruction runs one kernel."""

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
from tilewright.targets.vta.isa.alu import ALUS, WRITE_BACK, AluOp
from tilewright.targets.vta.isa.fields import ITER_BITS
from tilewright.targets.vta.isa.instructions import ONCE, Loop
from tilewright.targets.vta.isa.own import FIRST_OWN
from tilewright.targets.vta.steps.micro_kernel import FACTOR_TILES

#: The maximum number of loops of one instruction.
MAX_LOOPS = 2


class Shared(NamedTuple):
    """The instruction's fields, which all micro-ops of a kernel share. `opcode` None means GEMM.

    `opcode` is one of AluOp, or the number of an own operation (Config.own_numbers). The second operand of an ALU
    operation is `imm` with `use_imm`, otherwise acc[src]. For REQ, the bias is par[src], and the factors are the tiles
    from par[wgt] on.
    """

    opcode: int | None
    imm: int | None
    reset: bool
    use_imm: bool


@dataclass(frozen=True, eq=False)
class UopKernel:
    """A kernel: tile indices int64 [3, m] (dst, src, wgt), loops from outer to inner, and the operation."""

    uops: Array
    loops: tuple[Loop, ...]
    op: Shared

    @property
    def nest(self) -> tuple[Loop, Loop]:
        """The instruction's loops (outer, inner). As in upstream, a single loop is outer for GEMM, inner for the ALU.

        A single loop that moves REQ's factors is the outer loop, because only the outer loop can move factors.
        """
        if len(self.loops) == MAX_LOOPS:
            return self.loops[0], self.loops[1]
        single = self.loops[0] if self.loops else ONCE
        return (single, ONCE) if self.op.opcode is None or single.wgt else (ONCE, single)


class UopRecorder:
    """Records a kernel, for the callback of `push_gemm` or `push_alu`. ProgramErrors name the called method."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._uops: list[tuple[int, int, int]] = []
        self._loops: list[Loop] = []
        self._open = 0
        self._op: Shared | None = None

    def uop_push(
        self,
        dst: int,
        src: int,
        wgt: int = 0,
        *,
        reset: bool = False,
        opcode: AluOp | str | None = None,
        imm: int | None = None,
    ) -> None:
        """Record a micro-op: if `opcode` is None, GEMM on acc[dst], inp[src], wgt[wgt]; else ALU on acc[dst], acc[src].

        `opcode` is an AluOp or a name, such as that of an own operation. With `reset`, a GEMM clears acc[dst]. `imm`
        replaces acc[src] as the ALU's second operand, except in an own operation that uses both. REQ reads acc[dst],
        the bias in par[src], and the factors, which begin at par[wgt]. All micro-ops of a kernel must have the same
        `reset`, `opcode` and `imm`, which are fields of the instruction; for REQ, also the same wgt. Raises
        ProgramError in these cases: the micro-ops differ in such a field, the ALU lacks the operation, `imm` is not
        allowed here, one of the last WRITE_BACK - 1 micro-ops wrote dst, or a loop has already ended.
        """
        if self._open < len(self._loops):
            raise ProgramError("uop_push", "is called after uop_loop_end", "record all micro-ops inside the loops")
        number = None if opcode is None else self._number(opcode)
        op = Shared(number, imm, bool(reset), self._uses_imm(number, imm))
        self._op = self._op or op  # the first micro-op decides the fields of the instruction
        for name, value, before in zip(("opcode", "imm", "reset"), op, self._op, strict=False):
            if value != before:
                now, then = map(self._name, (value, before)) if name == "opcode" else (value, before)
                reason = f"{name} is {now}, but {then} in the kernel so far"
                raise ProgramError("uop_push", reason, "use another kernel: one instruction runs the whole kernel")
        if number == AluOp.REQ and imm is not None:
            reason = f"imm is {imm}, but REQ takes no immediate"
            raise ProgramError("uop_push", reason, "leave imm out: REQ reads its operands from the memory par")
        if imm is not None and (opcode is None or not -(1 << 15) <= imm < 1 << 15):
            raise ProgramError("uop_push", f"imm is {imm}", "give imm to ALU micro-ops only, in -32768..32767")
        if dst in (uop[0] for uop in self._uops[1 - WRITE_BACK :]):
            reason = f"dst {dst} was written by one of the last {WRITE_BACK - 1} micro-ops"
            remedy = "write other tiles in between: the pipeline has not written this one back yet"
            raise ProgramError("uop_push", reason, remedy)
        self._uops.append((index(dst), index(src), index(wgt)))

    def uop_loop_begin(self, extent: int, dst: int, src: int, wgt: int = 0) -> None:
        """Begin a loop around all micro-ops. Each iteration adds `dst`, `src` and `wgt` to the micro-ops' indices.

        Raises ProgramError after a micro-op, for a third loop, or if `extent` does not fit its field.
        """
        if self._uops:
            raise ProgramError("uop_loop_begin", "is called after uop_push", "begin loops before the first micro-op")
        if len(self._loops) == MAX_LOOPS:
            reason = f"an instruction has at most {MAX_LOOPS} loops"
            raise ProgramError("uop_loop_begin", reason, "push the kernel once for each iteration of other loops")
        if not 1 <= extent < 1 << ITER_BITS:
            raise ProgramError("uop_loop_begin", f"extent is {extent}, outside 1..{(1 << ITER_BITS) - 1}")
        self._loops.append(Loop(index(extent), index(dst), index(src), index(wgt)))
        self._open += 1

    def uop_loop_end(self) -> None:
        """End the innermost open loop. Raises ProgramError if no loop is open."""
        if not self._open:
            raise ProgramError("uop_loop_end", "no loop is open", "call uop_loop_begin first")
        self._open -= 1

    @contextmanager
    def uop_loop(self, extent: int, dst: int, src: int, wgt: int = 0) -> Iterator[None]:
        """Return a context manager that calls `uop_loop_begin` and `uop_loop_end` around a block."""
        self.uop_loop_begin(extent, dst, src, wgt)
        yield
        self.uop_loop_end()

    def kernel(self, call: str, mode: str) -> UopKernel:
        """Return the recorded kernel. Raises ProgramError for `call` if `mode` does not allow this kernel."""
        if not self._uops or self._op is None:
            raise ProgramError(call, "its kernel records no micro-op", "call uop_push in it")
        if self._open:
            raise ProgramError(call, f"its kernel leaves {self._open} loop(s) open", "call uop_loop_end")
        recorded = "gemm" if self._op.opcode is None else "alu"
        if recorded != mode:
            raise ProgramError(call, f"its kernel has {recorded} micro-ops", f"use push_{recorded}")
        cache = self._config.sram(self._config.pipeline.uop_memory(alu=mode == "alu"))
        if len(self._uops) > cache.depth:
            reason = f"its kernel has {len(self._uops)} micro-ops; the cache has {cache.depth}"
            raise ProgramError(call, reason, "use loops or several kernels")
        uops = np.array(self._uops, np.int64).T
        # REQ reads its factors once before each outer iteration, so micro-ops and the inner loop must not change them.
        if self._op.opcode == AluOp.REQ and (np.ptp(uops[2]) or any(loop.wgt for loop in self._loops[1:])):
            remedy = "use one wgt, and let only the first loop change it"
            raise ProgramError(call, "its kernel has several sets of factors in one outer iteration", remedy)
        self._require_inside(call, self._operands(self._op), uops)
        return UopKernel(uops, tuple(self._loops), self._op)

    def _require_inside(self, call: str, operands: dict[str, tuple[Sram, int]], uops: Array) -> None:
        """Check that all indices are inside their memories. Raises ProgramError for outside or unused indices."""
        if len(operands) < len(uops) and (uops[2].any() or any(loop.wgt for loop in self._loops)):
            raise ProgramError(call, "its kernel has wgt indices, which the ALU does not read", "leave them out")
        for row, (field, (chip, tiles)) in enumerate(operands.items()):
            # The last iterations have the largest index, because strides are unsigned fields.
            factors = [loop[1 + row] for loop in self._loops]
            reach = int(uops[row].max()) + sum((loop.extent - 1) * loop[1 + row] for loop in self._loops) + tiles - 1
            low, high = min(int(uops[row].min()), *factors, 0), max(reach, *factors, 0)
            if low < 0 or high >= chip.depth:
                reason = f"its kernel's {field} reaches tile {low if low < 0 else high}"
                raise ProgramError(call, reason, f"{chip.name} has tiles 0..{chip.depth - 1}")

    def _name(self, number: int | None) -> str | None:
        if number is None:
            return None
        return AluOp(number).name if number < FIRST_OWN else self._config.name_of(number)

    def _number(self, opcode: AluOp | str) -> int:
        """Return an operation's number in decoded programs. Raises ProgramError if the machine lacks the operation."""
        config = self._config
        name = opcode.name.lower() if isinstance(opcode, AluOp) else str(opcode).lower()
        numbers = {listed: config.own_numbers.get(code, code) for code, listed in config.opcodes.items()}
        if name in numbers:
            return numbers[name]
        remedy = f"its operations are {', '.join(numbers)}; own_alu of the machine's file can add others"
        if kinds := [kind for kind, ops in ALUS.items() if name.upper() in (op.name for op in ops) and kind != "float"]:
            remedy = f"set alu to {' or '.join(kinds)}"
        raise ProgramError("uop_push", f"the ALU '{config.alu}' has no {name.upper() if kinds else name}", remedy)

    def _uses_imm(self, number: int | None, imm: int | None) -> bool:
        """Return the instruction's field `use_imm`. Raises ProgramError if an own operation takes no immediate."""
        # For upstream's operations, an immediate replaces src.
        if number is None or number < FIRST_OWN:
            return imm is not None
        operation = self._config.own_alu[number - FIRST_OWN]
        if not operation.uses("src"):
            if imm is not None and not operation.uses("imm"):
                raise ProgramError(
                    "uop_push", f"imm is {imm}, but {operation.name} takes no immediate", "leave imm out"
                )
            return True
        return imm is not None and not operation.uses("imm")

    def _operands(self, op: Shared) -> dict[str, tuple[Sram, int]]:
        """Return the memory of each operand (dst, src, and wgt if used), and the number of tiles per index."""
        config = self._config
        dst = {"dst": (config.acc, 1)}
        if op.opcode is None:
            return dst | {"src": (config.inp, 1), "wgt": (config.wgt, 1)}
        if op.opcode == AluOp.REQ:
            return dst | {"src": (config.par, 1), "wgt": (config.par, FACTOR_TILES)}
        return dst | {"src": (config.acc, 1)}
