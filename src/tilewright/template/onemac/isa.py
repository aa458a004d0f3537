"""The instruction set: three instructions in one format, and their text.

    load  buf=0 dram=640 length=120 push               buf[0:120] = DRAM[640:760]
    dot   buf=0 wgt=120 acc=0 length=120 count=16 clear=1 zero=-128 pop push
    store acc=0 dram=4096 count=16 pop                 DRAM[4096:4160] = acc[0:16], int32

`dot`: acc[acc + j] += sum over k of (buf[buf + k] - zero) * buf[wgt + j * length + k], for j < count and k < length.
With `clear`, the accumulators are set to 0 first. With `pop`, the instruction waits for a token from the other unit
before it starts. With `push`, the instruction sends a token to the other unit when it ends.
"""

from __future__ import annotations

from enum import IntEnum

from tilewright.program.instruction import Field, InstructionSet, Layout


class Opcode(IntEnum):
    """The operation of an instruction."""

    LOAD = 0
    DOT = 1
    STORE = 2


class Unit(IntEnum):
    """The hardware units. The units run concurrently, and only tokens synchronise them."""

    DMA = 0
    MAC = 1


UNIT = {Opcode.LOAD: Unit.DMA, Opcode.DOT: Unit.MAC, Opcode.STORE: Unit.DMA}

LAYOUT = Layout(
    "instruction",
    (
        Field("opcode", 3, doc="Opcode"),
        Field("pop", 1, doc="wait for a token from the other unit"),
        Field("push", 1, doc="on completion, send a token to the other unit"),
        Field("clear", 1, doc="DOT: set the accumulators to 0 first"),
        Field("zero", 8, signed=True, doc="DOT: zero point of the inputs"),
        Field("buf", 16, doc="LOAD: first byte written; DOT: first input"),
        Field("wgt", 16, doc="DOT: first weight"),
        Field("acc", 16, doc="first accumulator"),
        Field("dram", 32, doc="first byte in DRAM"),
        Field("length", 16, doc="LOAD: bytes; DOT: products per accumulator"),
        Field("count", 16, doc="number of accumulators"),
    ),
    word_bits=64,
    words=2,
)
#: The fields that each instruction uses. All other fields must be 0.
OPERANDS = {
    Opcode.LOAD: ("buf", "dram", "length"),
    Opcode.DOT: ("buf", "wgt", "acc", "length", "count", "clear", "zero"),
    Opcode.STORE: ("acc", "dram", "count"),
}
ISA = InstructionSet(LAYOUT, "opcode", Opcode, OPERANDS, flags=("pop", "push"))
