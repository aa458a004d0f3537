"""What a program did wrong with the CFU, in words: the RTL goes on with wrong values, and so does the model."""

from __future__ import annotations

from typing import NamedTuple

from tilewright.array import Array
from tilewright.targets.cfu.jit import callee

from .state import MAX_NOTES, NOTE, Misuse, Reg

WHAT = {
    Misuse.WRITE_BUSY: "writes a buffer while the array works: the row is lost",
    Misuse.READ_BUSY: "reads C while the array works: the sums are not there yet",
    Misuse.START_BUSY: "starts the array while it works: the rest of the launch before is lost",
    Misuse.HALF_ROW: "starts with a row half written: an odd number of set instructions",
    Misuse.PARTIAL_READ: "starts in the middle of reading a row of C: the next read does not begin at its first lane",
    Misuse.ROWS: "uses a row beyond the buffer, which wraps to its beginning",
    Misuse.OFFSET: "starts with an offset that is not the negated zero point of the input, or needs more than 9 bits",
    Misuse.EMPTY: "starts a product without rows or columns, which never ends, or without depth",
    Misuse.UNKNOWN: "is no instruction of this CFU: it returns the last answer once more",
}


@callee
def note(regs: Array, kind: int, cycle: int, detail: int) -> None:
    """One note for each kind and pc: the first time, and how often."""
    count = regs[Reg.NOTED]
    for index in range(count):
        at = Reg.NOTES + NOTE * index
        if regs[at] == kind and regs[at + 1] == regs[Reg.PC]:
            regs[at + 3] += 1
            return
    if count < MAX_NOTES:
        at = Reg.NOTES + NOTE * count
        regs[at], regs[at + 1], regs[at + 2] = kind, regs[Reg.PC], cycle
        regs[at + 3], regs[at + 4], regs[at + 5] = 1, regs[Reg.REGION], detail
        regs[Reg.NOTED] = count + 1


class Note(NamedTuple):
    """A misuse by the instruction at `pc`: how often, and when first; `detail` is the number in question."""

    kind: str
    pc: int
    cycle: int
    times: int
    region: int
    detail: int

    @property
    def message(self) -> str:
        return WHAT[Misuse[self.kind.upper()]]


def notes(regs: Array) -> tuple[Note, ...]:
    """The notes in the CFU's registers, in the order in which they happened first."""
    rows = regs[Reg.NOTES : Reg.NOTES + NOTE * int(regs[Reg.NOTED])].reshape(-1, NOTE).tolist()
    return tuple(Note(Misuse(kind).name.lower(), *rest) for kind, *rest in rows)
