"""The systolic array: processing elements in a square, and the registers that skew its operands.

Values of A enter from the left, values of B from the top. Lane r of either enters r cycles after lane 0, so that the
two factors of a product meet in the element that adds it up.
"""

from __future__ import annotations

from amaranth.hdl import Array, Module, Mux, Signal, signed
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl.mac import by_logic
from tilewright.hdl.modules import part
from tilewright.hdl.parts import Part, add, after, drive

#: Bits of a value of A with its offset, of a value of B, and of a sum.
LEFT_BITS, TOP_BITS, SUM_BITS = 9, 8, 32


class ProcessingElement(Part):
    """A processing element: it adds left * top to its sum in each cycle, and passes both on in the next cycle.

    `clear` sets the sum to 0 instead. `in_logic`: the product is made of logic cells, not of a multiplier block.
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
    """A row of n processing elements: values of A pass from left to right, values of B from `top` to `down`.

    `clear` has a bit for each element. The last `in_logic` elements have no multiplier block. Lane 0 is in the low
    bits.
    """

    def __init__(self, lanes: int, in_logic: int = 0) -> None:
        self.lanes, self.in_logic = lanes, in_logic
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
    """Delays lane r of `values` by r cycles. Values have `bits` bits, lane 0 in the low ones."""

    def __init__(self, lanes: int, bits: int) -> None:
        self.lanes, self.bits = lanes, bits
        super().__init__(values=In(lanes * bits), skewed=Out(lanes * bits))

    def define(self, m: Module) -> None:
        for lane in range(self.lanes):
            value = self.values.word_select(lane, self.bits)
            value = after(m, value, lane, f"lane{lane}")
            m.d.comb += self.skewed.word_select(lane, self.bits).eq(value)


class SystolicArray(Part):
    """An n x n array of processing elements; each keeps its sum in place (output stationary).

    `left` and `top` are n values each, lane 0 in the low bits, all of the same k. Sum (r, c) has the product of a k
    that enters in cycle t from cycle t + r + c + 1 on. `clear` in cycle t sets it to 0 in cycle t + r + c + 1.
    `sums` is row number `row` of the sums, in the same cycle. The last `in_logic` elements have no multiplier block.
    With `late_values`, there is another input for the left: while `is_late`, the values of `late` enter, and lane r of
    them is already r cycles behind lane 0.
    """

    def __init__(self, lanes: int, in_logic: int = 0, late_values: bool = False) -> None:
        self.lanes, self.in_logic, self.late_values = lanes, in_logic, late_values
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
        clear = Signal(2 * lanes - 1)  # bit d: `clear` d cycles ago, for the elements of diagonal d
        m.d.comb += clear[0].eq(self.clear)
        m.d.sync += clear[1:].eq(clear)
        entering = Mux(self.is_late, self.late, left.skewed) if self.late_values else left.skewed
        down, sums = top.skewed, []
        for number in range(lanes):
            in_logic = min(max(self.in_logic - (lanes - 1 - number) * lanes, 0), lanes)
            row = part(ArrayRow(lanes, in_logic), f"ArrayRow{in_logic}InLogic" if in_logic else "ArrayRow")
            values = entering.word_select(number, LEFT_BITS)
            add(m, f"row_{number}", row, left=values, top=down, clear=clear[number : number + lanes])
            down = row.down
            sums.append(row.sums)
        m.d.comb += self.sums.eq(Array(sums)[self.row])
