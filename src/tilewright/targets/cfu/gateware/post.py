"""Fixed-point post-processing: gemmlowp's operations, each as one block."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import In, Out

from tilewright.hdl.parts import Part

INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1
#: The bit of a product of int32 values that the doubled high half is rounded by.
HALF = 30


class HighProduct(Part):
    """SRDHM: the rounded high half of twice a product of int32 values, saturated.

    `set` latches the product of `a` and `b`. `high` follows from it in the cycle after.
    """

    def __init__(self) -> None:
        super().__init__(set=In(1), a=In(signed(32)), b=In(signed(32)), high=Out(signed(32)))

    def define(self, m: Module) -> None:
        product, overflow = Signal(signed(64), name="product"), Signal(name="overflow")
        with m.If(self.set):
            m.d.sync += [product.eq(self.a * self.b), overflow.eq((self.a == INT_MIN) & (self.b == INT_MIN))]
        # gemmlowp adds 2^30 or 1 - 2^30 and truncates towards zero. That is to add 2^30 and round down.
        rounded = (product >> (HALF + 1)) + product[HALF]
        m.d.comb += self.high.eq(Mux(overflow, INT_MAX, rounded))


class RoundingShift(Part):
    """RDBPOT: `x` / 2^`exponent`, to nearest, ties away from zero. Exponents above 31 give 0, or -1 for INT_MIN."""

    def __init__(self) -> None:
        super().__init__(x=In(signed(32)), exponent=In(32), result=Out(signed(32)))

    def define(self, m: Module) -> None:
        amount = self.exponent[:5]
        half, biased = Signal(31, name="half"), Signal(signed(33), name="biased")
        m.d.comb += [
            half.eq((1 << amount) >> 1),
            biased.eq(self.x + half - ((self.x < 0) & (amount != 0))),
            self.result.eq(Mux(self.exponent[5:].any(), -(self.x == INT_MIN), biased >> amount)),
        ]


class OffsetClamp(Part):
    """off_maxmin: `x` + `offset`, which wraps as int32, clamped to int8."""

    def __init__(self) -> None:
        super().__init__(x=In(signed(32)), offset=In(signed(32)), result=Out(signed(8)))

    def define(self, m: Module) -> None:
        total = Signal(signed(32))
        inside = total[7:].all() | ~total[7:].any()
        m.d.comb += [
            total.eq(self.x + self.offset),
            self.result.eq(Mux(inside, total[:8], Cat((~total[31]).replicate(7), total[31]))),
        ]


def bounded(value: Value, low: Value, high: Value) -> Value:
    """Return `value`, or the bound that it exceeds; `high` wins if the bounds cross."""
    raised = Mux(value < low, low, value)
    return Mux(raised > high, high, raised)
