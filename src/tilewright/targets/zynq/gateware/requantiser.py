"""The requantiser: ReLU in place, then a sum becomes an 8-bit code. All rules of a descriptor share one multiplier.

The factor is a double, as in the register map. Its product with the sum is exact (32 x 53 bits), and is rounded once or
twice, as graph/rounding.py defines for each rule.
"""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Signal, Value, signed
from amaranth.lib.wiring import In, Out

from tilewright.hdl.mac import product
from tilewright.hdl.parts import Part, after, clamped
from tilewright.hdl.rescale import normalised, rounded
from tilewright.targets.zynq.isa.layer import LAYOUT, RULES

#: Cycles from `sum` to `result`.
LATENCY = 9
#: double: bits of the mantissa with its leading 1, and the exponent bias.
MANTISSA, BIAS = 53, 1023
#: Bits of a sum, and of the multiplier of the rule `double`.
BITS, MULTIPLIER = 32, 31
#: A magnitude of 2**WHOLE or more is clipped whatever the bounds are: they and the zero point have 9 bits.
WHOLE = 11
CODE = LAYOUT.by_name["low"].width
#: The inputs that are fields of the descriptor.
FIELDS = ("relu", "rule", "zy", "low", "high")


class Requantiser(Part):
    """Computes a code from a sum in LATENCY cycles, one per cycle. `factor` belongs to `sum`; it is not negative.

    The other inputs are fields of the descriptor, constant while a layer runs. `result` is the code's low 8 bits. With
    `logic`, the multiplier takes no multiplier blocks.
    """

    def __init__(self, logic: bool = False) -> None:
        self.logic = logic
        super().__init__(
            sum=In(signed(BITS)),
            factor=In(64),
            relu=In(1),
            rule=In(range(len(RULES))),
            zy=In(signed(CODE)),
            low=In(signed(CODE)),
            high=In(signed(CODE)),
            result=Out(8),
        )

    def define(self, m: Module) -> None:
        is_float, is_double, _, _ = self._rules()
        biased, fraction = self.factor[52:63], Signal(MANTISSA)
        m.d.comb += fraction.eq(Cat(self.factor[:52], 1))
        # Cycle 1: ReLU. The rule `double` shifts the sum left if the factor is 1 or more; the result wraps.
        multiplier, doubling = rounded_up(m, fraction)
        power = Signal(signed(12))
        m.d.comb += power.eq(biased - (BIAS - 1) + doubling)
        tiny = power < -BITS + 1
        total, shifted = Signal(signed(BITS)), Signal(signed(BITS))
        m.d.comb += total.eq(Mux(self.relu & (self.sum < 0), 0, self.sum))
        m.d.sync += shifted.eq(Mux(is_double & (power > 0), (total << power[:5])[:BITS], total))
        mantissa32, carry = rounded(m, fraction, "factor")
        mantissa, exponent = Signal(MANTISSA), Signal(signed(12))
        m.d.sync += [
            mantissa.eq(
                Mux(
                    is_float,
                    mantissa32 << (MANTISSA - 24),
                    Mux(is_double, Mux(tiny, 0, multiplier << (MANTISSA - MULTIPLIER)), fraction),
                )
            ),
            exponent.eq(biased - BIAS + (is_float & carry)),
        ]
        right, nothing = Signal(5), Signal()
        m.d.sync += [right.eq(Mux((power < 0) & ~tiny, (-power)[:5], 0)), nothing.eq(biased == 0)]
        # Cycle 2: the magnitude.
        size, negative = Signal(BITS), Signal()
        m.d.sync += [size.eq(Mux(shifted < 0, -shifted, shifted)), negative.eq(shifted < 0)]
        # Cycle 3: shift the magnitude until its highest bit is set; the rule `double` leaves it in its place.
        moved, zeros = normalised(m, size)
        lined, top = Signal(BITS), Signal(signed(7))
        m.d.sync += [lined.eq(Mux(is_double, size, moved)), top.eq(BITS - 1 - zeros)]
        # Cycle 4: float32 has 24 bits.
        sum32, over = rounded(m, lined, "sum")
        first, place = Signal(BITS), Signal(signed(13))
        m.d.sync += [
            first.eq(Mux(is_float, sum32 << (BITS - 24), lined)),
            place.eq(top + (is_float & over) + after(m, exponent, 2)),
        ]
        # Cycles 5, 6: the product.
        second = after(m, mantissa, 3)
        half = MANTISSA // 2
        lower, upper, exact = Signal(BITS + half), Signal(BITS + MANTISSA - half), Signal(BITS + MANTISSA)
        m.d.sync += [
            lower.eq(product(first, second[:half], self.logic)),
            upper.eq(product(first, second[half:], self.logic)),
            exact.eq(lower + (upper << half)),
        ]
        zero = after(m, nothing, 6) | after(m, size == 0, 5)
        self._round(m, exact, after(m, place, 2), after(m, negative, 4), zero, after(m, right, 6))

    def _round(self, m: Module, exact: Value, place: Value, sign: Value, zero: Value, by: Value) -> None:
        """Round the product `exact` to a code, from cycle 7 on. `zero` and the shift `by` belong to cycle 8."""
        is_float, is_double, is_away, is_pow2 = self._rules()
        # Cycle 7: the first rounding, to float32, to double, or of the high half of the product with the multiplier.
        front = Signal(BITS + MANTISSA)
        m.d.comb += front.eq(Mux(exact[-1], exact, exact << 1))
        short, short_carry = rounded(m, front, "float32")
        long, long_carry = rounded(m, front, "float64", MANTISSA)
        word, level, high = Signal(MANTISSA), Signal(signed(14)), Signal(BITS + 1)
        grown = Mux(is_float, short_carry, is_away & long_carry)
        m.d.sync += [
            word.eq(Mux(is_float, short << (MANTISSA - 24), Mux(is_away, long, front[BITS:]))),
            level.eq(place + exact[-1] + grown),
            high.eq((exact + ((1 << (MANTISSA - 1)) - sign)) >> MANTISSA),
        ]
        # Cycle 8: the second rounding, to an integer. The point of `fixed` lies below its highest WHOLE bits.
        minus = after(m, sign, 1)
        fixed = Signal(MANTISSA + WHOLE + 1)
        m.d.comb += fixed.eq((word << (WHOLE + 1)) >> (WHOLE - 1 - level)[:4])
        integer, after_point = fixed[MANTISSA + 1 :], fixed[: MANTISSA + 1]
        is_half, rest = after_point[-1], after_point[:-1] != 0
        up = is_half & Mux(is_float, rest | integer[0], ~is_pow2 | rest | ~minus)
        nearest = (high + ((1 << by) >> 1)) >> by
        magnitude, huge = Signal(WHOLE + 1), Signal()
        m.d.comb += huge.eq(Mux(is_double, nearest >= 1 << WHOLE, level >= WHOLE))
        with m.If(zero | ~is_double & (level < -1)):
            m.d.sync += magnitude.eq(0)
        with m.Elif(huge):
            m.d.sync += magnitude.eq((1 << WHOLE) - 1)
        with m.Else():
            m.d.sync += magnitude.eq(Mux(is_double, nearest, integer + up))
        # Cycle 9: the zero point and the bounds.
        code = Signal(signed(WHOLE + 3))
        m.d.comb += code.eq(Mux(after(m, minus, 1), -magnitude, magnitude) + self.zy)
        m.d.sync += self.result.eq(clamped(code, self.low, self.high))

    def _rules(self) -> list[Value]:
        """Return whether each of RULES is the rule of the layer."""
        return [self.rule == number for number in range(len(RULES))]


def rounded_up(m: Module, fraction: Value) -> tuple[Value, Value]:
    """Round a double's mantissa to the 31 bits of a multiplier, half up; return it, and whether it grew to a power."""
    total = Signal(MULTIPLIER + 1, name="multiplier")
    m.d.comb += total.eq(fraction[MANTISSA - MULTIPLIER :] + fraction[MANTISSA - MULTIPLIER - 1])
    return Mux(total[-1], 1 << (MULTIPLIER - 1), total[:MULTIPLIER]), total[-1]
