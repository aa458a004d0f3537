"""What everything costs on the CPU and its memories: one table a timing model, each number with its source.

Sources: *RTL*: measured on VexRiscv_FullCfu (litex-hub/pythondata-cpu-vexriscv 1.0.1.post407) under Verilator, with
LiteX's bus and caches behind it; *LiteX*: read from its source; *LiteDRAM*: measured in its simulation; *fitted*.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tilewright.targets.base import TimingModel


class Costs(NamedTuple):
    """Cycles, as the loop takes them. An instruction takes one; these come on top unless said otherwise."""

    load_use: int = 2  # RTL: a load's result used by the next instruction; one less by the next but one
    shift_use: int = 1  # RTL: a shift's result used by the next instruction
    multiply_use: int = 2  # RTL: a product's likewise
    divide: int = 33  # RTL: DIV, DIVU, REM, REMU
    divide_use: int = 1  # RTL: their result used by the next instruction
    taken: int = 1  # RTL: a branch that is predicted taken, backward, and is
    mispredicted: int = 2  # RTL: a branch that goes the other way than predicted
    jump: int = 1  # RTL: JAL
    jump_register: int = 2  # RTL: JALR
    drain: int = 3  # RTL: from a load, store or jump to a custom-0 or CSR instruction, if nothing else is between
    csr_use: int = 1  # RTL: a CSR's value used by the next instruction
    flush_code: int = 3  # RTL: FENCE.I, besides one a line
    flush_data: int = 2  # RTL: a flush of the data cache, besides one a line
    word: int = 2  # LiteX: a word that the L2 cache holds: wishbone.Cache answers in its second state
    request: int = 1  # RTL: from the CPU to the bus
    grant: int = 1  # LiteX: from instructions to data, or back: the arbiter's grant is a register
    restart: int = 3  # RTL: after a line is in the L1 cache, until the instruction is executed again
    write_slots: int = 2  # RTL: stores that wait for the bus before the CPU does
    redo: int = 5  # RTL: a load of a word stored one or two cycles before
    l2_miss: int = 1  # LiteX: an L2 miss, besides what the DRAM takes
    dram_read: int = 15  # LiteDRAM: a line, 128 bits, from an open row
    dram_row: int = 5  # LiteDRAM: another row has to be opened first
    dram_write: int = 16  # LiteDRAM: a line written back: posted 6, with a row change 19..22
    io: int = 3  # RTL, with a device that answers in the second cycle: a load from a device; stores are posted


@dataclass(frozen=True)
class Timing:
    """A timing model: its costs and what they rest on."""

    costs: Costs
    source: TimingModel


MODELS = {
    "sourced": Timing(
        Costs(),
        TimingModel("sourced", "CPU measured on its RTL; bus, caches and DRAM from LiteX and LiteDRAM; nothing fitted"),
    ),
    "fitted": Timing(
        Costs(dram_read=20),  # fitted; 15 in LiteDRAM's simulation
        TimingModel(
            "fitted",
            "as sourced, but for one number: the DRAM's read latency, fitted to the seven published times of ResNet-8",
        ),
    ),
}
