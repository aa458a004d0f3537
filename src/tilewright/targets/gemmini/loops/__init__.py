"""Hardware loops: expand LOOP_WS and LOOP_CONV_WS to the primitive commands that the unrollers issue.

`expand` tracks the registers of both unrollers through a program. `limits.py` rejects register values that the hardware
cannot run. `matmul.py` and `conv.py` generate the five streams of a loop, and `words.py` encodes their commands.
`flight.py` finds races between overlapping loops. timing/unroll.py merges the streams, in an order that depends on
time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.sim.findings import Finding
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.fields import Funct, codes
from tilewright.targets.gemmini.isa.work import QUEUES
from tilewright.targets.gemmini.loops import conv, limits, matmul
from tilewright.targets.gemmini.loops.flight import Flight, OperandRows, findings, spans
from tilewright.targets.gemmini.loops.words import (
    CONV,
    EXECUTE,
    LOAD_A,
    LOAD_B,
    LOAD_D,
    MATMUL,
    STARTS,
    STORE,
    STREAMS,
    UNROLLER,
    OnChip,
    register_writes,
)


class LoopCommands(NamedTuple):
    """The L loops of a program with n commands and m primitive commands."""

    run: Array  # int64 [n]: the index of the loop that a command starts, or -1
    at: Array  # int64 [m, 3]: see words.CommandStream
    idle: Array  # int64 [m]: see words.CommandStream
    starts: Array  # int64 [L, 6]: the first index in `prims` of a loop's five streams, then the end
    tail: Array  # int64 [L]: see words.CommandStream (of the execute stream)
    residual: Array  # bool [L]: the loop is a residual addition


@dataclass(frozen=True, eq=False)
class Expansion:
    """The m primitive commands that the reservation station receives for a program of n commands.

    The host's primitive commands and the loops are in program order. A loop is stored as five streams, one after the
    other, which the hardware merges (timing/unroll.py).
    """

    commands: Array  # uint64 [n, 3]: funct, rs1, rs2
    prims: Array  # uint64 [m, 3]
    source: Array  # int64 [m]: the index of the program's command that issues a primitive command
    unroller: Array  # int8 [m]: HOST, MATMUL or CONV (words.py)
    entry: Array  # int64 [n]: the index in `prims` of a primitive command, or -1
    loops: LoopCommands
    findings: tuple[Finding, ...]  # races between loops in flight (flight.py)

    @cached_property
    def kind(self) -> Array:
        """The queue of each primitive command (LD, EX or ST), int8 [m]."""
        return QUEUES[codes(self.prims)].astype(np.int8)

    @cached_property
    def order(self) -> Array:
        """A legal order of execution, as indices into `prims`, int64 [m]."""
        # Loops run one after the other. Within a loop, loads come first. A residual addition needs A before B.
        order = np.arange(len(self.prims))
        for starts in self.loops.starts:
            parts = [np.arange(low, high) for low, high in pairwise(starts)]
            order[starts[0] : starts[-1]] = np.concatenate([parts[x] for x in (LOAD_D, LOAD_A, LOAD_B, EXECUTE, STORE)])
        return order


#: An unroller executes this number of loops concurrently. Loop n uses register set n % SETS.
SETS = 2
#: The name of the register with the DRAM address of each stream; "" for a stream without an address.
ADDRESSES = {MATMUL: ("c", "", "d", "b", "a"), CONV: ("output", "", "bias", "weights", "input")}
#: Commands that the reservation station never receives.
ABSENT = (Funct.FLUSH, Funct.COUNTER, Funct.FENCE, *UNROLLER)
MOVES = (Funct.MVIN, Funct.MVIN2, Funct.MVIN3, Funct.MVOUT)


class Form(NamedTuple):
    """The five streams, one after the other, of all loops that differ only in DRAM addresses.

    `words`, `at` and `idle` are the fields of words.CommandStream for DRAM addresses of 1. `base`, int64 [n], is the
    stream whose DRAM address a command uses, or len(STREAMS) for a command without an address. `ends`, int64 [6], has
    the first index of each stream, then the end of the last stream.
    """

    words: Array
    at: Array
    idle: Array
    base: Array
    ends: Array
    tail: int
    spans: tuple[OperandRows, ...]


def form(unroller: int, registers: dict[str, int], place: OnChip, config: Config) -> Form:
    """Return the form of a loop whose DRAM addresses are 1, or 0 for absent operands."""
    # With the address 1, a move has the address 1 + its offset in the operand. A network starts the same loop thousands
    # of times with different addresses, so Unroller.start adds these addresses to a copy of the form.
    streams = (matmul if unroller == MATMUL else conv).streams(registers, place, config)
    words, at, idle = (np.concatenate(parts) for parts in zip(*(stream[:3] for stream in streams), strict=True))
    sizes = [len(stream.words) for stream in streams]
    moves = np.isin(words[:, 0], MOVES) & (words[:, 1] > 0)
    base = np.where(moves, np.repeat(np.arange(len(STREAMS)), sizes), len(STREAMS))
    ends = np.cumsum([0, *sizes])
    return Form(words, at, idle, base, ends, streams[EXECUTE].tail, spans(unroller, registers, place, config))


class Loop(NamedTuple):
    """A loop of a program: its form, and the form's words with the loop's DRAM addresses."""

    flight: Flight
    form: Form
    words: Array


@dataclass
class Unroller:
    """The registers of an unroller, and the accumulator half that the next loop uses."""

    number: int
    config: Config
    sets: list[dict[str, int]] = field(default_factory=lambda: [{} for _ in range(SETS)])
    loops: int = 0
    half: int = 0
    forms: dict[tuple[object, ...], Form] = field(default_factory=dict)

    def start(self, command: int) -> Loop:
        slot = self.loops % SETS
        # Register sets alternate and keep their values, so loop n begins with the register values of loop n - SETS.
        config = self.config
        names = ADDRESSES[self.number]
        registers = self.sets[slot]
        form_registers = registers | {name: int(registers[name] > 0) for name in names if name in registers}
        key = (slot, self.half, tuple(sorted(form_registers.items())))
        if key not in self.forms:
            limits.complete(self.number, registers, command)
            place = self._place(registers, slot)
            limits.check(self.number, registers, command, place, config)
            self.forms[key] = form(self.number, form_registers, place, config)
        shape = self.forms[key]
        words = shape.words.copy()
        words[:, 1] += np.array([*(max(registers.get(name, 1), 1) - 1 for name in names), 0], np.uint64)[shape.base]
        # Loops add to the sums in one half of the accumulator, up to a loop that stores results. The next loop uses the
        # other half.
        self.loops += 1
        if registers[names[0]]:
            self.half = (self.half + 1) % SETS
        residual = self.number == MATMUL and bool(registers["resadd"])
        return Loop(Flight(command, self.number, residual, shape.spans), shape, words)

    def _place(self, registers: dict[str, int], slot: int) -> OnChip:
        spad = self.config.all_spad_rows // SETS
        acc = self.config.acc_rows // SETS
        if self.number == MATMUL and registers["resadd"]:
            return OnChip(slot * acc, slot * acc, slot * acc)
        a, b = (registers[f"{name}_spad"] - 1 if registers[f"{name}_spad"] else slot for name in "ab")
        return OnChip(a * spad, (b + 1) * spad, self.half * acc)


def expand(commands: Array, config: Config) -> Expansion:
    """Expand the loops of a program.

    `commands` is uint64 [n, 3]: funct, rs1, rs2. Raises ProgramError if the registers of a loop are illegal.
    """
    loops = _loops(commands, config)
    starts = np.array([loop.flight.command for loop in loops], np.int64)
    before = np.cumsum([0, *(len(loop.words) for loop in loops)])  # the size of all earlier loops
    host = np.flatnonzero(~np.isin(commands[:, 0], ABSENT))
    entry, run = np.full((2, len(commands)), -1)
    entry[host] = np.arange(len(host)) + before[np.searchsorted(starts, host)]
    run[starts] = np.arange(len(loops))
    m = len(host) + int(before[-1])
    prims = np.empty((m, 3), np.uint64)
    source = np.empty(m, np.int64)
    at = np.zeros((m, 3), np.int64)
    idle = np.zeros(m, np.int64)
    unroller = np.zeros(m, np.int8)
    prims[entry[host]] = commands[host]
    source[entry[host]] = host
    first = np.searchsorted(host, starts) + before[:-1]
    for low, loop in zip(first.tolist(), loops, strict=True):
        part = slice(low, low + len(loop.words))
        prims[part] = loop.words
        at[part] = loop.form.at
        idle[part] = loop.form.idle
        source[part] = loop.flight.command
        unroller[part] = loop.flight.unroller
    flights = [loop.flight for loop in loops]
    ends = np.array([loop.form.ends for loop in loops], np.int64).reshape(-1, len(STREAMS) + 1)
    tail = np.array([loop.form.tail for loop in loops], np.int64)
    residual = np.array([flight.residual for flight in flights], np.bool_)
    streams = LoopCommands(run, at, idle, ends + first[:, None], tail, residual)
    races = tuple(findings(flights, commands[:, 0]))
    return Expansion(commands, prims, source, unroller, entry, streams, races)


def _loops(commands: Array, config: Config) -> list[Loop]:
    unrollers = {number: Unroller(number, config) for number in (MATMUL, CONV)}
    loops = []
    for row, values in sorted(register_writes(commands).items()):
        funct = Funct(int(commands[row, 0]))
        unroller = unrollers[UNROLLER[funct]]
        unroller.sets[unroller.loops % SETS] |= values
        if funct in STARTS:
            loops.append(unroller.start(row))
    return loops
