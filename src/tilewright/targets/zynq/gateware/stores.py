"""The paged stores in dual-port block RAM: one port for the engine, one for the PS, which moves whole blocks.

A store holds one block; the block register names it. The engine's access to another block is a miss: the engine stops
until the PS has moved that block (paging.py).
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Elaboratable, Module, Signal
from amaranth.lib import wiring
from amaranth.lib.memory import Memory
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2


class Read(wiring.Signature):
    """An access of the engine to a word of a store. `data` is the word a cycle after an access that does not miss."""

    def __init__(self, block_bits: int, offset_bits: int, width: int) -> None:
        super().__init__(
            {"en": Out(1), "block": Out(block_bits), "offset": Out(offset_bits), "miss": In(1), "data": In(width)}
        )


class OperandStore(wiring.Component):
    """A store that the PS fills: one block of 2**`word_bits` words of `width` bits.

    The PS writes `beat` bits at a time: `data` to beat number `address` of the block with `write`. With `arrived`, the
    store then holds block `read.block`; `forget` makes it hold none.
    """

    def __init__(self, word_bits: int, width: int, block_bits: int, beat: int) -> None:
        self.width, self.beat, self.words = width, beat, 1 << word_bits
        self.lines = self.words * width // beat
        super().__init__(
            {
                "read": In(Read(block_bits, word_bits, width)),
                "address": In(range(max(2, self.lines))),
                "data": In(beat),
                "write": In(1),
                "arrived": In(1),
                "forget": In(1),
            }
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        m.submodules.ram = ram = Memory(shape=self.beat, depth=self.lines, init=[])
        reads, writes = ram.read_port(), ram.write_port()
        m.d.comb += [writes.addr.eq(self.address), writes.data.eq(self.data), writes.en.eq(self.write)]
        lanes = self.beat // self.width
        inside = Signal(range(max(2, lanes)))
        m.d.comb += [reads.addr.eq(self.read.offset >> ceil_log2(lanes)), reads.en.eq(self.read.en)]
        with m.If(self.read.en):
            m.d.sync += inside.eq(self.read.offset[: ceil_log2(lanes)])
        m.d.comb += self.read.data.eq(reads.data.word_select(inside, self.width) if lanes > 1 else reads.data)
        held, valid = Signal.like(self.read.block), Signal()
        m.d.comb += self.read.miss.eq(self.read.en & ~(valid & (held == self.read.block)))
        with m.If(self.forget):
            m.d.sync += valid.eq(0)
        with m.Elif(self.arrived):
            m.d.sync += [held.eq(self.read.block), valid.eq(1)]
        return m


class ResultStore(wiring.Component):
    """The store that the PS empties: one block of 2**`word_bits` result codes.

    The engine writes `code` to word `offset` with `en`. The PS reads `data`, `beat` bits at a time: it is beat number
    `address` of a cycle before.
    """

    def __init__(self, word_bits: int, beat: int) -> None:
        self.beat, self.lines = beat, (1 << word_bits) * 8 // beat
        super().__init__(
            {
                "en": In(1),
                "offset": In(word_bits),
                "code": In(8),
                "address": In(range(max(2, self.lines))),
                "data": Out(beat),
            }
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        m.submodules.ram = ram = Memory(shape=self.beat, depth=self.lines, init=[])
        reads, writes, lanes = ram.read_port(transparent_for=()), ram.write_port(granularity=8), self.beat // 8
        m.d.comb += [
            reads.addr.eq(self.address),
            self.data.eq(reads.data),
            writes.addr.eq(self.offset >> ceil_log2(lanes)),
            writes.data.eq(self.code.replicate(lanes)),
            writes.en.eq(self.en << self.offset[: ceil_log2(lanes)]),
        ]
        return m
