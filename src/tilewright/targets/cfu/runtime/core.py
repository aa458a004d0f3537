"""Runs a program on the core with its CFU: loads it, and does what the loop leaves to Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.targets.cfu.config import LINE_BYTES, RAM_BASE, Config
from tilewright.targets.cfu.isa.rv32 import decode
from tilewright.targets.cfu.isa.state import Note, buffers, notes, registers
from tilewright.targets.cfu.timing import state
from tilewright.targets.cfu.timing.costs import MODELS, Costs
from tilewright.targets.cfu.timing.loop import compiled
from tilewright.targets.cfu.timing.state import Cause, Cpu, Machine, machine

from . import system
from .devices import Devices, Mark
from .elf import Executable
from .seam import Cfu, seam, signature

#: More instructions than any sensible program: 100 s.
MAX_INSTRUCTIONS = 10_000_000_000
#: Instructions between two chances to interrupt.
SLICE = 200_000_000
MAX_CODE_BYTES = 1 << 24


@dataclass(frozen=True)
class Trap:
    """Why a program did not end by itself: what happened at `pc`, about which address or word."""

    kind: str
    pc: int
    cycle: int
    value: int = 0


class Region(NamedTuple):
    """A stretch of a run: its cycles and instructions, cycles lost by cause, bytes of DRAM read and written back."""

    region: int
    cycles: int
    instructions: int
    lost: Mapping[str, int]
    read: int
    written: int


@dataclass(frozen=True, eq=False)
class Run:
    """What a program did. `exit_code` is None where a trap ended it; `misuses` are what it did wrong with the model.

    `regions` are stretches between markers, in order: what the program wrote there, 0 before the first. `executed`
    int64 [n] counts each instruction of `machine.code`; what else is known of them is in `machine`.
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
) -> Run:
    """Run `image` to its end: a store to HALT, a trap, or the limit.

    `writes` are put into RAM after the program; `reads` are (address, size) to give back afterwards. `offsets` are
    what `start_GEMM` should be given in each region, the negated zero point of its input: another is noted. `cfu` takes
    the place of the model (None). Raises ProgramError for what does not fit into RAM.
    """
    ram = np.zeros(config.ram_bytes, np.uint8)
    for segment in image.segments:
        _put(ram, image.name, segment.address, segment.data, segment.size)
    for address, data in (writes or {}).items():
        _put(ram, "writes", address, data, len(data))
    low, high = min(part.start for part in image.code), max(part.stop for part in image.code)
    low, high = low & -LINE_BYTES, (high & -LINE_BYTES) + LINE_BYTES  # the loop looks one instruction ahead
    if not RAM_BASE <= low <= high <= RAM_BASE + len(ram) or high - low > MAX_CODE_BYTES:
        raise ProgramError(image.name, f"code at {low:#x}..{high:#x} is not in RAM, or larger than 16 MiB")
    code = decode(ram[low - RAM_BASE : high - RAM_BASE].view("<u4"), low)
    costs = MODELS[timing].costs
    regs = registers(config)
    m = machine(config, code, low, ram, regs, buffers(config), costs.write_slots)
    devices = Devices(offsets=offsets or {})
    with seam(cfu, regs) as execute:
        trap = _go(m, costs, image.entry, execute, devices, max_instructions)

    cpu = m.cpu
    cpu[Cpu.RETIRED] += cpu[Cpu.POSITION] - cpu[Cpu.FIRST]
    cpu[Cpu.FIRST] = cpu[Cpu.POSITION]
    m.entered[cpu[Cpu.POSITION]] -= 1
    found = {name: _get(ram, name, address, size) for name, (address, size) in (reads or {}).items()}
    return Run(
        exit_code=devices.exit_code,
        trap=trap,
        cycles=int(cpu[Cpu.CYCLE]),
        instret=int(cpu[Cpu.RETIRED]),
        text=devices.text.decode("utf-8", "replace"),
        reads=found,
        regions=_regions([*devices.marks, system.mark(m)]),
        misuses=notes(m.cfu) if cfu is None else (),
        machine=m,
        executed=np.cumsum(m.entered)[:-1],
    )


def _go(m: Machine, costs: Costs, entry: int, execute: Any, devices: Devices, limit: int) -> Trap | None:
    """Run until the program ends; the trap if it is one."""
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
        cpu[Cpu.LIMIT] = min(limit, retired + SLICE)
        loop(m, costs, execute)
        if cpu[Cpu.REASON] == state.TO_LIMIT:
            if cpu[Cpu.RETIRED] >= limit:
                return _trap(m, f"limit of {limit} instructions")
        elif kind := handlers[int(cpu[Cpu.REASON])]():
            return _trap(m, kind)
    return None


def _regions(marks: list[Mark]) -> tuple[Region, ...]:
    """The stretches that end at each mark."""
    found, before = [], Mark(0, 0, 0, np.zeros(len(Cause), np.int64), 0, 0)
    for mark in marks:
        lost = {cause.name.lower(): int(mark.lost[cause] - before.lost[cause]) for cause in Cause}
        cycles, instructions = mark.cycle - before.cycle, mark.instructions - before.instructions
        lost = {cause: count for cause, count in lost.items() if count}
        moved = mark.read - before.read, mark.written - before.written
        found.append(Region(before.region, cycles, instructions, lost, *moved))
        before = mark
    return tuple(region for region in found if region.cycles)


def _trap(m: Machine, kind: str) -> Trap:
    cpu = m.cpu
    return Trap(kind, m.base + 4 * int(cpu[Cpu.POSITION]), int(cpu[Cpu.CYCLE]), int(cpu[Cpu.ADDRESS]))


def _put(ram: Array, what: str, address: int, data: bytes, size: int) -> None:
    at = _inside(ram, what, address, size)
    ram[at : at + len(data)] = np.frombuffer(data, np.uint8)


def _get(ram: Array, what: str, address: int, size: int) -> bytes:
    at = _inside(ram, what, address, size)
    return ram[at : at + size].tobytes()


def _inside(ram: Array, what: str, address: int, size: int) -> int:
    at = address - RAM_BASE
    if at < 0 or size < 0 or at + size > len(ram):
        reason = f"{size} bytes at {address:#x} are not in RAM, {RAM_BASE:#x}..{RAM_BASE + len(ram):#x}"
        raise ProgramError(what, reason, "link for that range, or set ram_bytes")
    return at
