"""The pool: its loops, and a register of two rows from which the largest of 2 x 2 elements is taken."""

from __future__ import annotations

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import In, Out

from tilewright.hdl.parts import Part, clamped, clear, drive, ram
from tilewright.targets.zynq.config import Config
from tilewright.targets.zynq.gateware.loader import ADDRESS, DESCRIPTOR, operand_of

#: Bits of a code, signed or not.
CODE = 9


class Pool(Part):
    """Takes one element per cycle, in the order of the planes' words.

    With `next`, the element at `data` is read; `word` is its code a cycle later, with `arrives`. `gives`: the element
    completes a result, which is `result` two cycles after the element was read. The register holds the row above in a
    memory, since a row's length differs from layer to layer; the element to the left is in a register.
    """

    def __init__(self, config: Config) -> None:
        self.config = config
        super().__init__(
            layer=In(DESCRIPTOR),
            start=In(1),
            next=In(1),
            data=Out(operand_of(config, "data")),
            word=In(8),
            arrives=In(1),
            gives=Out(1),
            last=Out(1),
            result=Out(8),
        )

    def define(self, m: Module) -> None:
        config = self.config
        word, x, y, channel = Signal(ADDRESS), Signal(12), Signal(12), Signal(16)
        is_row_end, is_end = x == self.layer.cols - 1, y == self.layer.rows - 1
        m.d.comb += [
            *drive(self.data, used=1, needed=1, block=word >> config.data_bits, offset=word),
            *drive(self, gives=x[0] & y[0], last=is_row_end & is_end & (channel == self.layer.ic - 1)),
        ]
        with m.If(self.start):
            m.d.sync += clear(word, x, y, channel)
        with m.Elif(self.next):
            m.d.sync += [word.eq(word + 1), x.eq(Mux(is_row_end, 0, x + 1))]
            with m.If(is_row_end):
                m.d.sync += [y.eq(Mux(is_end, 0, y + 1)), channel.eq(channel + is_end)]
        # The register of two rows: the row above is read as the element is, and replaced when it arrives.
        writes, reads = ram(m, "row", 8, config.pool_side)
        place = Signal(range(config.pool_side))
        with m.If(self.next):
            m.d.sync += place.eq(x)
        m.d.comb += [*drive(reads, addr=x, en=self.next), *drive(writes, addr=place, data=self.word, en=self.arrives)]
        left, left_above = Signal(8), Signal(8)
        with m.If(self.arrives):
            m.d.sync += [left.eq(self.word), left_above.eq(reads.data)]
        codes = [self._code(each) for each in (self.word, left, reads.data, left_above)]
        most = Signal(signed(CODE))
        m.d.comb += most.eq(_larger(_larger(codes[0], codes[1]), _larger(codes[2], codes[3])))
        with m.If(self.arrives):
            m.d.sync += self.result.eq(clamped(most, self.layer.low, self.layer.high))

    def _code(self, word: Value) -> Value:
        """Return the number that a data word stands for."""
        return Mux(self.layer.x_signed, word.as_signed(), word)


def _larger(a: Value, b: Value) -> Value:
    return Mux(a > b, a, b)
