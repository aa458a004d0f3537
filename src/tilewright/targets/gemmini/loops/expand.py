"""Expand the hardware loops of a program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from tilewright.array import Array
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.fields import Funct
from tilewright.targets.gemmini.loops import conv, legal, matmul
from tilewright.targets.gemmini.loops.expansion import Expansion
from tilewright.targets.gemmini.loops.flight import Flight, findings, flight
from tilewright.targets.gemmini.loops.registers import CONV, HOST, MATMUL, STARTS, UNROLLER, settings
from tilewright.targets.gemmini.loops.stream import EXECUTE, Place, Stream

#: Loops that an unroller works on at once. Each has registers of its own; loop n uses set n % SETS.
SETS = 2


@dataclass
class Unroller:
    """The registers of an unroller, and the half of the accumulator that its next loop uses."""

    number: int
    config: Config
    sets: list[dict[str, int]] = field(default_factory=lambda: [{} for _ in range(SETS)])
    loops: int = 0
    half: int = 0

    def configure(self, registers: dict[str, int]) -> None:
        self.sets[self.loops % SETS] |= registers

    def start(self, command: int) -> tuple[list[Stream], Flight]:
        """Return the streams of the next loop, which `command` starts, and where it lies."""
        slot, config = self.loops % SETS, self.config
        registers = self.sets[slot]
        legal.check(self.number, registers, command, config)
        spad, acc = config.all_spad_rows // SETS, config.acc_rows // SETS
        a, b = (registers[f"{name}_spad"] - 1 if registers[f"{name}_spad"] else slot for name in "ab")
        place = Place(a * spad, (b + 1) * spad, self.half * acc)
        residual = self.number == MATMUL and bool(registers["resadd"])
        if residual:
            place = Place(slot * acc, slot * acc, slot * acc)
        streams = (matmul if self.number == MATMUL else conv).streams(registers, place, config)
        self.loops += 1
        if registers["c" if self.number == MATMUL else "output"]:
            self.half = (self.half + 1) % SETS
        return streams, flight(command, self.number, registers, place, config)


@dataclass
class _Parts:
    """Runs of primitive commands, in program order."""

    words: list[Array] = field(default_factory=list)
    at: list[Array] = field(default_factory=list)
    idle: list[Array] = field(default_factory=list)
    source: list[Array] = field(default_factory=list)
    unroller: list[Array] = field(default_factory=list)
    length: int = 0

    def add(self, part: Stream, source: Array | int, unroller: int) -> None:
        n = len(part.words)
        self.words.append(part.words)
        self.at.append(part.at)
        self.idle.append(part.idle)
        self.source.append(np.broadcast_to(np.asarray(source, np.int64), n))
        self.unroller.append(np.full(n, unroller, np.int8))
        self.length += n


def expand(commands: Array, config: Config) -> Expansion:
    """Expand the loops of a program.

    `commands` is uint64 [n, 3]: funct, rs1, rs2. Raises ProgramError if the registers of a loop are illegal.
    """
    n = len(commands)
    parts = _Parts()
    entry, run = np.full(n, -1), np.full(n, -1)
    unrollers = {number: Unroller(number, config) for number in (MATMUL, CONV)}
    registers = settings(commands)
    starts: list[list[int]] = []
    flights: list[Flight] = []
    tails: list[int] = []
    for low, high in _between_loops(commands[:, 0]):
        host = np.arange(low, high)[_primitive(commands[low:high, 0])]
        entry[host] = parts.length + np.arange(len(host))
        parts.add(Stream(commands[host], np.zeros((len(host), 3), np.int64), np.zeros(len(host), np.int64)), host, HOST)
        if high == n:
            break
        funct = Funct(int(commands[high, 0]))
        unroller = unrollers[UNROLLER[funct]]
        unroller.configure(registers[high])
        if funct not in STARTS:
            continue
        streams, own = unroller.start(high)
        run[high] = len(starts)
        starts.append([parts.length])
        flights.append(own)
        tails.append(streams[EXECUTE].tail)
        for part in streams:
            parts.add(part, high, unroller.number)
            starts[-1].append(parts.length)
    return Expansion(
        commands=commands,
        prims=np.concatenate(parts.words),
        source=np.concatenate(parts.source),
        unroller=np.concatenate(parts.unroller),
        at=np.concatenate(parts.at),
        idle=np.concatenate(parts.idle),
        entry=entry,
        run=run,
        starts=np.array(starts, np.int64).reshape(-1, 6),
        residual=np.array([each.residual for each in flights], np.bool_),
        tail=np.array(tails, np.int64),
        findings=tuple(findings(flights, commands[:, 0])),
    )


def _between_loops(functs: Array) -> Iterator[tuple[int, int]]:
    """Yield the ranges between commands of the unrollers; each range ends at such a command, or at the end."""
    low = 0
    for high in np.flatnonzero(np.isin(functs, list(UNROLLER))).tolist():
        yield low, high
        low = high + 1
    yield low, len(functs)


def _primitive(functs: Array) -> Array:
    """Return a bool [n] mask of the commands that the reservation station receives."""
    absent = (Funct.FLUSH, Funct.COUNTER, Funct.FENCE)
    mask: Array = ~np.isin(functs, absent)
    return mask
