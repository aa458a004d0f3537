"""Rounding and clamp blocks against the definitions of graph/rounding.py.

The properties say what a rounded value is (the nearest multiple, and which of two equally near ones), where the blocks
add halves, shift and look at carries.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from amaranth.hdl import Const, Module, Mux, Value, signed
from amaranth.lib.wiring import In, Out

from tests.hdl.formal.bench import Bench, Proof, implies
from tests.hdl.formal.engine import pipeline
from tilewright.hdl.parts import Part, clamped
from tilewright.hdl.rescale import Lane, Rescale
from tilewright.targets.cfu.gateware.results import HighProduct, OffsetClamp, RoundingShift, ScalingLane, bounded

#: The third register without a name in ScalingLane.
PRODUCT = "$signal#3"
INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1


def wrapped(value: Any, bits: int = 32) -> Value:
    return Value.cast(value)[:bits].as_signed()


def magnitude(value: Any) -> Value:
    """|value|, with a bit to spare."""
    value = Value.cast(value)
    return Mux(value < 0, -value, value)[: len(value) + 1].as_unsigned()


def is_half_away(rounded: Any, x: Any, exponent: Any) -> Value:
    """`rounded` is x / 2**exponent to the nearest integer, ties away from zero (rounding_divide_by_pot)."""
    error = ((rounded << exponent) - x) << 1
    one = Const(1, 1) << exponent
    is_tie = (error == one) | (error == -one)
    is_outward = Mux(x < 0, error < 0, error > 0)
    return (error <= one) & (error >= -one) & implies(is_tie & (exponent != 0), is_outward)


def is_high_product(high: Any, product: Any) -> Value:
    """`high` is 2 * product / 2**32, rounded, ties upwards (saturating_rounding_doubling_high_mul)."""
    error = (high << 31) - product  # of a value that is rounded upwards at 1/2, in (-1/2, 1/2]
    nearest = (error > -(1 << 30)) & (error <= 1 << 30)
    return Mux(product >= (1 << 62) - (1 << 30), high == INT_MAX, nearest)


def is_clamped(result: Any, value: Any, low: Any, high: Any) -> Value:
    """`result` is `value`, or the nearer bound if that lies outside of the bounds."""
    return Mux(value > high, result == high, Mux(value < low, result == low, result == value))


def in_range(product: Any) -> Value:
    """What holds of products of two int32 by arithmetic; solvers do not find it. Only INT_MIN squared is 2**62."""
    return ((product == 1 << 62) | (product <= (1 << 62) - (1 << 31))) & (product > -(1 << 62))


def rounding_shift() -> Bench:
    b = Bench(dut := RoundingShift())
    amount = dut.exponent[:5]
    large = dut.exponent > 31
    b.claim("nearest", implies(~large, is_half_away(dut.result, dut.x, amount)))
    b.claim("large", implies(large, dut.result == Mux(dut.x == INT_MIN, -1, 0)))
    return b


def high_product() -> Bench:
    """The register of the product, and from any product to its high half."""
    dut = HighProduct()
    b = Bench(dut)
    product, overflow = b.inside("product"), b.inside("overflow")
    both = (dut.a == INT_MIN) & (dut.b == INT_MIN)
    b.claim("product", implies(b.past(dut.set), (product == b.past(dut.a * dut.b)) & (overflow == b.past(both))))
    b.claim("stable", implies(~b.past(dut.set), (product == b.past(product)) & (overflow == b.past(overflow))))
    largest = product == 1 << 62
    possible = in_range(product) & (overflow == largest)
    b.claim("nearest", implies(possible, is_high_product(dut.high, product)))
    return b


def offset_clamp() -> Bench:
    dut = OffsetClamp()
    b = Bench(dut)
    b.claim("clamped", is_clamped(dut.result, wrapped(dut.x + dut.offset), -128, 127))
    return b


class Clamps(Part):
    """The two functions that clamp."""

    def __init__(self) -> None:
        shape = signed(12)
        super().__init__(value=In(shape), low=In(shape), high=In(shape), clamped=Out(shape), bounded=Out(shape))

    def define(self, m: Module) -> None:
        m.d.comb += self.clamped.eq(clamped(self.value, self.low, self.high))
        m.d.comb += self.bounded.eq(bounded(self.value, self.low, self.high))


def clamps() -> Bench:
    dut = Clamps()
    b = Bench(dut)
    value, low, high = dut.value, dut.low, dut.high
    b.claim("clamped", implies(low <= high, is_clamped(dut.clamped, value, low, high)))
    b.claim("bounded", implies(low <= high, is_clamped(dut.bounded, value, low, high)))
    b.claim("crossed", implies(low > high, (dut.clamped == Mux(value < low, low, high)) & (dut.bounded == high)))
    return b


def shifts(shift: Any) -> tuple[Any, Any]:
    """Return the left and the right shift of a multiplier 2**shift."""
    return Mux(shift < 0, 0, shift)[:5], Mux(shift < 0, -shift, 0)[:6]


def scaling_products(again: bool) -> Bench:
    """The registers of products, in the first pass and with `early`, or in the second pass."""
    dut = ScalingLane(early=True)
    b = Bench(dut)
    b.fix(dut.again, again)
    product, amount = b.inside(PRODUCT), b.inside("right")
    left, right = shifts(dut.again_shift if again else dut.shift)
    if again:
        second = wrapped((b.inside("first") + dut.addend) << left) * dut.again_factor
        b.claim("second", (product == b.past(second)) & (amount == b.past(right)))
        return b
    shifted = wrapped(dut.value << left)
    first = b.past(shifted, 2) * b.past(dut.factor, 2)
    b.claim("first", (product == first) & (amount == b.past(right, 2)))
    # Solvers do not find that (x << 20) * y is (x * y) << 20.
    short = shifted[20:].as_signed()
    early = (b.past(short) * b.past(dut.factor)) << 20
    is_early = (b.inside("early") == early) & (b.inside("early_right") == b.past(right))
    b.claim("early", is_early & implies(dut.value[:20] == 0, short << 20 == shifted))
    return b


def scaling_rounds() -> Bench:
    """From any product of an int32 and a multiplier that is not negative, to the code."""
    dut = ScalingLane()
    b = Bench(dut)
    product, right = b.inside(PRODUCT), b.inside("right")
    b.assume(in_range(product) & (product != 1 << 62) & (right < 32))
    high = b.free("high", signed(33))
    b.assume(is_high_product(high, product))
    b.claim("scaled", is_half_away(b.inside("scaled"), high, right))
    moved = b.inside("scaled") + dut.offset
    clamped_code = is_clamped(dut.code, moved, dut.low, dut.high)
    b.claim("code", Mux(dut.low > dut.high, dut.code == dut.high, clamped_code))
    return b


def lane_products(op: Any) -> Bench:
    """The halves of the product, whose sum is the product by arithmetic: solvers do not find that."""
    dut = Lane(False)
    b = Bench(dut)
    for stage in dut.op:
        b.fix(stage, op)
    first, second, factor = dut.first, dut.second, dut.multiplier
    if op == Rescale.REQ:
        first, second = wrapped(wrapped(first + second) << dut.left), factor
    first, second = b.past(first, 2), b.past(second, 2)
    b.claim("lower", b.inside("lower") == first * second[:16].as_unsigned())
    b.claim("upper", b.inside("upper") == first * second[16:].as_signed())
    b.claim("kept", b.inside("kept") == first)
    return b


def lane_rounds(op: Any) -> Bench:
    """From the halves of any product to its high half, and from any high half to the result."""
    dut = Lane(False)
    b = Bench(dut)
    for stage in dut.op:
        b.fix(stage, op)
    product = b.past((b.inside("upper") << 16) + b.inside("lower"))
    high = b.inside("high")
    b.claim("high", implies(in_range(product), is_high_product(high, product)))
    shifted = b.inside("shifted")
    right = 0 if op == Rescale.MULH else b.past(dut.right)
    b.claim("shifted", is_half_away(shifted, b.past(high), Const(0, 5) | right))
    moved = b.past(shifted) + (0 if op == Rescale.MULH else b.past(dut.zero))
    clips = (dut.low <= dut.high) & (op == Rescale.REQ)
    clipped = is_clamped(dut.result, moved, Mux(clips, dut.low, INT_MIN), Mux(clips, dut.high, INT_MAX))
    b.claim("result", clipped)
    return b


def lane_shift() -> Bench:
    """RSHR: the rounding shift, or for negative amounts a left shift."""
    dut = Lane(False)
    b = Bench(dut)
    for stage in dut.op:
        b.fix(stage, Rescale.RSHR)
    first, second = (b.past(port, 5) for port in (dut.first, dut.second))
    amount = magnitude(second)[:5]
    right_shift = is_half_away(dut.result, first, amount)
    b.claim("shift", Mux(second < 0, dut.result == wrapped(first << amount), right_shift))
    return b


PROOFS = [
    Proof("cfu RoundingShift", "x / 2^e, ties away from zero, all x and e", rounding_shift, pipeline, 0),
    Proof("cfu HighProduct", "high half of 2 a b, ties upwards, saturated", high_product, pipeline, 1),
    Proof("cfu OffsetClamp", "sum clamped to int8", offset_clamp, pipeline, 0),
    Proof("clamped, bounded", "nearer bound; crossed bounds", clamps, pipeline, 0),
    Proof("cfu ScalingLane: products", "operands and shift", partial(scaling_products, False), pipeline, 2),
    Proof("cfu ScalingLane: again", "operands and shift", partial(scaling_products, True), pipeline, 1),
    Proof("cfu ScalingLane: rounding", "rule `double`, zero point, clamp", scaling_rounds, pipeline, 0),
    Proof("vta Lane: MULH product", "halves of the product", partial(lane_products, Rescale.MULH), pipeline, 2),
    Proof("vta Lane: MULH", "high half of 2 a b", partial(lane_rounds, Rescale.MULH), pipeline, 1),
    Proof("vta Lane: RSHR", "x / 2^e, ties away from zero; left shifts", lane_shift, pipeline, 5),
    Proof("vta Lane: REQ product", "halves of the product", partial(lane_products, Rescale.REQ), pipeline, 2),
    Proof("vta Lane: REQ", "rule `double`, zero point, clip", partial(lane_rounds, Rescale.REQ), pipeline, 1),
]
