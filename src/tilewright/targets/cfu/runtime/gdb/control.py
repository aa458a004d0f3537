"""Breakpoints, watchpoints and steps of a program. Between two stops, the program runs at the loop's full speed.

The loop does not check for breakpoints, but stops at the unknown operation PAUSE. `_armed` is a copy of the decoded
code in which PAUSE replaces the operations at breakpoints. In the copy `_paused`, PAUSE replaces all operations, and a
step restores one instruction. A PAUSE has the operands of the original instruction, because waits depend on them. A
second compiled loop, which runs only while watchpoints exist, watches memory. The loop's state persists between calls,
so a program takes the same cycles with and without stops.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.targets.cfu.config import RAM_BASE
from tilewright.targets.cfu.isa.rv32 import STORE, decode
from tilewright.targets.cfu.runtime.core import PAUSE, Process, Trap, paused
from tilewright.targets.cfu.timing import state
from tilewright.targets.cfu.timing.state import Cpu, Machine, index_of

#: A run is divided into parts of about this time, in seconds. The client can interrupt it between two parts.
PART_SECONDS = 0.05
#: Limits of the number of instructions in a part.
LEAST = 1 << 10
MOST = 1 << 26


class Watchpoint(NamedTuple):
    """The watched addresses `first` to `end` (exclusive), and the watched accesses: state.READS | state.WRITES."""

    first: int
    end: int
    kinds: int


class Stop(NamedTuple):
    """A stop of the program. `kind` is breakpoint, step, interrupt, watch, exit or trap.

    For the kind watch, `address` is the first watched address that the last instruction accessed.
    """

    kind: str
    watch: Watchpoint | None = None
    address: int = 0
    trap: Trap | None = None


class Control:
    """A process that runs from stop to stop."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.m = process.m
        self.breakpoints = set[int]()
        self.watches = list[Watchpoint]()
        self._paused = paused(self.m.code)
        self._armed = self.m.code.copy()
        self._part = 1 << 20

    def set_breakpoint(self, address: int, is_set: bool) -> bool:
        index = index_of(self.m, address)
        if index is None:
            return False
        (self.breakpoints.add if is_set else self.breakpoints.discard)(index)
        self._arm(index)
        return True

    def write(self, address: int, data: bytes) -> bool:
        m = self.m
        at = address - RAM_BASE
        if at < 0 or at + len(data) > len(m.ram.byte):
            return False
        m.ram.byte[at : at + len(data)] = np.frombuffer(data, np.uint8)
        low = max(address & ~3, m.base)
        high = min(address + len(data) + 3 & ~3, m.base + 4 * len(m.code))
        if low < high:
            first = low - m.base >> 2
            words = m.ram.byte[low - RAM_BASE : high - RAM_BASE].view("<u4")
            m.code[first : first + len(words)] = decode(words, low)
            for index in range(first, first + len(words)):
                self._arm(index)
        return True

    def arrive(self) -> None:
        """Advance the clock to the execution of the next instruction: wait for its code and operands."""
        self.process.part(0, self._with(self._paused))

    def step(self) -> Stop:
        return self._stepped(self._execute_one())

    def step_in(self, first: int, end: int, interrupted: Callable[[], bool]) -> Stop:
        """Execute instructions while the pc is in `first`..`end`, until a breakpoint: GDB's step over a source line."""
        low, high = (min(max(at - self.m.base >> 2, 0), len(self.m.code)) for at in (first, end))
        stop = self._execute_one()
        if stop is None and low <= self.m.cpu[Cpu.POSITION] < high:
            self._paused[low:high] = self._armed[low:high]
            stop = self._on(self._paused, interrupted)
            self._paused[low:high] = paused(self.m.code[low:high])
        return self._stepped(stop)

    def _stepped(self, stop: Stop | None) -> Stop:
        self.arrive()
        if stop and stop.kind != "breakpoint":
            return stop
        return Stop("breakpoint" if self.m.cpu[Cpu.POSITION] in self.breakpoints else "step")

    def go(self, interrupted: Callable[[], bool]) -> Stop:
        """Run to the next breakpoint, watchpoint or end. `interrupted` is called every PART_SECONDS.

        A breakpoint at the current pc does not stop the program, because the program is already stopped there.
        """
        stop = self._execute_one() or self._on(self._armed, interrupted)
        self.arrive()
        return stop

    def _on(self, code: Array, interrupted: Callable[[], bool]) -> Stop:
        # The loop cannot call `interrupted`. So it is called between parts of the run, each of about PART_SECONDS.
        while not interrupted():
            begun = perf_counter()
            cpu = self.m.cpu
            if stop := self._run(code, int(cpu[Cpu.RETIRED]) + self._part):
                return stop
            share = (perf_counter() - begun) / PART_SECONDS
            if share > 2:
                self._part = max(self._part // 2, LEAST)
            elif share < 1 and cpu[Cpu.REASON] == state.TO_LIMIT:
                self._part = min(self._part * 2, MOST)
        return Stop("interrupt")

    def _execute_one(self, watching: bool = True) -> Stop | None:
        at = self.m.cpu[Cpu.POSITION]
        self._paused[at] = self.m.code[at]
        try:
            stop = self._run(self._paused, 0, watching)
        finally:
            self._paused[at] = paused(self.m.code[at])
        return stop if stop and stop.kind != "breakpoint" else None

    def _run(self, code: Array, retired: int, watching: bool = True) -> Stop | None:
        """Run `code` until an instruction leaves the loop, and execute this instruction. Return a stop or None."""
        process = self.process
        cpu = self.m.cpu
        reason = process.part(retired, self._with(code), watching and bool(self.watches))
        if reason == state.TO_WATCH:
            return self._watched()
        if reason == state.TO_SYSTEM and code[cpu[Cpu.POSITION]] & 255 == PAUSE:
            return Stop("breakpoint")
        trap = process.handle(reason)
        if reason == state.TO_CODE and not trap:
            # The program has stored a new instruction, which the copies of the code need, too.
            self._arm((int(cpu[Cpu.ADDRESS]) & ~3) - self.m.base >> 2)
        if trap:
            return Stop("trap", trap=trap)
        return Stop("exit") if process.devices.exit_code is not None else None

    def _watched(self) -> Stop:
        """Execute the load or store of watched memory at which the loop stopped."""
        cpu = self.m.cpu
        at = int(cpu[Cpu.POSITION])
        address = int(cpu[Cpu.ADDRESS])
        op = int(self.m.code[at]) & 255
        kind = state.WRITES if op >= STORE else state.READS
        end = address + (1 << (op & 3))
        watch = next(item for item in self.watches if item.first < end and address < item.end and item.kinds & kind)
        # GDB expects a stop after the access, so that it can show the new value.
        return self._execute_one(watching=False) or Stop("watch", watch, max(watch.first, address))

    def _with(self, code: Array) -> Machine:
        rows = np.array(self.watches, np.int64).reshape(-1, 3)
        return self.m._replace(code=code, watched=rows)

    def _arm(self, index: int) -> None:
        self._paused[index] = paused(self.m.code[index])
        self._armed[index] = self._paused[index] if index in self.breakpoints else self.m.code[index]
