"""A program while it runs: the compiled loop, and the functions that do what the loop leaves to Python."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.array import Array
from tilewright.targets.cfu.isa.rv32 import OTHER
from tilewright.targets.cfu.timing import state
from tilewright.targets.cfu.timing.costs import Costs
from tilewright.targets.cfu.timing.loop import loop, watching_loop
from tilewright.targets.cfu.timing.state import Cpu, Machine

from . import system
from .seam import Seam
from .system import Devices

#: An operation that the loop leaves to Python and that no word decodes to.
PAUSE = OTHER + 20
#: Instructions between two chances for an interrupt from the keyboard.
SLICE = 200_000_000


def paused(code: Array) -> Array:
    """Return instructions with the operation PAUSE. Waits depend on their operands, which stay."""
    return code & ~255 | PAUSE


@dataclass(frozen=True)
class Trap:
    """Why a program was stopped: the event `kind` at `pc`, and the address `value` that it concerns."""

    kind: str
    pc: int
    cycle: int
    value: int = 0


class Process:
    """A program on a machine, until `devices` has its exit code or a trap ends it.

    `limit` is the number of instructions after which a trap ends the program.
    """

    def __init__(self, m: Machine, costs: Costs, seam: Seam, devices: Devices, limit: int) -> None:
        self.m, self.costs, self.seam, self.devices, self.limit = m, costs, seam, devices, limit

    @property
    def pc(self) -> int:
        return self.m.base + 4 * int(self.m.cpu[Cpu.POSITION])

    @property
    def instructions(self) -> int:
        """The number of instructions executed."""
        return state.instructions(self.m.cpu)

    @property
    def bound(self) -> int:
        """The number of instructions after which a trap ends the program, or the part of it that a watch allows."""
        return min(self.limit, self.devices.limit or self.limit)

    def start(self, entry: int) -> Trap | None:
        """Begin at the address `entry`. Return a trap if there is no code."""
        first = state.index_of(self.m, entry)
        if first is None:
            return Trap("instruction access fault", entry, 0, entry)
        self.m.cpu[[Cpu.POSITION, Cpu.FIRST]] = first
        self.m.entered[first] += 1
        return None

    def go(self) -> Trap | None:
        """Run until the program ends. Return the trap that ended it, or None."""
        while self.devices.exit_code is None:
            left, retired = self.bound - self.instructions, int(self.m.cpu[Cpu.RETIRED])
            whole = len(self.m.code)  # no part goes further than this past its number of instructions
            reason = self.part(min(retired + SLICE, self.bound - whole), self.m) if left > whole else self._last(left)
            if trap := self.handle(reason):
                return trap
        return None

    def _last(self, left: int) -> int:
        """Run to the next jump, but at most `left` instructions; return the reason why it stopped."""
        if left <= 0:
            return state.TO_LIMIT
        code, at = self.m.code, int(self.m.cpu[Cpu.POSITION]) + left
        if at >= len(code):
            return self.part(0, self.m)
        before = code[at]
        code[at] = paused(before)
        try:
            reason = self.part(0, self.m)
        finally:
            code[at] = before
        return state.TO_LIMIT if self.instructions >= self.bound else reason

    def part(self, retired: int, m: Machine, watching: bool = False) -> int:
        """Run the loop; return the reason why it stopped (timing/state.py). `m` is the machine, or a copy with other
        code that shares its other arrays. A jump ends the part when `retired` instructions are done. Raises the error
        of a CFU that fails."""
        m.cpu[Cpu.LIMIT] = min(self.bound, retired)
        (watching_loop if watching else loop)(m, self.costs, self.seam.port)
        if m.cpu[Cpu.REASON] == state.TO_CFU and self.seam.error:
            raise self.seam.error
        return int(m.cpu[Cpu.REASON])

    def handle(self, reason: int) -> Trap | None:
        """Do what the loop left to Python for `reason`. Return the trap that this causes."""
        m, kind = self.m, ""
        if reason == state.TO_LIMIT:
            if self.instructions >= self.bound:
                kind = f"limit of {self.bound - self.devices.began} instructions"
        elif reason == state.TO_SYSTEM:
            kind = system.instruction(m, self.costs)
        elif reason == state.TO_DEVICE:
            kind = system.device(m, self.costs, self.devices)
        elif reason == state.TO_CODE:
            kind = system.store_code(m, self.costs)
        elif reason == state.TO_MISALIGNED:
            kind = "misaligned access"
        else:
            kind = "instruction address misaligned" if m.cpu[Cpu.ADDRESS] & 3 else "instruction access fault"
        return self.trap(kind) if kind else None

    def trap(self, kind: str) -> Trap:
        return Trap(kind, self.pc, int(self.m.cpu[Cpu.CYCLE]), int(self.m.cpu[Cpu.ADDRESS]))
