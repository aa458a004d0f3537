"""What lies at addresses of bit 31: a UART to write to, a device that ends the run, markers of regions.

LiteX's register area answers everywhere: what is not modelled reads as 0 and ignores writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tilewright.array import Array

AREA = range(0xF000_0000, 0xF001_0000)
UART = 0xF000_1800
UART_EMPTY = UART + 8  # of the receiver: nothing is ever received
HALT = 0xF000_2000
REGION = 0xF000_2004
MAX_TEXT = 1 << 20


class Mark(NamedTuple):
    """The counters when a region began; `lost` are cycles by cause, int64 [causes]. Region 0 is none.

    `read` and `written` are bytes of DRAM.
    """

    cycle: int
    region: int
    instructions: int
    lost: Array
    read: int
    written: int


@dataclass
class Devices:
    """`exit_code` is None while the program runs; `marks` are where the program wrote to REGION, in order.

    `offsets` are those that launches of a region should have.
    """

    text: bytearray = field(default_factory=bytearray)
    exit_code: int | None = None
    offsets: Mapping[int, int] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)

    def load(self, address: int) -> int | None:
        """The 32-bit value read there, None where nothing answers."""
        if address not in AREA:
            return None
        return 1 if address & ~3 == UART_EMPTY else 0

    def store(self, address: int, value: int) -> bool:
        """Whether something answers there; the text of a UART is kept up to MAX_TEXT."""
        if address == UART and len(self.text) < MAX_TEXT:
            self.text.append(value & 255)
        elif address == HALT:
            self.exit_code = value
        return address in AREA
