"""Cycle costs of the CPU and its memories: one table per timing model, each number with its source.

Sources: *RTL*: measured by micro-benchmarks on VexRiscv_FullCfu (litex-hub/pythondata-cpu-vexriscv 1.0.1.post407) under
Verilator, connected to LiteX's bus and caches; *LiteX*: read from its source (wishbone.Cache and the arbiter
wishbone.InterconnectShared); *LiteDRAM*: measured in its simulation (2024.12, MT47H64M16 at 1:2); *fitted*: the only
number that is adjusted to the document's seven times of ResNet-8.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.targets import given
from tilewright.targets.base import TimingModel


class Costs(NamedTuple):
    """Costs in cycles. Most costs are in addition to the one cycle that each instruction takes."""

    load_use: int = 2  # RTL: the next instruction uses a load's result (1 cycle less: the second next uses it)
    shift_use: int = 1  # RTL: the next instruction uses a shift's result
    multiply_use: int = 2  # RTL: the next instruction uses a product
    divide: int = 33  # RTL: DIV, DIVU, REM, REMU
    divide_use: int = 1  # RTL: the next instruction uses the result of a division
    taken: int = 1  # RTL: a backward branch, correctly predicted as taken
    mispredicted: int = 2  # RTL: a mispredicted branch
    jump: int = 1  # RTL: JAL
    jump_register: int = 2  # RTL: JALR
    drain: int = 3  # RTL: from a load, store or jump to a directly following custom-0 or CSR instruction
    csr_use: int = 1  # RTL: the next instruction uses a CSR's value
    flush_code: int = 3  # RTL: FENCE.I, in addition to one cycle per line
    flush_data: int = 2  # RTL: a flush of the data cache, in addition to one cycle per line
    word: int = 2  # LiteX: a word from the L2 cache; wishbone.Cache answers in its second state
    request: int = 1  # RTL: from the CPU to the bus
    grant: int = 1  # LiteX: a switch between instructions and data, because the arbiter's grant is a register
    restart: int = 3  # RTL: from the end of an L1 line fill until the instruction is executed again
    write_slots: int = 2  # RTL: number of stores that can wait for the bus without stalling the CPU
    redo: int = 5  # RTL: a load of a word stored one or two cycles before
    l2_miss: int = 1  # LiteX: an L2 miss, in addition to the time of the DRAM
    dram_read: int = 15  # LiteDRAM: a line, 128 bits, from an open row
    dram_row: int = 5  # LiteDRAM: the row is not open
    dram_write: int = 16  # LiteDRAM: the write-back of a line; 6 if it is posted, 19..22 with a row change
    io: int = 3  # RTL: a load from a device that answers in its second cycle (stores do not wait)


SOURCED = given.Numbers(
    Costs(),
    TimingModel("sourced", "CPU measured on its RTL; bus, caches and DRAM from LiteX and LiteDRAM; nothing fitted"),
)
FITTED = given.Numbers(
    Costs(dram_read=20),  # LiteDRAM's simulation has 15
    TimingModel(
        "fitted",
        "like sourced, except the DRAM's read latency, which is fitted to the seven published times of ResNet-8",
    ),
)
MODELS = given.Models.of_numbers(SOURCED, FITTED, least=lambda key: int(key == "write_slots"))
