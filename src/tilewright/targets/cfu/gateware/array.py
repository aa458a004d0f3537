"""The systolic array: processing elements in a square, and the registers that skew its operands.

Values of A enter from the left, values of B from the top. Lane r of either enters r cycles after lane 0, so that the
two factors of a product meet in the element that adds it up.
"""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Array, Cat, Elaboratable, Module, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from tilewright.hdl.mac import by_logic
from tilewright.hdl.modules import part

#: Bits of a value of A with its offset, of a value of B, and of a sum.
LEFT_BITS, TOP_BITS, SUM_BITS = 9, 8, 32


class ProcessingElement(wiring.Component):
    """A processing element: it adds left * top to its sum in each cycle, and passes both on in the next cycle.

    `clear` sets the sum to 0 instead. `in_logic`: the product is made of logic cells, not of a multiplier block.
    """

    def __init__(self, in_logic: bool = False) -> None:
        self.in_logic = in_logic
        super().__init__(
            {
                "left": In(signed(LEFT_BITS)),
                "top": In(signed(TOP_BITS)),
                "clear": In(1),
                "right": Out(signed(LEFT_BITS)),
                "down": Out(signed(TOP_BITS)),
                "sum": Out(signed(SUM_BITS)),
            }
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        product = Signal(signed(LEFT_BITS + TOP_BITS))
        m.d.comb += product.eq(by_logic(self.left, self.top) if self.in_logic else self.left * self.top)
        m.d.sync += [self.right.eq(self.left), self.down.eq(self.top), self.sum.eq(self.sum + product)]
        with m.If(self.clear):
            m.d.sync += self.sum.eq(0)
        return m


class SystolicArray(wiring.Component):
    """An n x n array of processing elements; each keeps its sum in place (output stationary).

    `left` and `top` are n values each, lane 0 in the low bits, all of the same k. Sum (r, c) has the product of a k
    that enters in cycle t from cycle t + r + c + 1 on. `clear` in cycle t sets it to 0 in cycle t + r + c + 1.
    `sums` is row number `row` of the sums, in the same cycle. The last `in_logic` elements have no multiplier block.
    """

    def __init__(self, lanes: int, in_logic: int = 0) -> None:
        self.lanes, self.in_logic = lanes, in_logic
        super().__init__(
            {
                "left": In(lanes * LEFT_BITS),
                "top": In(lanes * TOP_BITS),
                "clear": In(1),
                "row": In(ceil_log2(lanes)),
                "sums": Out(lanes * SUM_BITS),
            }
        )

    def elaborate(self, platform: Any) -> Elaboratable:
        m, lanes = Module(), self.lanes
        clear = [self.clear, *_delayed(m, self.clear, 2 * lanes - 2, "clear")]
        lefts, tops = _skewed(m, self.left, lanes, "left"), _skewed(m, self.top, lanes, "top")
        rows = []
        for row in range(lanes):
            sums, left = [], lefts[row]
            for column in range(lanes):
                in_logic = row * lanes + column >= lanes * lanes - self.in_logic
                element = ProcessingElement(in_logic)
                kind = "ProcessingElementInLogic" if in_logic else "ProcessingElement"
                m.submodules[f"element_{row}_{column}"] = part(element, kind)
                m.d.comb += [element.left.eq(left), element.top.eq(tops[column]), element.clear.eq(clear[row + column])]
                left, tops[column] = element.right, element.down
                sums.append(element.sum)
            rows.append(Cat(sums))
        m.d.comb += self.sums.eq(Array(rows)[self.row])
        return m


def _skewed(m: Module, values: Value, lanes: int, name: str) -> list[Value]:
    """Return the lanes of `values`, lane r later by r cycles."""
    entering = [values.word_select(lane, len(values) // lanes) for lane in range(lanes)]
    return [[value, *_delayed(m, value, lane, f"{name}{lane}")][-1] for lane, value in enumerate(entering)]


def _delayed(m: Module, value: Value, cycles: int, name: str) -> list[Signal]:
    """Return `value` later by 1 .. `cycles` cycles."""
    found = [Signal(len(value), name=f"{name}_after_{cycle + 1}") for cycle in range(cycles)]
    for before, after in zip([value, *found], found, strict=False):
        m.d.sync += after.eq(before)
    return found
