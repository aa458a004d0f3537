"""The control registers of this package's gateware: the one description for its RTL, its README and the C header."""

from __future__ import annotations

from typing import NamedTuple

#: Regions of DRAM whose base the host sets, as instructions name them.
REGIONS = ("uop", "inp", "wgt", "acc", "out")
#: The window of the block on AXI4-Lite: the smallest that interconnects map.
WINDOW_BITS = 12


class Register(NamedTuple):
    """32 bits at a byte offset of the block; `written`: by the host, which may always read it."""

    offset: int
    name: str
    written: bool
    meaning: str

    @property
    def access(self) -> str:
        return "write, read" if self.written else "read"


#: Offsets as in upstream's Chisel design (shell/VCR.scala, 32-bit addresses), which has status in bit 1 of control.
MAP = (
    Register(0x00, "control", True, "bit 0: launch"),
    Register(0x04, "cycles", False, "cycles from the launch until FINISH ended"),
    Register(0x08, "insn_count", True, "instructions, of 16 bytes each"),
    Register(0x0C, "insn_base", True, "address of the first instruction"),
    *(
        Register(0x10 + 4 * number, f"{name}_base", True, f"address that {name} tiles are counted from")
        for number, name in enumerate(REGIONS)
    ),
    Register(0x28, "status", False, "bit 0: done"),
)
