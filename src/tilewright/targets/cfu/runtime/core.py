"""Run a program on the CPU with its CFU.

`run` loads a program into RAM and builds a `Process`: the machine's arrays, the CFU, the devices. A process alternates
between the compiled loop (timing/loop.py), which executes almost all instructions, and `handle`, which executes the
rest in Python: CSR instructions, device accesses, stores into code, traps. The loop has its whole state in arrays, so
it can stop after any instruction and continue later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.targets.cfu.config import LINE_BYTES, RAM_BASE, Config
from tilewright.targets.cfu.isa.rv32 import NOWHERE, RD, SYSTEM, decode
from tilewright.targets.cfu.isa.state import Note, buffers, notes, registers
from tilewright.targets.cfu.timing import state
from tilewright.targets.cfu.timing.costs import MODELS, Costs
from tilewright.targets.cfu.timing.loop import loop, watching_loop
from tilewright.targets.cfu.timing.state import Cause, Cpu, Machine, instructions, machine

from . import system
from .elf import Executable
from .seam import Cfu, Difference, Seam
from .system import Devices

#: An operation that no instruction has. The loop stops at all unknown operations, so breakpoints cost no time.
PAUSE = SYSTEM + 20
#: The number of instructions in a call of the loop. Ctrl-C takes effect only between two calls.
SLICE = 200_000_000


def paused(code: Array) -> Array:
    """Replace the operations of instructions by PAUSE. Operands remain, because the loop waits for them at a PAUSE."""
    return code & ~255 | PAUSE


@dataclass(frozen=True)
class Trap:
    """The event that stopped a program: its `kind`, the `pc`, and the accessed address `value` (0: none)."""

    kind: str
    pc: int
    cycle: int
    value: int = 0


class Process:
    """A program on a machine. The program ends when `devices` has an exit code, or with a trap.

    `limit` is the number of instructions after which the program is trapped.
    """

    def __init__(self, m: Machine, costs: Costs, seam: Seam, devices: Devices, limit: int) -> None:
        self.m = m
        self.costs = costs
        self.seam = seam
        self.devices = devices
        self.limit = limit

    @property
    def pc(self) -> int:
        return self.m.base + 4 * int(self.m.cpu[Cpu.POSITION])

    @property
    def instructions(self) -> int:
        return state.instructions(self.m.cpu)

    @property
    def bound(self) -> int:
        """The number of instructions after which the program is trapped: the limit of a watch, or `limit` if lower."""
        return min(self.limit, self.devices.limit or self.limit)

    def start(self, entry: int) -> Trap | None:
        """Begin at the address `entry`. Return a trap if this address has no code."""
        first = state.index_of(self.m, entry)
        if first is None:
            return Trap("instruction access fault", entry, 0, entry)
        self.m.cpu[[Cpu.POSITION, Cpu.FIRST]] = first
        self.m.entered[first] += 1
        return None

    def go(self) -> Trap | None:
        while self.devices.exit_code is None:
            # The loop checks its limit only after a jump. Between two jumps, it executes each instruction at most once.
            # Therefore the number of instructions may exceed the limit by the length of the code.
            left = self.bound - self.instructions
            longest = len(self.m.code)
            if left > longest:
                slice_end = int(self.m.cpu[Cpu.RETIRED]) + SLICE
                reason = self.part(min(slice_end, self.bound - longest), self.m)
            else:
                reason = self._last(left)
            if trap := self.handle(reason):
                return trap
        return None

    def _last(self, left: int) -> int:
        """Run to the next jump, but at most `left` instructions. Return the reason why the loop stopped."""
        if left <= 0:
            return state.TO_LIMIT
        code = self.m.code
        end = int(self.m.cpu[Cpu.POSITION]) + left
        if end >= len(code):
            return self.part(0, self.m)
        instruction = code[end]
        code[end] = paused(instruction)  # stops the loop after exactly `left` instructions
        try:
            reason = self.part(0, self.m)
        finally:
            code[end] = instruction
        return state.TO_LIMIT if self.instructions >= self.bound else reason

    def part(self, retired: int, m: Machine, watching: bool = False) -> int:
        """Call the loop. Return the reason why the loop stopped (timing/state.py).

        `m` is the machine, or a copy that differs only in the code. The loop stops at the first jump after `retired`
        instructions. Raises the CFU's error if the CFU fails.
        """
        m.cpu[Cpu.LIMIT] = min(self.bound, retired)
        (watching_loop if watching else loop)(m, self.costs, self.seam.port)
        if m.cpu[Cpu.REASON] == state.TO_CFU and self.seam.error:
            raise self.seam.error
        return int(m.cpu[Cpu.REASON])

    def handle(self, reason: int) -> Trap | None:
        """Execute the instruction at which the loop stopped for `reason`. Return the resulting trap, or None."""
        m = self.m
        kind = ""
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


#: The default limit of instructions, which is more than a normal program executes. Simulation takes about a minute.
MAX_INSTRUCTIONS = 10_000_000_000
MAX_CODE_BYTES = 1 << 24
ELF_MAGIC = b"\x7fELF"
#: A function that is called at each marker, with the number that the program wrote and with RAM, uint8. It returns the
#: limit of instructions until the next marker (0: no limit).
Watch = Callable[[int, Array], int]
#: A function that runs a program to its end, and returns the trap that ended the program, or None.
Drive = Callable[[Process], Trap | None]


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
    """The result of a program's run.

    `exit_code` is None if a trap ended the run. `text` is the program's output to the UART. `reads` has the requested
    bytes of RAM, by name. `misuses` are the misuses that the model of the CFU has recorded. `regions` are the parts of
    the run between markers, in order. The number of a region is the number that the program wrote at its first marker;
    the first region has number 0. `executed` has the number of executions of each instruction in `machine.code`, int64
    [n]. `spent` has the cycles of each instruction in each region, int64 [n]; () without `profiled`. `undefined` is the
    first answer of a user's CFU that depends on initial values, or None.
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
    undefined: Difference | None = None


