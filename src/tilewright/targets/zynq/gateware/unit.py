"""The compute unit: 9 taps x 16 channels, one multiplier for each, and an adder tree.

The loader fills one lane per cycle. The lanes that it fills first therefore have time for a pipeline of FILL cycles;
the products of the last lanes are added without one. The sum is complete one cycle after the last lane is filled: the
delay of the document. Until the first lane's product reaches the sum, FILL cycles pass: the document's figure 8.
"""

from __future__ import annotations

from functools import reduce
from operator import add

from amaranth.hdl import Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import In, Out

from tilewright.hdl.parts import Part
from tilewright.targets.zynq.config import LANES

#: Bits of an operand whose zero point is subtracted: codes have 8 bits, zero points 9.
OPERAND = 10
SUM = 2 * OPERAND + (LANES - 1).bit_length()
#: Cycles from the operands of the first lane to the sum [D].
FILL = 8
#: Lanes that are filled too late for the pipeline.
LATE = FILL - 1


class ComputeUnit(Part):
    """Multiplies and adds LANES pairs of operands.

    With `fill`, the lane number `lane` takes `data` and `weight`. With `take`, `sum` becomes the sum of all lanes in
    the next cycle; lanes must have been filled in order, the last one in the cycle before or earlier. `clear` sets
    `sum` to 0.
    """

    def __init__(self) -> None:
        super().__init__(
            lane=In(range(LANES)),
            fill=In(1),
            data=In(signed(OPERAND)),
            weight=In(signed(OPERAND)),
            take=In(1),
            clear=In(1),
            sum=Out(signed(SUM)),
        )

    def define(self, m: Module) -> None:
        products: list[Value] = []
        for lane in range(LANES):
            data, weight = (Signal(signed(OPERAND), name=f"{name}{lane}") for name in ("data", "weight"))
            with m.If(self.fill & (self.lane == lane)):
                m.d.sync += [data.eq(self.data), weight.eq(self.weight)]
            products.append(data * weight)
        early, late = products[: LANES - LATE], products[LANES - LATE :]
        for level in range(FILL - 1):  # one cycle for the products, one for each level of the tree
            together = 1 if level == 0 else 2
            early = [self._registered(m, level, at, early[at : at + together]) for at in range(0, len(early), together)]
        total = reduce(add, [*early, *late])
        m.d.sync += self.sum.eq(Mux(self.clear, 0, Mux(self.take, total, self.sum)))

    def _registered(self, m: Module, level: int, number: int, terms: list[Value]) -> Signal:
        """Return a register that holds the sum of one or two terms a cycle later."""
        found = Signal(signed(2 * OPERAND + level), name=f"level{level}_{number}")
        m.d.sync += found.eq(reduce(add, terms))
        return found
