"""What an instruction means where upstream's own implementations disagree: a set of named switches for each.

hls: hardware/xilinx/src/vta.cc; fsim: src/sim/sim_driver.cc; chisel: hardware/chisel (read, not run). Programs that
do not depend on any of this are portable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, eq=False)
class Semantics:
    """One implementation's choices; docs/vta.md tabulates them with their evidence."""

    name: str
    #: A memory of its own feeds STORE, written by GEMM and ALU; otherwise STORE truncates the accumulator.
    out_memory: bool
    #: A reset GEMM writes to that memory what it would have accumulated; otherwise it leaves it alone.
    reset_writes_out: bool
    #: LOAD honours padding of weights and micro-ops, and rows of micro-ops.
    full_loads: bool
    #: A LOAD of no columns still writes its padding.
    empty_loads_pad: bool
    #: LOAD ACC_8BIT is carried out; otherwise it is ignored.
    loads_acc_8bit: bool
    #: SHR: the low LOG_ACC_WIDTH bits as a signed amount, negative to the left; all bits; or the low bits, to the
    #: left by their negation where the immediate field is negative, even if the second operand is a tile.
    shift: Literal["low_signed", "full", "low_unsigned"]
    #: The ALU computes in 32 bits whatever the accumulator's width.
    wide_alu: bool
    #: MUL multiplies; otherwise it leaves the accumulator alone.
    multiplies: bool
    #: The immediate form of an ALU operation takes acc[src], not acc[dst], as its first operand.
    immediate_reads_src: bool


SEMANTICS = {
    item.name: item
    for item in (
        Semantics("hls", True, True, False, True, False, "low_signed", False, False, False),
        Semantics("fsim", False, False, True, False, True, "full", True, True, False),
        Semantics("chisel", True, False, True, False, False, "low_unsigned", False, False, True),
    )
}
