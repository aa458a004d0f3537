"""The commands of GDB's `monitor`: what no register shows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tilewright.targets.cfu.isa.memory import row_at, sums_at
from tilewright.targets.cfu.isa.state import Reg
from tilewright.targets.cfu.runtime.process import Process
from tilewright.targets.cfu.timing.state import Cause, Cpu

from .registers import settled

HELP = """cycles         cycles and instructions so far
waits          the cycles so far by cause
a|b|c ROW      a row of a buffer of the CFU's model"""


def lines(command: str, process: Process) -> Iterator[str]:
    """Execute a command; yield the lines of its answer."""
    name, *words = command.split() or ["help"]
    if name == "cycles" and not words:
        yield f"{int(process.m.cpu[Cpu.CYCLE]):,} cycles, {process.instructions:,} instructions"
    elif name == "waits" and not words:
        for cause, cycles in zip(Cause, process.m.lost.sum(axis=0).tolist(), strict=True):
            if cycles:
                yield f"{cycles:>15,}  {cause.name.lower()}"
    elif name in ("a", "b", "c") and len(words) == 1 and words[0].isdecimal():
        yield row(name, int(words[0][:9]), process) if process.seam.modelled else "only the built-in CFU has buffers"
    else:
        yield from HELP.split("\n")


def row(buffer: str, number: int, process: Process) -> str:
    """Return the values of a row of buffer a, b or c, as text."""
    regs, buffers = settled(process)
    lanes, rows = int(regs[Reg.LANES]), int(regs[Reg.ROWS])
    if number >= rows:
        return f"buffer {buffer} has the rows 0 to {rows - 1}"
    if buffer == "c":
        first = sums_at(regs, number)
        values = buffers[first : first + lanes]
    else:
        first = row_at(regs, "ab".index(buffer), number)
        values = buffers[first : first + lanes // 4].astype(">i4").view(np.int8)
    return " ".join(map(str, values.tolist()))
