"""An integer times a float32, rounded to float32 and then half to even, in a pipeline."""

from __future__ import annotations

from typing import Any

from amaranth.hdl import Cat, Elaboratable, Module, Mux, Signal, Value, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out

MANTISSA, BIAS, SPECIAL = 24, 127, 255
#: The float32 values between which results lie.
MOST, LEAST = (1 << 31) - 128, -(1 << 31)
#: Cycles from `value` to `result`.
SCALE_LATENCY = 3


class FloatScale(wiring.Component):
    """`result` = graph.rounding.round_half_even(float32(value) * factor), SCALE_LATENCY cycles later, one a cycle.

    Infinite factors saturate; what NaN gives is not defined there, here it saturates too. Subnormal ones give 0, as
    their products with any int32 do.
    """

    def __init__(self) -> None:
        super().__init__({"value": In(signed(32)), "factor": In(32), "result": Out(signed(32))})

    def elaborate(self, platform: Any) -> Elaboratable:
        m = Module()
        # 0: the magnitude, its highest bit in front.
        size = Signal(32)
        m.d.comb += size.eq(Mux(self.value < 0, -self.value, self.value))
        fraction, zeros, sign = Signal(32), Signal(5), Signal()
        shifted, count = _normalised(m, size)
        m.d.sync += [fraction.eq(shifted), zeros.eq(count), sign.eq(self.value < 0)]
        factor = Signal(32)
        m.d.sync += factor.eq(self.factor)
        # 1: as float32; the product.
        mantissa, carry = _rounded(m, fraction, "value")
        biased = factor[23:31]
        product, exponent = Signal(2 * MANTISSA), Signal(signed(10))
        negative, nothing, huge = Signal(), Signal(), Signal()
        m.d.sync += [
            product.eq(mantissa * Cat(factor[: MANTISSA - 1], 1)),
            exponent.eq(31 - zeros + carry + biased.as_unsigned() - BIAS),
            negative.eq(sign ^ factor[31]),
            nothing.eq(~fraction[31] | (biased == 0)),
            huge.eq(biased == SPECIAL),
        ]
        # 2: the product as float32.
        above = product[-1]
        front = Signal(2 * MANTISSA)
        m.d.comb += front.eq(Mux(above, product, product << 1))
        mantissa, carry = _rounded(m, front, "product")
        whole, power = Signal(MANTISSA), Signal(signed(11))
        is_negative, is_nothing, is_huge = Signal(), Signal(), Signal()
        m.d.sync += [
            whole.eq(mantissa),
            power.eq(exponent + above + carry),
            is_negative.eq(negative),
            is_nothing.eq(nothing),
            is_huge.eq(huge),
        ]
        # 3: as an integer. Bits below the point, one of them in front of the rest.
        point = Signal(2 * MANTISSA + 8)
        m.d.comb += point.eq((whole << (MANTISSA + 1)) >> Mux(power < 23, (23 - power)[:6], 0))
        below, rest = point[MANTISSA], point[:MANTISSA] != 0
        nearest, integer = point[MANTISSA + 1 :], Signal(32)
        m.d.comb += integer.eq(Mux(power >= 23, whole << (power - 23)[:3], nearest + (below & (rest | nearest[0]))))
        none, over = is_nothing | (power < -1), is_huge | (power > 30)
        m.d.comb += self.result.eq(
            Mux(none, 0, Mux(over, Mux(is_negative, LEAST, MOST), Mux(is_negative, -integer, integer)))
        )
        return m


def _normalised(m: Module, word: Value) -> tuple[Value, Value]:
    """A word shifted until its highest bit is set, and how far."""
    count: list[Value] = []
    for step in (16, 8, 4, 2, 1):
        clear, shifted = Signal(name=f"clear{step}"), Signal(32, name=f"shifted{step}")
        m.d.comb += [clear.eq(word[32 - step :] == 0), shifted.eq(Mux(clear, word << step, word))]
        count.insert(0, clear)
        word = shifted
    return word, Cat(count)


def _rounded(m: Module, word: Value, name: str) -> tuple[Value, Value]:
    """The upper bits of a word whose highest is set, rounded half to even; whether that gave a bit more."""
    cut = len(word) - MANTISSA
    kept, half, rest = word[cut:], word[cut - 1], word[: cut - 1] != 0
    total = Signal(MANTISSA + 1, name=f"{name}_rounded")
    m.d.comb += total.eq(kept + (half & (rest | kept[0])))
    carry = total[MANTISSA]
    return Mux(carry, 1 << (MANTISSA - 1), total[:MANTISSA]), carry
