"""The systolic array: processing elements in a square, and the registers that skew its operands.

Values of A enter from the left, values of B from the top. Lane r of A and of B enters r cycles after lane 0, so that
the two factors of a product arrive at an element together.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl.mac import by_logic
from tilewright.hdl.modules import part
from tilewright.hdl.parts import Part, add, after, drive, ram
from tilewright.targets.cfu.config import Config

WORD = 32
VALUE = 8
#: The bits of half a row. A fetch writes half rows.
HALF = 2 * WORD


class HalfRow(wiring.Signature):
    """The signals that write one half of a row of 16 values. Half 0 has the first eight values."""

    def __init__(self, config: Config) -> None:
        super().__init__({"en": Out(1), "row": Out(ceil_log2(config.buffer_rows)), "half": Out(1), "data": Out(HALF)})


class OperandBuffer(Part):
    """Buffer A or B: rows of n values. The CPU sends words of four values, the first in the most significant byte.

    `set` is high in the cycle of a command set_matrixA or set_matrixB with the operands `first` and `second`. A row is
    written in the cycle after its last word. If the array is `busy` in this cycle, the row is written when the array
    becomes idle. With transfer=addressed, the command sets word number `first` to `second`, and has no effect while the
    array is busy.

    `start` is high in the cycle of start_GEMM, after which the next row is row 0. `launch` is high in the cycle after
    `start`. In this cycle, buffer A (`stays_enabled`) writes its last row again, to the row before row 0. `data` is the
    row with the number that `row` had in the previous cycle; lane 0 is in the low bits.

    With `direct`, the port `filled` writes the two words `filled.data` to a half of row `filled.row`. It must not be
    used in a cycle in which a row of the CPU may be written. With `direct`, each row of the CPU is written only once.
    """

    def __init__(self, config: Config, stays_enabled: bool, direct: bool = False) -> None:
        self.config = config
        self.stays_enabled = stays_enabled
        self.direct = direct
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
            # Both halves of the row get the same data, and `en` selects the half that is written.
            with m.If(self.filled.en):
                m.d.comb += drive(
                    write,
                    addr=self.filled.row,
                    data=Cat(map(_lanes, (self.filled.data[:WORD], self.filled.data[WORD:]))).replicate(2),
                    en=((1 << words) - 1) << Mux(self.filled.half, words, 0),
                )

    def _addressed(self, m: Module, write: Any) -> None:
        words = self.config.array // 4
        address = Signal(range(self.config.buffer_rows * words))
        value = Signal(WORD, name="value")
        enabled = Signal(name="enabled")
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
        words = self.config.array // 4
        operands = [self.second] if words == 1 else [self.first, self.second]
        sets = words // len(operands)
        # A row is complete after `sets` commands. `row` begins at -1, because the completion of a row increments it.
        latched = Signal(WORD * words)
        row = Signal(ceil_log2(self.config.buffer_rows), init=-1)
        enabled = Signal(name="enabled")
        part = Signal(range(max(2, sets)), name="part")
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
    """Reverse the four values of a word, so that the first value is in the low bits."""
    return Cat(word.word_select(3 - lane, VALUE) for lane in range(4))


LEFT_BITS = 9  # of a value of A plus its offset
TOP_BITS = 8  # of a value of B
SUM_BITS = 32


class ProcessingElement(Part):
    """A processing element. It adds left * top to its sum in each cycle, and outputs both factors in the next cycle.

    While `clear` is high, the sum becomes 0. With `in_logic`, the product is made of LUTs instead of a multiplier
    block.
    """

    def __init__(self, in_logic: bool = False) -> None:
        self.in_logic = in_logic
        super().__init__(
            left=In(signed(LEFT_BITS)),
            top=In(signed(TOP_BITS)),
            clear=In(1),
            right=Out(signed(LEFT_BITS)),
            down=Out(signed(TOP_BITS)),
            sum=Out(signed(SUM_BITS)),
        )

    def define(self, m: Module) -> None:
        product = Signal(signed(LEFT_BITS + TOP_BITS))
        m.d.comb += product.eq(by_logic(self.left, self.top) if self.in_logic else self.left * self.top)
        m.d.sync += drive(self, right=self.left, down=self.top, sum=self.sum + product)
        with m.If(self.clear):
            m.d.sync += self.sum.eq(0)


class ArrayRow(Part):
    """A row of n processing elements. Values of A move from left to right, and values of B from `top` to `down`.

    `clear` has a bit for each element. The last `in_logic` elements have no multiplier block. Lane 0 is in the low
    bits.
    """

    def __init__(self, lanes: int, in_logic: int = 0) -> None:
        self.lanes = lanes
        self.in_logic = in_logic
        super().__init__(
            left=In(signed(LEFT_BITS)),
            top=In(lanes * TOP_BITS),
            clear=In(lanes),
            down=Out(lanes * TOP_BITS),
            sums=Out(lanes * SUM_BITS),
        )

    def define(self, m: Module) -> None:
        left = self.left
        for lane in range(self.lanes):
            in_logic = lane >= self.lanes - self.in_logic
            element = part(ProcessingElement(in_logic), f"ProcessingElement{'InLogic' if in_logic else ''}")
            top = self.top.word_select(lane, TOP_BITS)
            add(m, f"element_{lane}", element, left=left, top=top, clear=self.clear[lane])
            m.d.comb += self.down.word_select(lane, TOP_BITS).eq(element.down)
            m.d.comb += self.sums.word_select(lane, SUM_BITS).eq(element.sum)
            left = element.right


class Skew(Part):
    """Delays lane r of `values` by r cycles. Each lane has `bits` bits, and lane 0 is in the low bits."""

    def __init__(self, lanes: int, bits: int) -> None:
        self.lanes = lanes
        self.bits = bits
        super().__init__(values=In(lanes * bits), skewed=Out(lanes * bits))

    def define(self, m: Module) -> None:
        for lane in range(self.lanes):
            value = self.values.word_select(lane, self.bits)
            value = after(m, value, lane, f"lane{lane}")
            m.d.comb += self.skewed.word_select(lane, self.bits).eq(value)


class SystolicArray(Part):
    """An n x n array of processing elements; each keeps its sum in place (output stationary).

    In each cycle, `left` is a column of A and `top` is a row of B (n values with the same k; lane 0 in the low bits).
    The product of two values that enter in cycle t is in sum (r, c) from cycle t + r + c + 1 on. If `clear` is high in
    cycle t, this sum becomes 0 in cycle t + r + c + 1.
    `sums` is row number `row` of the sums, in the same cycle. The last `in_logic` elements have no multiplier block.
    With `late_values`, a second input, `late`, replaces `left` while `is_late` is high. The values at `late` are
    already skewed: lane r is r cycles later than lane 0.
    """

    def __init__(self, lanes: int, in_logic: int = 0, late_values: bool = False) -> None:
        self.lanes = lanes
        self.in_logic = in_logic
        self.late_values = late_values
        late = {"late": In(lanes * LEFT_BITS), "is_late": In(1)} if late_values else {}
        super().__init__(
            left=In(lanes * LEFT_BITS),
            top=In(lanes * TOP_BITS),
            clear=In(1),
            row=In(ceil_log2(lanes)),
            sums=Out(lanes * SUM_BITS),
            **late,
        )

    def define(self, m: Module) -> None:
        lanes = self.lanes
        left = add(m, "skew_left", part(Skew(lanes, LEFT_BITS), "SkewLeft"), values=self.left)
        top = add(m, "skew_top", part(Skew(lanes, TOP_BITS), "SkewTop"), values=self.top)
        clear = Signal(2 * lanes - 1)  # bit d is `clear` of d cycles ago; the elements of diagonal d use it
        m.d.comb += clear[0].eq(self.clear)
        m.d.sync += clear[1:].eq(clear)
        entering = Mux(self.is_late, self.late, left.skewed) if self.late_values else left.skewed
        down = top.skewed
        sums = []
        for number in range(lanes):
            in_logic = min(max(self.in_logic - (lanes - 1 - number) * lanes, 0), lanes)
            row = part(ArrayRow(lanes, in_logic), f"ArrayRow{in_logic}InLogic" if in_logic else "ArrayRow")
            values = entering.word_select(number, LEFT_BITS)
            add(m, f"row_{number}", row, left=values, top=down, clear=clear[number : number + lanes])
            down = row.down
            sums.append(row.sums)
        m.d.comb += self.sums.eq(Array(sums)[self.row])
