"""The recorded commands of a host program in C, and their effect on the machine.

A run starts at a fence, or at the end of a function of gemmini.h. A run computes the values of the commands since the
previous run. The memories keep their values between runs. Hazards and times are computed for all commands together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from tilewright.array import Array
from tilewright.errors import HazardError, MachineError, ProgramError
from tilewright.program.launch_image import Dram, Segment
from tilewright.sim.findings import RACE, Finding
from tilewright.sim.passes import RunOptions
from tilewright.targets.gemmini.config import Config
from tilewright.targets.gemmini.isa.fields import Funct
from tilewright.targets.gemmini.isa.text import line
from tilewright.targets.gemmini.passes import Passes
from tilewright.targets.gemmini.values.machine import Machine

#: The size of a slot of machine addresses in bytes, the number of its bytes below the first pointer, and the number of
#: slots. Slot 0 is unused.
SLOT = 1 << 28
BELOW = 1 << 26
SLOTS = 16
PAGE = 4096
#: The smallest address that may be a pointer.
LEAST = 1 << 20
#: The registers with a DRAM address, by funct.
ADDRESSES = {
    **dict.fromkeys((Funct.MVIN, Funct.MVIN2, Funct.MVIN3, Funct.MVOUT), ("rs1",)),
    **dict.fromkeys((Funct.LOOP_WS_AB, Funct.LOOP_WS_DC, Funct.LOOP_CONV_WS_5, Funct.LOOP_CONV_WS_6), ("rs1", "rs2")),
}


class HostAddresses:
    """The mapping from a host's pointers (47 bits) to the machine's addresses (32 bits)."""

    def __init__(self) -> None:
        # For a pointer outside of all windows, a new window of host memory around the pointer is mapped to the next
        # slot. The mapping preserves distances within a window, and offsets in a page. Small numbers stay unchanged:
        # gemmini.h uses 0 and 1 for absent operands. `_first[k]` is the host address of the first byte of slot k + 1.
        self._first: list[int] = []

    def move(self, records: Array) -> None:
        """Replace host addresses by machine addresses. Raises ProgramError if the addresses need too many slots."""
        for funct, registers in ADDRESSES.items():
            moved = np.flatnonzero(records["funct"] == funct)
            for register in registers if len(moved) else ():
                records[register][moved] = self._machine(records[register][moved].astype(np.int64))

    def _machine(self, pointers: Array) -> Array:
        moved = pointers.copy()
        left = pointers >= LEAST
        for slot, first in enumerate(self._first, 1):
            inside = left & (pointers >= first) & (pointers < first + SLOT)
            moved[inside] += slot * SLOT - first
            left &= ~inside
        if not left.any():
            return moved
        pointer = int(pointers[left][0])
        if len(self._first) == SLOTS - 1:
            raise ProgramError(f"{pointer:#x}", "is too far from all other arrays", "allocate the arrays together")
        self._first.append(pointer // PAGE * PAGE - BELOW)
        return self._machine(pointers)

    def host(self, address: int, size: int) -> int:
        """Return the host address of bytes at a machine address. Raises ProgramError outside of all windows."""
        slot = address // SLOT
        if not 1 <= slot <= len(self._first) or (address + size - 1) // SLOT != slot:
            raise ProgramError(
                f"{size} bytes at {address:#x}", "are not near a pointer of the program", "give a pointer to an array"
            )
        return self._first[slot - 1] + address % SLOT


#: A recorded command (native/c/recorder.c).
RECORD = np.dtype([("rs1", "<u8"), ("rs2", "<u8"), ("funct", "<u4"), ("source", "<u4"), ("line", "<u4"), ("", "<u4")])


class Range(NamedTuple):
    """A range of bytes at a machine address."""

    address: int
    size: int


def united(first: Array, end: Array) -> list[Range]:
    """Return the union of ranges `first` to `end` (int64 [n] each) as sorted, disjoint ranges."""
    # Sort ranges by the first byte. A range begins a new result if all ranges before it end before its first byte.
    used = end > first
    order = np.argsort(first[used], kind="stable")
    low = first[used][order]
    reach = np.maximum.accumulate(end[used][order]) if used.any() else end[:0]
    begins = np.append(True, low[1:] > reach[:-1])[: len(low)]
    ends = np.append(begins[1:], True)[: len(low)]
    return [Range(a, b - a) for a, b in zip(low[begins].tolist(), reach[ends].tolist(), strict=True)]


class RecordedCommands:
    """The recorded commands of one host. `sources` has the names of its source files."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.sources = list[str]()
        self.addresses = HostAddresses()
        self.records = np.zeros(0, RECORD)
        self._machine = Machine(config, Dram([]), 1)
        self._ran = 0  # the number of commands that were executed

    def add(self, records: Array) -> None:
        """Append recorded commands. Raises ProgramError if their pointers need too many slots."""
        records = records.copy()
        self.addresses.move(records)
        self.records = np.concatenate([self.records, records])
        self.__dict__.pop("passes", None)

    @cached_property
    def passes(self) -> Passes:
        cmds = np.stack([self.records[name].astype(np.uint64) for name in ("funct", "rs1", "rs2")], axis=1)
        return Passes(cmds, self.config)

    def place(self, command: int) -> str:
        record = self.records[command]
        return f"{self.sources[record['source']]}:{record['line']}"

    def findings(self) -> tuple[Finding, ...]:
        """Return the hazards of all commands. The steps of a finding are primitive commands."""
        return (*self.passes.findings(RunOptions(None, True), placed=False), *self._unfenced())

    @property
    def _source(self) -> Array:
        return self.passes.hazards.source

    def _unfenced(self) -> Iterator[Finding]:
        fences = np.flatnonzero(self.records["funct"] == Funct.FENCE)
        stores = self.passes.work.stores.step
        for step in stores[self._source[stores] > np.append(-1, fences)[-1]][:1].tolist():
            command = int(self._source[step])
            name = line(self.passes.prims, step)
            yield Finding(
                RACE, f"#{command} `{name}` has no fence behind it: the CPU does not wait for its bytes", (step,)
            )

    def placed(self, steps: Sequence[int]) -> list[int]:
        return self.passes.places[list(steps)].tolist()

    def places(self, steps: Sequence[int]) -> str:
        return ", ".join(dict.fromkeys(self.place(int(self._source[step])) for step in steps))

    @property
    def cycles(self) -> int:
        """The number of cycles until the machine accepts the last command (a fence: until the machine is idle)."""
        if not len(self.records):
            return 0
        last = int(self.passes.times.accept[-1])
        return last if self.records["funct"][-1] == Funct.FENCE else last + 1

    def lines(self) -> list[dict[str, Any]]:
        """Return the source lines, sorted by their first command, with the number of their commands.

        `first` is the cycle in which the machine accepts the first command of the line, and `last` is the cycle in
        which the line's last command is done.
        """
        times = self.passes.times
        source = self.passes.expansion.source
        done = np.maximum.reduce([times.taken, times.issued, times.done])
        end = times.accept.copy()
        np.maximum.at(end, source, done)
        # Encode a source line as one number: the index of the file in the upper half, the line in the lower half.
        key = self.records["source"].astype(np.int64) << 32 | self.records["line"]
        _, first, line_of, count = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
        begins, ends = np.full(len(first), np.iinfo(np.int64).max), np.zeros(len(first), np.int64)
        np.minimum.at(begins, line_of, times.accept)
        np.maximum.at(ends, line_of, end)
        return [
            {"place": self.place(int(first[at])), "commands": int(count[at])}
            | {"first": int(begins[at]), "last": int(ends[at])}
            for at in np.argsort(first).tolist()
        ]

    def needed(self) -> list[Range]:
        """Return the memory ranges that the commands since the last run read or write.

        Raises HazardError, which names source lines, if the machine would stop or access rows outside of its memories.
        """
        for finding in self.passes.findings(RunOptions(None, False), placed=False):
            raise HazardError("program", f"{finding} ({self.places(finding.steps)})")
        _, first, end = (np.concatenate(pair) for pair in zip(*self._moves(), strict=True))
        return united(first, end)

    def _moves(self) -> Iterator[tuple[Array, Array, Array]]:
        """Yield steps and memory ranges since the last run: first of loads, then of stores."""
        plan = self.passes.plan
        for moves, (first, end) in ((plan.work.loads, plan.loads), (plan.work.stores, plan.stores)):
            new = self._source[moves.step] >= self._ran
            yield moves.step[new], first[new], end[new]

    def unknown(self, asked: Range) -> MachineError:
        """Return the error for an access outside of the host's memory, with the command that causes it."""
        pointer = self.addresses.host(*asked)
        reason = f"{asked.size} bytes at {pointer:#x} are not memory of the program"
        for steps, first, end in self._moves():
            for step in steps[(first < asked.address + asked.size) & (end > asked.address)][:1].tolist():
                where = f"{self.place(int(self._source[step]))}, `{line(self.passes.prims, step)}`"
                return MachineError(where, reason, "give a pointer to an array")
        return MachineError("program", reason)

    def run(self, content: Sequence[tuple[Range, Array]]) -> tuple[Dram, list[Range]]:
        """Compute the values of the commands since the last run.

        `content` has each range of `needed` with its bytes, uint8 [size]. Returns the memory, and the written ranges.
        """
        segments = [
            Segment(f"memory {part.address:#x}", part.address, np.array(data).reshape(1, -1)) for part, data in content
        ]
        self._machine.dram = memory = Dram(segments)
        _, (_, first, end) = self._moves()
        self._machine.run(self.passes.plan, np.flatnonzero(self._source >= self._ran))
        self._ran = len(self.records)
        return memory, united(first, end)
