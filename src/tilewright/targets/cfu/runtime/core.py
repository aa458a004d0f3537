"""Run a program on the core with its CFU, and return what it did."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.targets.cfu.config import LINE_BYTES, RAM_BASE, Config
from tilewright.targets.cfu.isa.rv32 import NOWHERE, RD, decode
from tilewright.targets.cfu.isa.state import Note, buffers, notes, registers
from tilewright.targets.cfu.timing.costs import MODELS
from tilewright.targets.cfu.timing.state import Cause, Cpu, Machine, instructions, machine

from . import system
from .elf import Executable
from .process import Process, Trap
from .seam import Cfu, Difference, Seam
from .system import Devices

#: The default limit of instructions: more than any sensible program runs. They take about a minute to simulate.
MAX_INSTRUCTIONS = 10_000_000_000
MAX_CODE_BYTES = 1 << 24
ELF_MAGIC = b"\x7fELF"
#: Options of a link without a linker script: no headers in memory, data behind the code, and no addresses from gp.
HEADERS = f"-Ttext={RAM_BASE:#x} -Wl,-N,--no-relax, or with a linker script"
#: Called with the number that the program wrote at a marker, and with RAM. Returns how many instructions the program
#: may take until the next marker (0: any number).
Watch = Callable[[int, Array], int]
#: Runs a program to its end; returns the trap that ended it, if one did.
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
    """The result of a program's run. `exit_code` is None if a trap ended it; `misuses` are misuses of the CFU's model.

    `regions` are the parts of the run between markers, in order. A region has the number that the program wrote at its
    marker; the first one has 0. `executed` int64 [n] counts the executions of each instruction of `machine.code`.
    `spent` are the cycles of each instruction in each region, int64 [n], if they were asked for. `undefined` is the
    first answer of a user's CFU that depends on its initial values, among those that were tried.
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
    """What runs a program, and how far: a machine, a timing model, and at most `max_instructions`.

    `cfu` replaces the model. `drive` runs the program and returns the trap that ended it, such as a debugger.
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
    offsets: Mapping[int, int] | None = None,
    profiled: bool = False,
    watch: Watch | None = None,
) -> Run:
    """Run the program `image` until it stores to HALT, traps, or has executed the most instructions.

    A machine in the place of `setup` runs it with `cfu` (None: the model), in the first timing model.
    `writes` are bytes to put into RAM, by address, after the program is loaded; `reads` are the named (address,
    size) to return at the end. `offsets` are the expected offsets of `start_GEMM` (the input's negated zero point) by
    region; others are noted as misuse. `profiled` asks for `Run.spent`. `watch` is called at each marker of a region.
    Raises ProgramError if something is not in RAM.
    """
    setup = setup if isinstance(setup, Setup) else Setup(setup, cfu=cfu)
    config, cfu, costs = setup.config, setup.cfu, MODELS[setup.timing].costs
    ram = _loaded(image, config, writes or {})
    code = _code(image, ram)
    words = decode(ram[code.start - RAM_BASE : code.stop - RAM_BASE].view("<u4"), code.start)
    regs = registers(config)
    m = machine(config, words, code.start, ram, regs, buffers(config), costs.write_slots)
    devices = Devices(offsets=offsets or {}, spent=[] if profiled else None)
    devices.watch = (lambda region: watch(region, ram)) if watch else None
    if attach := getattr(cfu, "attach", None):
        attach(ram)
    process = Process(m, costs, Seam(cfu, regs, m.buffers, ram), devices, setup.max_instructions)
    trap = process.start(image.entry) or setup.drive(process)

    cpu = m.cpu
    spent = [np.zeros(len(words), np.int64), *devices.spent, system.spent(m)] if devices.spent is not None else []
    m.entered[cpu[Cpu.POSITION]] -= 1
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
    """Return RAM, uint8, with the program and `writes` in it. Raises ProgramError if something is not in RAM."""
    ram = np.zeros(config.ram_bytes, np.uint8)
    for segment in image.segments:
        if segment.data[:4] == ELF_MAGIC and segment.address < RAM_BASE:
            reason = f"its headers would be loaded at {segment.address:#x}, below RAM, which begins at {RAM_BASE:#x}"
            raise ProgramError(image.name, reason, f"link with {HEADERS}")
        place = _inside(ram, image.name, segment.address, segment.size)
        ram[place][: len(segment.data)] = np.frombuffer(segment.data, np.uint8)
    for address, data in writes.items():
        ram[_inside(ram, "writes", address, len(data))] = np.frombuffer(data, np.uint8)
    return ram


def _code(image: Executable, ram: Array) -> range:
    """Return the addresses of a program's code, in whole cache lines. Raises ProgramError if it is not in RAM."""
    low = min(part.start for part in image.code) & -LINE_BYTES
    # The loop reads one instruction ahead.
    high = (max(part.stop for part in image.code) & -LINE_BYTES) + LINE_BYTES
    if not RAM_BASE <= low <= high <= RAM_BASE + len(ram) or high - low > MAX_CODE_BYTES:
        raise ProgramError(image.name, f"its code at {low:#x}..{high:#x} is not in RAM, or is larger than 16 MiB")
    return range(low, high)


def _undefined(differences: Iterable[Difference], m: Machine) -> Difference | None:
    """Return the earliest difference. An answer that the program throws away matters only by its cycle."""
    matter = [
        one
        for one in differences
        if one.ready != one.other_ready or int(m.code[one.pc - m.base >> 2]) >> RD & 255 != NOWHERE
    ]
    return min(matter, key=lambda one: one.cycle, default=None)


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


def _inside(ram: Array, what: str, address: int, size: int) -> slice:
    """Return the slice of `size` bytes in RAM. Raises ProgramError naming `what` if they are not in RAM."""
    at = address - RAM_BASE
    if at < 0 or size < 0 or at + size > len(ram):
        reason = f"{size} bytes at {address:#x} are not in RAM, {RAM_BASE:#x}..{RAM_BASE + len(ram):#x}"
        raise ProgramError(what, reason, "link the program for that range, or set ram_bytes")
    return slice(at, at + size)
