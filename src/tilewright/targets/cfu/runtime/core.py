"""Run a program on the core with its CFU: load it, and handle what the loop leaves to Python.

The CPU calls a CFU as `execute(funct7, funct3, a, b, cycle) -> (value, ready cycle)`. Operands are int32 values. The
CFU takes the command in `cycle`; the answer is ready in `ready cycle`, which is the next cycle for most instructions.
The CFU takes its next command one cycle after that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count, pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numba import objmode, types

from tilewright.array import Array
from tilewright.errors import MachineError, ProgramError
from tilewright.targets.cfu.config import LINE_BYTES, RAM_BASE, Config
from tilewright.targets.cfu.isa.custom import absent, extended, make_execute
from tilewright.targets.cfu.isa.rv32 import decode
from tilewright.targets.cfu.isa.state import Note, Reg, buffers, notes, registers
from tilewright.targets.cfu.jit import native, version
from tilewright.targets.cfu.timing import state
from tilewright.targets.cfu.timing.costs import MODELS, Costs
from tilewright.targets.cfu.timing.loop import compiled
from tilewright.targets.cfu.timing.state import Cause, Cpu, Machine, machine

from . import system
from .elf import Executable
from .system import Devices

Execute = Callable[[int, int, int, int, int], tuple[int, int]]
#: The index in the registers of the number that identifies a CFU in Python. The loop writes the two before it.
NUMBER = 2
_numbers = count()
_in_use: dict[int, Execute] = {}
#: The default limit of instructions: more than any sensible program runs. They take about a minute to simulate.
MAX_INSTRUCTIONS = 10_000_000_000
#: Instructions between two chances for an interrupt from the keyboard.
SLICE = 200_000_000
MAX_CODE_BYTES = 1 << 24
CUSTOM_0 = 0b0001011  # the opcode of instructions for the CFU


class Unit(Protocol):
    """A CFU written in Python, with state. If it has a method `attach`, `run` calls this with main memory, uint8."""

    def execute(self, funct7: int, funct3: int, a: int, b: int, cycle: int) -> tuple[int, int]: ...


Cfu = Execute | Unit
#: Called with the number that the program wrote at a marker, and with RAM. Returns how many instructions the program
#: may take until the next marker (0: any number).
Watch = Callable[[int, Array], int]


class CfuError(MachineError):
    """A CFU that breaks the rules of its ports. `funct7` and `funct3` are those of the command that showed it."""

    def __init__(self, where: str | Path, reason: str, remedy: str = "", funct7: int = 0, funct3: int = 0) -> None:
        super().__init__(where, reason, remedy)
        self.funct7, self.funct3 = funct7, funct3

    def located(self, words: Array, base: int, where: Callable[[int], str]) -> MachineError:
        """Return the error with the places of its command among `words` (instructions from address `base` on)."""
        word = words.astype(np.int64)
        here = (word & 127 == CUSTOM_0) & (word >> 25 == self.funct7) & (word >> 12 & 7 == self.funct3)
        found = [where(base + 4 * index) for index in np.flatnonzero(here)[:3].tolist()]
        return MachineError(self.where, self.reason, f"the program gives this command at {', '.join(found)}")


@contextmanager
def seam(cfu: Cfu | None, regs: Array) -> Iterator[Any]:
    """Yield the compiled CFU that the CPU loop calls: the model if `cfu` is None, else a function that calls `cfu`.

    `regs` are the registers of the CFU. For a CFU in Python they hold only a number that identifies it.
    """
    if cfu is None:
        yield _compiled(False, bool(regs[Reg.EXTENSIONS]))
        return
    number = next(_numbers)
    regs[:] = 0
    regs[NUMBER] = number
    _in_use[number] = cfu if callable(cfu) else cfu.execute
    try:
        yield _compiled(True, False)
    finally:
        del _in_use[number]


@cache
def signature() -> Any:
    """Return the Numba signature of a CFU: registers int64, buffers int32 and RAM uint8, then the operands."""
    kinds: Any = types
    arrays = [kinds.Array(kind, 1, "C") for kind in (kinds.int64, kinds.int32, kinds.uint8)]
    return kinds.UniTuple(kinds.int64, 2)(*arrays, *[kinds.int64] * 5)


@cache
def _compiled(in_python: bool, extensions: bool) -> Any:
    """Return the compiled model of the CFU, or with `in_python` a compiled function that calls a CFU in Python."""
    if in_python:
        return native(ask, signature(), python=True)
    return native(make_execute(version(), extended if extensions else absent), signature())


def ask(
    regs: Array, buffers: Array, ram: Array, funct7: int, funct3: int, a: int, b: int, cycle: int
) -> tuple[int, int]:
    """Call a CFU in Python from compiled code. Return its answer and the cycle in which the answer is ready."""
    with objmode(value="int64", ready="int64"):
        value, ready = _answer(regs[NUMBER], funct7, funct3, a, b, cycle)
    return value, ready


def _answer(number: int, funct7: int, funct3: int, a: int, b: int, cycle: int) -> tuple[int, int]:
    value, ready = _in_use[int(number)](funct7, funct3, a, b, cycle)
    if not cycle <= ready < 1 << 62:
        reason = f"answers in cycle {ready} to a command of cycle {cycle}"
        raise MachineError("CFU", reason, "return (value, ready cycle); the latter must not precede the command")
    return int(value) & 0xFFFFFFFF, int(ready)


@dataclass(frozen=True)
class Trap:
    """Why a program was stopped: the event `kind` at `pc`, and the address `value` that it concerns."""

    kind: str
    pc: int
    cycle: int
    value: int = 0


class Region(NamedTuple):
    """A part of a run between two markers: cycles, instructions, cycles lost by cause, DRAM bytes read and written."""

    region: int
    cycles: int
    instructions: int
    lost: Mapping[str, int]
    read: int
    written: int


@dataclass(frozen=True, eq=False)
class Run:
    """The result of a program's run. `exit_code` is None if a trap ended it; `misuses` are misuses of the CFU's model.

    `regions` are the parts of the run between markers, in order. A region has the number that the program wrote at its
    marker; the first one has 0. `executed` int64 [n] counts the executions of each instruction of `machine.code`.
    `spent` are the cycles of each instruction in each region, int64 [n], if they were asked for.
    """

    exit_code: int | None
    trap: Trap | None
    cycles: int
    instret: int
    text: str
    reads: Mapping[str, bytes]
    regions: tuple[Region, ...]
    misuses: tuple[Note, ...]
    machine: Machine
    executed: Array
    spent: tuple[Array, ...] = ()


def run(
    image: Executable,
    config: Config,
    *,
    timing: str = "sourced",
    writes: Mapping[int, bytes] | None = None,
    reads: Mapping[str, tuple[int, int]] | None = None,
    max_instructions: int = MAX_INSTRUCTIONS,
    offsets: Mapping[int, int] | None = None,
    cfu: Cfu | None = None,
    profiled: bool = False,
    watch: Watch | None = None,
) -> Run:
    """Run the program `image` until it stores to HALT, traps, or has executed `max_instructions`.

    `writes` are bytes to put into RAM, by address, after the program is loaded; `reads` are the named (address,
    size) to return at the end. `offsets` are the expected offsets of `start_GEMM` (the input's negated zero point) by
    region; others are noted as misuse. `cfu` replaces the model. `profiled` asks for `Run.spent`. `watch` is called
    at each marker of a region. Raises ProgramError if something is not in RAM.
    """
    ram = np.zeros(config.ram_bytes, np.uint8)
    for segment in image.segments:
        place = _inside(ram, image.name, segment.address, segment.size)
        ram[place][: len(segment.data)] = np.frombuffer(segment.data, np.uint8)
    for address, data in (writes or {}).items():
        ram[_inside(ram, "writes", address, len(data))] = np.frombuffer(data, np.uint8)
    low, high = min(part.start for part in image.code), max(part.stop for part in image.code)
    low, high = low & -LINE_BYTES, (high & -LINE_BYTES) + LINE_BYTES  # the loop reads one instruction ahead
    if not RAM_BASE <= low <= high <= RAM_BASE + len(ram) or high - low > MAX_CODE_BYTES:
        raise ProgramError(image.name, f"its code at {low:#x}..{high:#x} is not in RAM, or is larger than 16 MiB")
    code = decode(ram[low - RAM_BASE : high - RAM_BASE].view("<u4"), low)
    costs = MODELS[timing].costs
    regs = registers(config)
    m = machine(config, code, low, ram, regs, buffers(config), costs.write_slots)
    devices = Devices(offsets=offsets or {}, spent=[] if profiled else None)
    devices.watch = (lambda region: watch(region, ram)) if watch else None
    if attach := getattr(cfu, "attach", None):
        attach(ram)
    with seam(cfu, regs) as execute:
        trap = _go(m, costs, image.entry, execute, devices, max_instructions)

    cpu = m.cpu
    spent = [np.zeros(len(code), np.int64), *devices.spent, system.spent(m)] if devices.spent is not None else []
    cpu[Cpu.RETIRED] += cpu[Cpu.POSITION] - cpu[Cpu.FIRST]
    cpu[Cpu.FIRST] = cpu[Cpu.POSITION]
    m.entered[cpu[Cpu.POSITION]] -= 1
    return Run(
        exit_code=devices.exit_code,
        trap=trap,
        cycles=int(cpu[Cpu.CYCLE]),
        instret=int(cpu[Cpu.RETIRED]),
        text=devices.text.decode("utf-8", "replace"),
        reads={name: ram[_inside(ram, name, *place)].tobytes() for name, place in (reads or {}).items()},
        regions=_regions([*devices.marks, system.mark(m)]),
        misuses=notes(m.cfu) if cfu is None else (),
        machine=m,
        executed=np.cumsum(m.entered)[:-1],
        spent=tuple(after - before for before, after in pairwise(spent) if (after > before).any()),
    )


def _go(m: Machine, costs: Costs, entry: int, execute: Any, devices: Devices, limit: int) -> Trap | None:
    """Run until the program ends. Return the trap that ended it, or None."""
    cpu, first = m.cpu, entry - m.base
    if first & 3 or not 0 <= first < 4 * len(m.code):
        return Trap("instruction access fault", entry, 0, entry)
    cpu[[Cpu.POSITION, Cpu.FIRST]] = first >> 2
    m.entered[first >> 2] += 1
    handlers: dict[int, Any] = {
        state.TO_SYSTEM: lambda: system.instruction(m, costs),
        state.TO_DEVICE: lambda: system.device(m, costs, devices),
        state.TO_CODE: lambda: system.store_code(m, costs),
        state.TO_MISALIGNED: lambda: "misaligned access",
        state.TO_TARGET: lambda: (
            "instruction address misaligned" if cpu[Cpu.ADDRESS] & 3 else "instruction access fault"
        ),
    }
    loop = compiled(m, costs, signature())
    while devices.exit_code is None:
        retired = int(cpu[Cpu.RETIRED])
        least = min(limit, devices.limit or limit)
        cpu[Cpu.LIMIT] = min(least, retired + SLICE)
        loop(m, costs, execute)
        if cpu[Cpu.REASON] == state.TO_LIMIT:
            if cpu[Cpu.RETIRED] >= least:
                return _trap(m, f"limit of {least - devices.began} instructions")
        elif kind := handlers[int(cpu[Cpu.REASON])]():
            return _trap(m, kind)
    return None


def _regions(marks: Iterable[tuple[int, Array]]) -> tuple[Region, ...]:
    """Return the regions between one mark and the next; `marks` are results of `system.mark`."""
    found, region, before = [], 0, np.zeros(4 + len(Cause), np.int64)
    for following, counts in marks:
        cycles, instructions, read, written, *lost = (counts - before).tolist()
        by_cause = {cause.name.lower(): count for cause, count in zip(Cause, lost, strict=True) if count}
        if cycles:
            found.append(Region(region, cycles, instructions, by_cause, read, written))
        region, before = following, counts
    return tuple(found)


def _trap(m: Machine, kind: str) -> Trap:
    cpu = m.cpu
    return Trap(kind, m.base + 4 * int(cpu[Cpu.POSITION]), int(cpu[Cpu.CYCLE]), int(cpu[Cpu.ADDRESS]))


def _inside(ram: Array, what: str, address: int, size: int) -> slice:
    """Return the slice of `size` bytes in RAM. Raises ProgramError naming `what` if they are not in RAM."""
    at = address - RAM_BASE
    if at < 0 or size < 0 or at + size > len(ram):
        reason = f"{size} bytes at {address:#x} are not in RAM, {RAM_BASE:#x}..{RAM_BASE + len(ram):#x}"
        raise ProgramError(what, reason, "link the program for that range, or set ram_bytes")
    return slice(at, at + size)
