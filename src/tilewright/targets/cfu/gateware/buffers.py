"""The buffers A and B, as the CPU writes them and the array reads them."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Module, Mux, Signal, Value
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl.parts import Part, drive, ram
from tilewright.targets.cfu.config import Config

WORD = 32
VALUE = 8
#: Bits of a half row that a fetch writes.
HALF = 2 * WORD


class HalfRow(wiring.Signature):
    """The signals that write a half of a row of 16 values; half 0 has the first ones."""

    def __init__(self, config: Config) -> None:
        super().__init__({"en": Out(1), "row": Out(ceil_log2(config.buffer_rows)), "half": Out(1), "data": Out(HALF)})


class OperandBuffer(Part):
    """Buffer A or B: rows of n values. The CPU sends words of four values, the first in the most significant byte.

    `set` is high in the cycle of a command set_matrixA or set_matrixB with the operands `first` and `second`. A row is
    written in the cycle after its last word, or, while the array is `busy`, in the first cycle in which it is not.
    transfer=addressed: word number `first` becomes `second`, unless the array is busy in the cycle of the command.
    `start` is high in the cycle of start_GEMM: the next row is row 0. `launch` is high in the cycle after it: buffer A
    (`stays_enabled`) then writes its last row again, to the row before the first.
    `data` is row number `row` of the cycle before, lane 0 in the low bits.
    With `direct`, two words can be written in any cycle in which no other row can: those of `filled.data`, in a half of
    row `filled.row`. A row of the CPU is then written once only.
    """

    def __init__(self, config: Config, stays_enabled: bool, direct: bool = False) -> None:
        self.config, self.stays_enabled, self.direct = config, stays_enabled, direct
        super().__init__(
            set=In(1),
            first=In(WORD),
            second=In(WORD),
            start=In(1),
            launch=In(1),
            busy=In(1),
            row=In(ceil_log2(config.buffer_rows)),
            data=Out(VALUE * config.array),
            **{"filled": In(HalfRow(config))} if direct else {},
        )

    def define(self, m: Module) -> None:
        config = self.config
        addressed = config.transfer == "addressed"
        granularity = WORD if addressed else HALF if self.direct else None
        write, read = ram(m, "rows", VALUE * config.array, config.buffer_rows, granularity)
        m.d.comb += [read.addr.eq(self.row), self.data.eq(read.data)]
        (self._addressed if addressed else self._counted)(m, write)
        if self.direct:
            words = HALF // WORD if addressed else 1
            with m.If(self.filled.en):
                m.d.comb += drive(
                    write,
                    addr=self.filled.row,
                    data=Cat(map(_lanes, (self.filled.data[:WORD], self.filled.data[WORD:]))).replicate(2),
                    en=((1 << words) - 1) << Mux(self.filled.half, words, 0),
                )

    def _addressed(self, m: Module, write: Any) -> None:
        """Write one word of a row, at the address that the command gives."""
        words = self.config.array // 4
        address = Signal(range(self.config.buffer_rows * words))
        value, enabled = Signal(WORD, name="value"), Signal(name="enabled")
        m.d.sync += enabled.eq(self.set & ~self.busy)
        with m.If(self.set):
            m.d.sync += [address.eq(self.first), value.eq(_lanes(self.second))]
        place = address[: ceil_log2(words)]
        m.d.comb += drive(
            write,
            addr=address[ceil_log2(words) :],
            data=value.replicate(words),
            en=enabled << place if words > 1 else enabled,
        )

    def _counted(self, m: Module, write: Any) -> None:
        """Collect the words of a row, and write it to the next row."""
        words = self.config.array // 4
        operands = [self.second] if words == 1 else [self.first, self.second]
        sets = words // len(operands)
        latched = Signal(WORD * words)
        row = Signal(ceil_log2(self.config.buffer_rows), init=-1)
        enabled, part = Signal(name="enabled"), Signal(range(max(2, sets)), name="part")
        with m.If(self.set):
            m.d.sync += enabled.eq(0)
            for number in range(sets):
                with m.If(part == number):
                    size = WORD * len(operands)
                    m.d.sync += latched[number * size : (number + 1) * size].eq(Cat(map(_lanes, operands)))
            with m.If(part == sets - 1):
                m.d.sync += [part.eq(0), enabled.eq(1), row.eq(row + 1)]
            with m.Else():
                m.d.sync += part.eq(part + 1)
        with m.If(self.start):
            m.d.sync += row.eq(-1)
            if not self.stays_enabled:
                m.d.sync += enabled.eq(0)
        writes = enabled & (~self.busy | self.launch)
        m.d.comb += drive(write, addr=row, data=latched, en=writes.replicate(len(write.en)))
        if self.direct:
            with m.If(writes & ~self.set):
                m.d.sync += enabled.eq(0)


def _lanes(word: Value) -> Value:
    """Return the four values of a word with the first in the low bits."""
    return Cat(word.word_select(3 - lane, VALUE) for lane in range(4))
