"""Count the block RAMs of a memory on an FPGA of Xilinx's 7 series, without synthesis.

Yosys (synth_xilinx) builds each memory from a single kind of block RAM, with the aspect ratio that needs the fewest
blocks, or from LUTs if these cost less. If the parts of a word can be written separately, each part has its own bytes
of 9 bits. The costs and ratios are those of Yosys 0.70, techlibs/xilinx, brams_xc4v.txt and lutrams_xc5v.txt. Tests
compare the counts with the counts of Yosys.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

#: RAMB18E1 and RAMB36E1: the possible data widths (with parity bits), and log2 of the capacity in bits (without
#: parity).
HALF = ((1, 2, 4, 9, 18, 36), 14)
FULL = ((1, 2, 4, 9, 18, 36, 72), 15)
#: Yosys's costs of a RAMB18E1, a RAMB36E1, and a group of LUTs. A group stores 32 words of 6 bits or 64 of 3 bits.
HALF_COST = 129
FULL_COST = 257
LUT_COST = 8
LUT_RAMS = ((6, 32), (3, 64))
#: The number of LUTs in a group (RAM32M, RAM64M).
LUTS = 4
BYTE = 9


class Ram(NamedTuple):
    """A group of `number` equal memories with `depth` words. A word has `parts` parts of `bits` bits.

    The parts have separate write enables.
    """

    name: str
    number: int
    depth: int
    parts: int
    bits: int

    @property
    def halves(self) -> int:
        """The number of RAMB18E1 for all these memories (a RAMB36E1 counts as two); 0 if they are made of LUTs."""
        return self.number * min(self._choices())[1]

    @property
    def luts(self) -> int:
        """The number of LUTs for all these memories; 0 if they are made of block RAMs."""
        cost, halves = min(self._choices())
        return 0 if halves else self.number * LUTS * round(cost / LUT_COST)

    def _choices(self) -> Iterator[tuple[float, int]]:
        """Yield the cost of each way to build one memory, and the size in RAMB18E1 (0: made of LUTs)."""
        for (widths, log), cost, halves in ((HALF, HALF_COST, 1), (FULL, FULL_COST, 2)):
            for width in widths:
                # The capacity does not include parity bits, so divide it by the width without parity bits.
                deep = -(-self.depth // ((1 << log) // (width - width // BYTE)))
                blocks = deep * self._across(width)
                yield blocks * cost, blocks * halves
        for width, rows in LUT_RAMS:
            yield LUT_COST * -(-self.depth // rows) * -(-self.parts * self.bits // width), 0

    def _across(self, width: int) -> int:
        if width < BYTE:
            return self.parts * -(-self.bits // width)
        if self.parts == 1:
            return -(-self.bits // width)
        return -(-self.parts * -(-self.bits // BYTE) // (width // BYTE))
