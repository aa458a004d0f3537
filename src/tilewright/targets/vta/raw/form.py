"""Folders of raw binaries, as the compiler of onera/standalone-vta writes them; docs/vta.md, Programs of others.

A program of such a folder is some files with a common end of their names, NAME below, which may be empty:

    instructionsNAME.bin        instructions, 16 bytes each
    uopNAME.bin                 micro-ops, 4 bytes each
    inputNAME.bin, weightNAME.bin, accumulatorNAME.bin, add_accumulatorNAME.bin
                                what is in DRAM before the run; empty files hold nothing
    memory_addressesNAME.csv    where in DRAM: a line for each file, of the words below
    expected_outNAME.bin        what must be in DRAM after the run

A line is `INP,0x1000,0x100`: a kind, a physical address, and the index by which instructions address the same place, in
tiles of the kind's memory. The index counts: a folder made with an offset of DRAM has indices without it. Older folders
have `inp,0x1000`, a byte address. Their inp, wgt and out have the address 0, because a test bench fills those memories
itself; such data lie where the first tile is that the instructions transfer.
"""

from __future__ import annotations

from typing import NamedTuple

from tilewright.targets.vta.isa.fields import Memory, Opcode

CODE, ADDRESSES, EXPECTED = "instructions", "memory_addresses", "expected_out"
#: Bytes of a page of DRAM: each file begins on one.
PAGE = 1 << 12


class Kind(NamedTuple):
    """A kind of data: the start of its file's name, the memory that it is loaded into, and the opcode that moves it."""

    file: str
    memory: Memory
    opcode: Opcode = Opcode.LOAD


#: By the word in the list of addresses, in the order in DRAM. INSN is not here: no instruction addresses it.
KINDS = {
    "INP": Kind("input", Memory.INP),
    "WGT": Kind("weight", Memory.WGT),
    "ACC": Kind("accumulator", Memory.ACC),
    "ACC_BIS": Kind("add_accumulator", Memory.ACC),
    "OUT": Kind(EXPECTED, Memory.OUT, Opcode.STORE),
    "UOP": Kind("uop", Memory.UOP),
}
