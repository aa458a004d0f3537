"""The extensions that need no sequencer: the image memory, as the CPU writes and reads it, and dot products."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Elaboratable, Module, Mux, Signal, signed
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.targets.cfu.config import IMAGE_BYTES
from tilewright.targets.cfu.isa.state import FIELDS

#: Bytes of a word. Words of even and odd numbers are in separate memories, so that two can be written in a cycle.
WORD_BYTES = 4


class ImageMemory(wiring.Component):
    """The image memory, 64 KiB. `push` writes `first` and `second` as its next two words; `word` is the next one.

    `put` and `get` are high in the cycle of their command, like `push`. `put` sets the byte address of the next word to
    `second` if `first` is the number of the register POINTER. `get` goes to the next word. A push is at the start of a
    word: the two low bits of the address are ignored.
    """

    def __init__(self) -> None:
        commands = dict.fromkeys(("put", "push", "get"), In(1))
        super().__init__({**commands, **dict.fromkeys(("first", "second"), In(32)), "word": Out(32)})

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        pointer = Signal(ceil_log2(IMAGE_BYTES))
        with m.If(self.put & (self.first == FIELDS["POINTER"])):
            m.d.sync += pointer.eq(self.second)
        with m.If(self.push):
            m.d.sync += pointer.eq(pointer + 2 * WORD_BYTES)
        with m.If(self.get):
            m.d.sync += pointer.eq(pointer + WORD_BYTES)
        number = pointer[ceil_log2(WORD_BYTES) :]
        odd, row = number[0], number[1:]
        words = []
        for bank in (0, 1):
            m.submodules[f"bank_{bank}"] = rows = memory.Memory(shape=32, depth=IMAGE_BYTES // WORD_BYTES // 2, init=[])
            read, write = rows.read_port(), rows.write_port()
            here = (row + (odd & (bank == 0)))[: len(row)]  # from an odd word on, the even one is in the next row
            m.d.comb += [
                read.addr.eq(here),
                write.addr.eq(here),
                write.en.eq(self.push),
                write.data.eq(Mux(odd == bank, self.first, self.second)),
            ]
            words.append(read.data)
        m.d.comb += self.word.eq(Mux(odd, words[1], words[0]))
        return m


class DotProduct(wiring.Component):
    """The instruction dot: `total` is the register DOT with four products of code and weight added, modulo 2^32.

    A code has the zero point -128, so its value is 0 to 255. `dot` (in the cycle of the command) sets the register to
    `total`; `put` sets it to `second` if `first` is its number.
    """

    def __init__(self) -> None:
        operands = dict.fromkeys(("first", "second"), In(32))
        super().__init__({"put": In(1), "dot": In(1), **operands, "total": Out(32)})

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        register = Signal(32, name="DOT")
        products = []
        for lane in range(4):
            value, product = Signal(8, name=f"value_{lane}"), Signal(signed(17), name=f"product_{lane}")
            m.d.comb += value.eq(self.first.word_select(lane, 8) + 128)
            m.d.comb += product.eq(value * self.second.word_select(lane, 8).as_signed())
            products.append(product)
        m.d.comb += self.total.eq(register + (products[0] + products[1]) + (products[2] + products[3]))
        with m.If(self.dot):
            m.d.sync += register.eq(self.total)
        with m.If(self.put & (self.first == FIELDS["DOT"])):
            m.d.sync += register.eq(self.second)
        return m