@dataclass(frozen=True)
class Setup:
    """The settings of a run: a machine, a timing model, and the limit of instructions.

    `cfu` replaces the CFU's model (None: the model). `drive`, such as a debugger, runs a process to its end and returns
    the trap or None.
    """

    config: Config
    timing: str = "sourced"
    cfu: Cfu | None = None
    max_instructions: int = MAX_INSTRUCTIONS
    drive: Drive = Process.go


def run(
    image: Executable,
    setup: Setup | Config,
    *,
    cfu: Cfu | None = None,
    writes: Mapping[int, bytes] | None = None,
    reads: Mapping[str, tuple[int, int]] | None = None,
    profiled: bool = False,
    watch: Watch | None = None,
) -> Run:
    """Run the program `image` until it stores to HALT, traps, or reaches the limit of instructions.

    If `setup` is only a machine, `cfu` is the CFU (None: the model), and the first timing model is used. `writes` has
    bytes that are written to RAM after the program is loaded, by address. `reads` has the (address, size) of parts of
    RAM, by name; the result contains their bytes. With `profiled`, the result has `Run.spent`. `watch` is called at
    each marker.
    Raises ProgramError if the program, `writes` or `reads` are not in RAM.
    """
    setup = setup if isinstance(setup, Setup) else Setup(setup, cfu=cfu)
    config = setup.config
    cfu = setup.cfu
    costs = MODELS[setup.timing].numbers
    ram = _loaded(image, config, writes or {})
    code = _code(image, ram)
    words = decode(ram[code.start - RAM_BASE : code.stop - RAM_BASE].view("<u4"), code.start)
    regs = registers(config)  # every CFU writes its answers to this array, from which the loop reads them
    m = machine(config, words, code.start, ram, regs, buffers(config), costs.write_slots)
    devices = Devices(spent=[] if profiled else None)
    devices.watch = (lambda region: watch(region, ram)) if watch else None
    if attach := getattr(cfu, "attach", None):
        attach(ram)
    process = Process(m, costs, Seam(cfu, regs, m.buffers, ram), devices, setup.max_instructions)
    trap = process.start(image.entry) or setup.drive(process)

    cpu = m.cpu
    # The cycles since the start, at each marker. The differences are the cycles of each region.
    spent = [np.zeros(len(words), np.int64), *devices.spent, system.spent(m)] if devices.spent is not None else []
    m.entered[cpu[Cpu.POSITION]] -= 1  # end the last sequence of instructions, as a jump would
    return Run(
        exit_code=devices.exit_code,
        trap=trap,
        cycles=int(cpu[Cpu.CYCLE]),
        instret=instructions(cpu),
        text=devices.text.decode("utf-8", "replace"),
        reads={name: ram[_inside(ram, name, *place)].tobytes() for name, place in (reads or {}).items()},
        regions=_regions([*devices.marks, system.mark(m)]),
        misuses=notes(m.cfu) if cfu is None else (),
        machine=m,
        executed=np.cumsum(m.entered)[:-1],
        spent=tuple(after - before for before, after in pairwise(spent) if (after > before).any()),
        undefined=_undefined(getattr(cfu, "contrary", {}).values(), m),
    )


