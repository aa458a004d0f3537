"""Count the block RAMs of a memory on an FPGA of Xilinx's 7 series, without synthesis.

Yosys (synth_xilinx) makes each memory of one kind of block, in the aspect ratio that takes the fewest blocks, or else
of LUTs if they cost less. A memory whose parts are written one by one keeps each part in whole bytes of 9 bits. Costs
and ratios: Yosys 0.70, techlibs/xilinx, brams_xc4v.txt and lutrams_xc5v.txt. Tests compare the counts with Yosys's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

#: Data widths, parity bits included, and log2 of the bits without parity: RAMB18E1 and RAMB36E1.
HALF = ((1, 2, 4, 9, 18, 36), 14)
FULL = ((1, 2, 4, 9, 18, 36, 72), 15)
#: Yosys's costs of one RAMB18E1, one RAMB36E1, and one group of LUTs that holds 6 bits x 32 or 3 bits x 64.
HALF_COST = 129
FULL_COST = 257
LUT_COST = 8
LUT_RAMS = ((6, 32), (3, 64))
#: LUTs in such a group (RAM32M, RAM64M).
LUTS = 4
BYTE = 9


class Ram(NamedTuple):
    """`number` memories of `depth` words. A word has `parts` parts of `bits` bits; each part can be written alone."""

    name: str
    number: int
    depth: int
    parts: int
    bits: int

    @property
    def halves(self) -> int:
        """The number of halves of a RAMB36E1 that all these memories take; 0 if they are made of LUTs."""
        return self.number * min(self._choices())[1]

    @property
    def luts(self) -> int:
        """The number of LUTs that hold all these memories; 0 if they are made of block RAMs."""
        cost, halves = min(self._choices())
        return 0 if halves else self.number * LUTS * round(cost / LUT_COST)

    def _choices(self) -> Iterator[tuple[float, int]]:
        """Yield the cost of each way to make one memory, and its number of halves (0: of LUTs)."""
        for (widths, log), cost, halves in ((HALF, HALF_COST, 1), (FULL, FULL_COST, 2)):
            for width in widths:
                deep = -(-self.depth // ((1 << log) // (width - width // BYTE)))
                blocks = deep * self._across(width)
                yield blocks * cost, blocks * halves
        for width, rows in LUT_RAMS:
            yield LUT_COST * -(-self.depth // rows) * -(-self.parts * self.bits // width), 0

    def _across(self, width: int) -> int:
        """Return how many blocks of this width lie side by side."""
        if width < BYTE:
            return self.parts * -(-self.bits // width)
        if self.parts == 1:
            return -(-self.bits // width)
        return -(-self.parts * -(-self.bits // BYTE) // (width // BYTE))
