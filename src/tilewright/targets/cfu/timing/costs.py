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

    load_use: int  # a load's result used by the next instruction; one less by the next but one
    shift_use: int  # a shift's result used by the next instruction
    multiply_use: int  # a product's likewise
    divide: int  # DIV, DIVU, REM, REMU
    divide_use: int  # their result used by the next instruction
    taken: int  # a branch that is predicted taken, backward, and is
    mispredicted: int  # a branch that goes the other way than predicted
    jump: int  # JAL
    jump_register: int  # JALR
    drain: int  # from a load, store or jump to a custom-0 or CSR instruction, if there is nothing else between
    csr_use: int  # a CSR's value used by the next instruction
    flush_code: int  # FENCE.I, besides one a line
    flush_data: int  # a flush of the data cache, besides one a line
    word: int  # the bus, for each word that the L2 cache holds
    request: int  # from the CPU to the bus
    grant: int  # the bus passes from instructions to data, or back
    restart: int  # after a line is in the L1 cache, until the instruction is executed again
    write_slots: int  # stores that wait for the bus before the CPU does
    redo: int  # a load of a word stored one or two cycles before
    l2_miss: int  # an L2 miss, besides what the DRAM takes
    dram_read: int  # a line from an open row
    dram_row: int  # another row has to be opened first
    dram_write: int  # a line written back
    io: int  # a load from a device; stores are posted


@dataclass(frozen=True)
class Timing:
    """A timing model: its costs and what they rest on."""

    costs: Costs
    source: TimingModel


SOURCED = Costs(
    load_use=2,  # RTL
    shift_use=1,  # RTL
    multiply_use=2,  # RTL
    divide=33,  # RTL
    divide_use=1,  # RTL
    taken=1,  # RTL
    mispredicted=2,  # RTL
    jump=1,  # RTL
    jump_register=2,  # RTL
    drain=3,  # RTL
    csr_use=1,  # RTL
    flush_code=3,  # RTL
    flush_data=2,  # RTL
    word=2,  # LiteX: wishbone.Cache answers in its second state
    request=1,  # RTL
    grant=1,  # LiteX: the arbiter's grant is a register
    restart=3,  # RTL
    write_slots=2,  # RTL
    redo=5,  # RTL
    l2_miss=1,  # LiteX
    dram_read=15,  # LiteDRAM: open row, 128 bits
    dram_row=5,  # LiteDRAM
    dram_write=16,  # LiteDRAM: posted 6, with a row change 19..22
    io=3,  # RTL, with a device that answers in the second cycle
)

MODELS = {
    "sourced": Timing(
        SOURCED,
        TimingModel("sourced", "CPU measured on its RTL; bus, caches and DRAM from LiteX and LiteDRAM; nothing fitted"),
    ),
    "fitted": Timing(
        SOURCED._replace(dram_read=20),  # fitted; 15 in LiteDRAM's simulation
        TimingModel(
            "fitted",
            "as sourced, but for one number: the DRAM's read latency, fitted to the seven published times of ResNet-8",
        ),
    ),
}