def _loaded(image: Executable, config: Config, writes: Mapping[int, bytes]) -> Array:
    """Return RAM, uint8, with the program and `writes`. Raises ProgramError if bytes lie outside of RAM."""
    ram = np.zeros(config.ram_bytes, np.uint8)
    for segment in image.segments:
        # Linkers may load the headers of the ELF file directly before the code, which is below RAM.
        if segment.data[:4] == ELF_MAGIC and segment.address < RAM_BASE:
            reason = f"its headers would be loaded at {segment.address:#x}, below RAM, which begins at {RAM_BASE:#x}"
            # -N: no headers in memory, data directly after the code. --no-relax: no addresses relative to gp.
            remedy = f"link with -Ttext={RAM_BASE:#x} -Wl,-N,--no-relax, or with a linker script"
            raise ProgramError(image.name, reason, remedy)
        place = _inside(ram, image.name, segment.address, segment.size)
        ram[place][: len(segment.data)] = np.frombuffer(segment.data, np.uint8)
    for address, data in writes.items():
        ram[_inside(ram, "writes", address, len(data))] = np.frombuffer(data, np.uint8)
    return ram


def _code(image: Executable, ram: Array) -> range:
    """Return the addresses of a program's code, in whole cache lines. Raises ProgramError if the code is not in RAM."""
    low = min(part.start for part in image.code) & -LINE_BYTES
    # The loop reads the instruction after a branch, even if the branch is the last instruction. So add a cache line.
    high = (max(part.stop for part in image.code) & -LINE_BYTES) + LINE_BYTES
    if not RAM_BASE <= low <= high <= RAM_BASE + len(ram) or high - low > MAX_CODE_BYTES:
        reason = f"its code at {low:#x}..{high:#x} is not in RAM, or is larger than {MAX_CODE_BYTES >> 20} MiB"
        raise ProgramError(image.name, reason, f"link it for addresses from {RAM_BASE:#x} on")
    return range(low, high)


def _undefined(differences: Iterable[Difference], m: Machine) -> Difference | None:
    # If a command writes its answer to x0, only a difference of the cycle is relevant.
    relevant = [
        difference
        for difference in differences
        if difference.ready != difference.other_ready or int(m.code[difference.pc - m.base >> 2]) >> RD & 255 != NOWHERE
    ]
    return min(relevant, key=lambda difference: difference.cycle, default=None)


def _regions(marks: Iterable[tuple[int, Array]]) -> tuple[Region, ...]:
    # A mark has the number of the region that *begins* at the marker, and the counters since the start of the run.
    regions = []
    region = 0
    before = np.zeros(4 + len(Cause), np.int64)
    for following, counts in marks:
        cycles, instructions, read, written, *lost = (counts - before).tolist()
        by_cause = {cause.name.lower(): count for cause, count in zip(Cause, lost, strict=True) if count}
        if cycles:
            regions.append(Region(region, cycles, instructions, by_cause, read, written))
        region = following
        before = counts
    return tuple(regions)


def _inside(ram: Array, subject: str, address: int, size: int) -> slice:
    """Return the slice of `size` bytes in RAM. Raises ProgramError for `subject` if the bytes are not in RAM."""
    offset = address - RAM_BASE
    if offset < 0 or size < 0 or offset + size > len(ram):
        reason = f"{size} bytes at {address:#x} are not in RAM, {RAM_BASE:#x}..{RAM_BASE + len(ram):#x}"
        raise ProgramError(subject, reason, "link the program for that range, or set ram_bytes")
    return slice(offset, offset + size)
