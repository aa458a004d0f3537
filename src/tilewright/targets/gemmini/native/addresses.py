"""Where the machine sees the host's memory: 32-bit addresses, although pointers of the host have 47 bits.

A pointer opens a window of memory around it, which lies in a slot of the machine's addresses. So addresses in a window
keep their distances and their place in a page. Small numbers are no pointers and stay: gemmini.h uses 0 and 1 for
absent operands.
"""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.errors import ProgramError
from tilewright.targets.gemmini.isa.fields import Funct

#: The size of a slot, its bytes below the first pointer, and the number of slots; slot 0 stays free. 4 GiB in all.
SLOT, BELOW, SLOTS = 1 << 28, 1 << 26, 16
PAGE = 4096
#: The first address that may be a pointer.
LEAST = 1 << 20
#: The registers of each funct that hold an address of DRAM.
ADDRESSES = {
    **dict.fromkeys((Funct.MVIN, Funct.MVIN2, Funct.MVIN3, Funct.MVOUT), ("rs1",)),
    **dict.fromkeys((Funct.LOOP_WS_AB, Funct.LOOP_WS_DC, Funct.LOOP_CONV_WS_5, Funct.LOOP_CONV_WS_6), ("rs1", "rs2")),
}


class HostAddresses:
    """The windows of one host's memory: `_first[k]` is the host's address at the begin of slot k + 1."""

    def __init__(self) -> None:
        self._first: list[int] = []

    def move(self, records: Array) -> None:
        """Replace the host's addresses in recorded commands by the machine's.

        Raises ProgramError if they lie in too many places.
        """
        for funct, registers in ADDRESSES.items():
            own = np.flatnonzero(records["funct"] == funct)
            for register in registers if len(own) else ():
                records[register][own] = self._machine(records[register][own].astype(np.int64))

    def _machine(self, pointers: Array) -> Array:
        moved, left = pointers.copy(), pointers >= LEAST
        for slot, first in enumerate(self._first, 1):
            inside = left & (pointers >= first) & (pointers < first + SLOT)
            moved[inside] += slot * SLOT - first
            left &= ~inside
        if not left.any():
            return moved
        pointer = int(pointers[left][0])
        if len(self._first) == SLOTS - 1:
            raise ProgramError(f"{pointer:#x}", "is too far from all other arrays", "keep arrays in one allocation")
        self._first.append(pointer // PAGE * PAGE - BELOW)
        return self._machine(pointers)

    def host(self, address: int, size: int) -> int:
        """Return the host's address of bytes of the machine. Raises ProgramError if they are in no window."""
        slot = address // SLOT
        if not 1 <= slot <= len(self._first) or (address + size - 1) // SLOT != slot:
            raise ProgramError(
                f"{size} bytes at {address:#x}", "are not near a pointer of the program", "give a pointer to an array"
            )
        return self._first[slot - 1] + address % SLOT
