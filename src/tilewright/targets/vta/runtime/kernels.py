"""Micro-op kernels: what a callback records once, to be run by one GEMM or ALU instruction each time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.targets.vta.config import Config
from tilewright.targets.vta.isa.fields import ITER_BITS, AluOp
from tilewright.targets.vta.runtime.instructions import ONCE, Loop

#: Loops of an instruction.
MAX_LOOPS = 2
#: Upstream refuses a micro-op that writes an accumulator tile of the last so many (VerifyDep).
DISTANCE = 2


@dataclass(frozen=True, eq=False)
class UopKernel:
    """Tile indices int64 [3, m] (dst, src, wgt), loops outside in, and what all its micro-ops share.

    `opcode` None: GEMM. `imm` None: the ALU's second operand is acc[src].
    """

    uops: Array
    loops: tuple[Loop, ...]
    opcode: AluOp | None
    imm: int | None
    reset: bool

    @property
    def nest(self) -> tuple[Loop, Loop]:
        """(outer, inner) of the instruction: a single loop is a GEMM's outer, an ALU's inner one (upstream)."""
        if len(self.loops) == MAX_LOOPS:
            return self.loops[0], self.loops[1]
        single = self.loops[0] if self.loops else ONCE
        return (single, ONCE) if self.opcode is None else (ONCE, single)


class UopRecorder:
    """Given to the callback of `push_gemm` and `push_alu`. Errors are ProgramError, naming the call."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._uops: list[tuple[int, int, int]] = []
        self._loops: list[Loop] = []
        self._open = 0
        self._shared: dict[str, object] = {}

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

        `reset` clears acc[dst] instead; `imm` is the ALU's second operand instead of acc[src]. All but the tile
        indices must be the same in the whole kernel: they are fields of its instruction.
        """
        if self._open < len(self._loops):
            raise ProgramError("uop_push", "comes after uop_loop_end", "record all micro-ops inside the loops")
        shared = {"mode": "gemm" if opcode is None else "alu", "opcode": opcode, "imm": imm, "reset": bool(reset)}
        for name, value in shared.items():
            if self._shared.setdefault(name, value) != value:
                known = f"{name} is {_named(value)}, but {_named(self._shared[name])} in the kernel so far"
                raise ProgramError("uop_push", known, "record another kernel: one instruction runs them all")
        if imm is not None and (opcode is None or not -(1 << 15) <= imm < 1 << 15):
            raise ProgramError("uop_push", f"imm is {imm}", "only ALU micro-ops have one, of 16 signed bits")
        if dst in (uop[0] for uop in self._uops[-DISTANCE:]):
            reason = f"dst {dst} was written by one of the last {DISTANCE} micro-ops"
            raise ProgramError("uop_push", reason, "put other tiles between: the pipeline has not written it back")
        self._uops.append((dst, src, wgt))

    def uop_loop_begin(self, extent: int, dst: int, src: int, wgt: int = 0) -> None:
        """A loop around all micro-ops that moves their indices by `dst`, `src` and `wgt` a round."""
        if self._uops:
            raise ProgramError("uop_loop_begin", "comes after uop_push", "begin the loops first")
        if len(self._loops) == MAX_LOOPS:
            raise ProgramError("uop_loop_begin", f"an instruction has at most {MAX_LOOPS} loops", "push it repeatedly")
        if not 1 <= extent < 1 << ITER_BITS:
            raise ProgramError("uop_loop_begin", f"extent is {extent}, outside 1..{(1 << ITER_BITS) - 1}")
        self._loops.append(Loop(extent, dst, src, wgt))
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
        if not self._uops:
            raise ProgramError(call, "its kernel records no micro-op", "call uop_push in it")
        if self._open:
            raise ProgramError(call, f"its kernel leaves {self._open} loop(s) open", "call uop_loop_end")
        if self._shared["mode"] != mode:
            raise ProgramError(
                call, f"its kernel has {self._shared['mode']} micro-ops", f"use push_{self._shared['mode']}"
            )
        if len(self._uops) > self._config.uop.depth:
            reason = f"its kernel has {len(self._uops)} micro-ops; the cache has {self._config.uop.depth}"
            raise ProgramError(call, reason, "use loops or several kernels")
        uops = np.array(self._uops, np.int64).T
        chips = (self._config.acc, self._config.inp if mode == "gemm" else self._config.acc, self._config.wgt)
        for index, (field, chip) in enumerate(zip(("dst", "src", "wgt"), chips, strict=True)):
            steps = [loop[1 + index] for loop in self._loops]
            reach = int(uops[index].max()) + sum((loop[0] - 1) * loop[1 + index] for loop in self._loops)
            low = min(int(uops[index].min()), *steps, 0)
            if mode == "alu" and field == "wgt":
                if uops[index].any() or any(steps):
                    raise ProgramError(call, "its kernel has wgt indices, which the ALU does not read", "leave wgt out")
            elif low < 0 or reach >= chip.depth:
                reason = f"{field} is {low}, negative" if low < 0 else f"{field} reaches {reach}"
                raise ProgramError(call, f"its kernel's {reason}", f"{chip.name} has tiles 0..{chip.depth - 1}")
        shared = self._shared
        return UopKernel(uops, tuple(self._loops), shared["opcode"], shared["imm"], bool(shared["reset"]))  # type: ignore[arg-type]


def _named(value: object) -> str:
    return value.name if isinstance(value, AluOp) else str(value)
