"""The stores of an engine with `window=1`: block RAM whose read port gives a whole line, beside the PS's write port."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.utils import ceil_log2

from tilewright.hdl.parts import drive, ram
from tilewright.targets.zynq.gateware.stores import FRAMES, Read, Store


class LineStore(Store):
    """Two blocks of `lines` lines of `words` words of 8 bits, each in a frame. `read` gives a line a cycle later.

    With `whole`, a line is written in one cycle, when its last beat comes: the PS must then write the beats in order.
    All bits of the block RAM can hold words then, also its parity bits.
    """

    def __init__(self, lines: int, words: int, block_bits: int, beat: int, whole: bool) -> None:
        self.lines, self.width, self.whole = lines, 8 * words, whole
        self.parts = self.width // beat
        read = Read(block_bits, max(1, ceil_log2(lines)), self.width)
        super().__init__(read, lines * self.parts + 1, beat, FRAMES)

    def define(self, m: Module) -> None:
        size = 1 << ceil_log2(self.lines)
        writes, reads = ram(m, "ram", self.width, FRAMES * size, None if self.whole else self.beat)
        frame, loading = self.uses(m)
        line = self._assembled(m, writes) if self.whole else self._placed(m, writes)
        m.d.comb += drive(reads, en=self.read.en, addr=Mux(frame, size, 0) + self.read.offset)
        m.d.comb += self.read.data.eq(reads.data)
        m.d.comb += writes.addr.eq(Mux(loading, size, 0) + line)

    def _placed(self, m: Module, writes: Any) -> Value:
        """Write each beat to its part of the line; return the line."""
        log = ceil_log2(self.parts)
        m.d.comb += drive(writes, data=self.data.replicate(self.parts), en=self.write << self.address[:log])
        return self.address >> log

    def _assembled(self, m: Module, writes: Any) -> Value:
        """Collect the beats of a line in a register, and write it with the last one; return the line."""
        before = Signal(self.width - self.beat)
        count, line = Signal(range(self.parts)), Signal(range(max(2, self.lines + 1)))
        part, whole = Mux(self.address == 0, 0, count), Cat(before, self.data)
        current = Mux(self.address == 0, 0, line)
        is_last = part == self.parts - 1
        m.d.comb += drive(writes, data=whole, en=self.write & is_last)
        with m.If(self.write):
            m.d.sync += [before.eq(whole[self.beat :]), count.eq(part + 1), line.eq(current)]
            with m.If(is_last):
                m.d.sync += [count.eq(0), line.eq(current + 1)]
        return current
