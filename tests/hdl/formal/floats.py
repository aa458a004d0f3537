"""Requantisation by float factors against graph/rounding.py: products of float32 and of doubles.

A rounded number is any that is nearest; of two, the even one. The registers of products are arbitrary numbers of the
right range in the proofs of what follows them, because solvers do not find what holds of products.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from amaranth.hdl import Cat, Const, Mux, Value, signed

from tests.hdl.formal.bench import Bench, Proof, implies
from tests.hdl.formal.engine import pipeline
from tests.hdl.formal.rounding import is_clamped, magnitude, wrapped
from tilewright.hdl.rescale import FloatScale
from tilewright.targets.zynq.gateware.results import Requantiser
from tilewright.targets.zynq.isa.layer import RULES

#: The register of the factor's mantissa in Requantiser, which has no name.
MANTISSA = "$signal"
NUMBERS = {str(name): number for number, name in enumerate(RULES)}


def is_half_even(rounded: Any, x: Any, exponent: Any) -> Value:
    """`rounded` is x / 2**exponent to the nearest integer, ties to even."""
    error = ((rounded << exponent) - x) << 1
    one = Const(1, 1) << exponent
    is_tie = (error == one) | (error == -one)
    return (error <= one) & (error >= -one) & implies(is_tie & (exponent != 0), ~rounded[0])


def mantissa_of(total: Any, bits: int) -> Value:
    """Return a rounded mantissa of `bits` bits: if it became 2**bits, the exponent takes the factor of 2."""
    return Mux(total[bits], 1 << (bits - 1), total[:bits])


def scale_products() -> Bench:
    """From the operands to the product of mantissas, and the sum of exponents."""
    dut = FloatScale()
    b = Bench(dut)
    value, factor = b.past(dut.value, 2), b.past(dut.factor, 2)
    fraction, zeros = b.past(b.inside("fraction")), b.past(b.inside("zeros"))
    size = magnitude(value)
    b.claim("normalised", (fraction == size << zeros) & ((fraction[31] == 1) | (size == 0)))
    total = b.past(b.inside("value_rounded"))
    b.claim("rounded", is_half_even(total, fraction, 8))
    exact = mantissa_of(total, 24) * Cat(factor[:23], 1)
    b.claim("product", b.inside("product") == exact)
    exponent = 31 - zeros + total[24] + factor[23:31] - 127
    b.claim("exponent", b.inside("exponent") == exponent)
    zero = (value == 0) | (factor[23:31] == 0)  # zero and subnormal factors
    b.claim("nothing", b.inside("nothing") == zero)
    b.claim("huge", b.inside("huge") == (factor[23:31] == 255))
    b.claim("infinite", implies(b.inside("huge"), b.inside("exponent") >= 128))
    b.claim("sign", b.inside("negative") == ((value < 0) ^ factor[31]))
    return b


def scale_rounds() -> Bench:
    """From any product of two mantissas to the integer: to float32, clipped to int32, to the nearest integer."""
    dut = FloatScale()
    b = Bench(dut)
    product, exponent = b.inside("product"), b.inside("exponent")
    b.assume((product >= 1 << 46) & (exponent >= -127) & (exponent <= 160))
    b.assume(implies(b.inside("huge"), exponent >= 128))
    product, exponent = b.past(product), b.past(exponent)
    nothing, huge, negative = (b.past(b.inside(name)) for name in ("nothing", "huge", "negative"))
    above = product >= 1 << 47
    total = b.free("total", 25)
    b.assume(is_half_even(total, product, Mux(above, 24, 23)))
    scale = b.named("scale", exponent - 23 + above)  # the float32 is total * 2**scale
    down = b.named("down", Mux(scale < 0, -scale, 0)[:10])
    size = magnitude(dut.result)
    saturates = huge | Mux(scale < 0, 0, (scale > 7) | ((total << scale[:3]) >= 1 << 31))
    whole = b.named("whole", total << Mux(scale < 0, 0, scale)[:3])
    is_rounded = Mux(scale >= 0, size == whole, Mux(down > 25, size == 0, is_half_even(size[:25], total, down[:5])))
    is_signed = (size == 0) | ((dut.result < 0) == negative)
    limit = Mux(negative, -(1 << 31), (1 << 31) - 128)
    fits = implies(~saturates, is_rounded & is_signed) & implies(saturates, dut.result == limit)
    b.claim("result", Mux(nothing, dut.result == 0, fits))
    return b


def front(rule: str) -> Bench:
    """From the sum and the factor to the two operands of the product, and its exponent."""
    dut = Requantiser()
    b = Bench(dut)
    b.fix(dut.rule, NUMBERS[rule])
    biased = dut.factor[52:63]
    b.assume((dut.factor[63] == 0) & (biased < 1023 + 30))
    relu = b.constant("relu")
    b.assume(dut.relu == relu)
    fraction = Cat(dut.factor[:52], 1)
    mantissa = b.inside(MANTISSA)
    exponent, shifted = b.inside("exponent"), b.inside("shifted")
    total = Mux(relu & (dut.sum < 0), 0, dut.sum)
    b.claim("nothing", b.inside("nothing") == b.past(biased == 0))
    if rule == "double":
        # frexp gives a fraction in [1/2, 1), which is rounded half up to 31 bits (quantize_multiplier).
        q = b.free("q", 32)
        error = (q << 22) - fraction
        b.assume((error > -(1 << 21)) & (error <= 1 << 21))
        over = q == 1 << 31
        shift = b.named("shift", biased - 1022 + over)
        tiny = shift < -31
        multiplier = Mux(tiny, 0, Mux(over, 1 << 30, q))
        left, right = Mux(shift > 0, shift, 0)[:5], Mux((shift < 0) & ~tiny, -shift, 0)[:5]
        b.claim("shifted", shifted == b.past(wrapped(total << left)))
        b.claim("multiplier", mantissa == b.past(multiplier) << 22)
        b.claim("right", b.inside("right") == b.past(right))
        return b
    b.claim("total", shifted == b.past(total))
    if rule == "float":
        rounded = b.free("rounded", 25)
        b.assume(is_half_even(rounded, fraction, 29))
        b.claim("mantissa", mantissa == b.past(mantissa_of(rounded, 24)) << 29)
        b.claim("exponent", exponent == b.past(biased - 1023 + rounded[24]))
        return b
    b.claim("factor", (mantissa == b.past(fraction)) & (exponent == b.past(biased - 1023)))
    return b


def middle(rule: str) -> Bench:
    """From a sum to the first operand of the product."""
    dut = Requantiser()
    b = Bench(dut)
    b.fix(dut.rule, NUMBERS[rule])
    shifted = b.past(b.inside("shifted"), 3)
    size = magnitude(shifted)[:32]
    first = b.inside("first")
    b.claim("sign", b.inside("negative") == b.past(b.inside("shifted") < 0))
    if rule == "double":
        b.claim("size", first == size)
        return b
    top = b.past(b.inside("top"))
    lined = b.past(b.inside("lined"))
    zeros = b.named("zeros", (31 - top)[:5])
    b.claim("normalised", implies(size != 0, (lined == size << zeros) & lined[31] & (top >= 0) & (top < 32)))
    place = b.past(b.inside("exponent"), 3)
    if rule != "float":
        b.claim("lined", (first == lined) & (b.inside("place") == top + place))
        return b
    total = b.free("total", 25)
    b.assume(is_half_even(total, lined, 8))
    b.claim("rounded", first == mantissa_of(total, 24) << 8)
    b.claim("place", b.inside("place") == top + place + total[24])
    return b


def back(rule: str) -> Bench:
    """From any product to the code: rounded once or twice, with its sign, plus the zero point, clamped."""
    dut = Requantiser()
    b = Bench(dut)
    b.fix(dut.rule, NUMBERS[rule])
    b.cut("exact")
    exact = b.past(b.inside("exact"), 3)
    place, negative = b.past(b.inside("place"), 5), b.past(b.inside("negative"), 7)
    zero = b.past(b.inside("nothing"), 8) | b.past(b.inside("size") == 0, 7)
    zy, low, high = (b.constant(name, signed(9)) for name in ("zy", "low", "high"))
    for port, value in ((dut.zy, zy), (dut.low, low), (dut.high, high)):
        b.assume(port == value)
    b.assume(low <= high)
    size = b.free("rounded", 33)
    if rule == "double":
        b.assume(exact[:22] == 0)
        product = b.named("product", exact[22:])  # of a magnitude and a multiplier of 31 bits
        b.assume(product <= (1 << 62) - (1 << 31))
        by = b.past(b.inside("right"), 8)
        high_half = b.free("high_half", 33)
        error = (high_half << 31) - product
        upwards = Mux(negative, (error >= -(1 << 30)) & (error < 1 << 30), (error > -(1 << 30)) & (error <= 1 << 30))
        b.assume(upwards)  # ties upwards: of negative products, to smaller magnitudes
        tail = ((size << by) - high_half) << 1
        one = Const(1, 1) << by
        b.assume((tail > -one) & (tail <= one))  # ties away from zero
        b.assume(implies(by == 0, size == high_half))
    else:
        b.assume((exact >= 1 << 83) & (place > -2000) & (place < 2000))
        if rule == "pow2":
            b.assume(exact[:52] == 0)  # a magnitude times a power of two
        above = exact >= 1 << 84
        word, scale, bits = exact, b.named("scale", place - 83), 85
        if rule in ("float", "away"):
            bits = 24 if rule == "float" else 53
            word = b.free("word", bits + 1)
            b.assume(is_half_even(word, exact, Mux(above, 85 - bits, 84 - bits)))
            scale = b.named("scale", place - 83 + (84 - bits) + above)
        # The number is word * 2**scale. From 2**11 on, its size does not matter: it is clamped.
        large = (scale >= 11) | ((scale >= 0) & ((word << Mux(scale < 0, 0, scale)[:4]) >= 1 << 11))
        down = b.named("down", Mux(scale < 0, -scale, 0)[:12])
        tiny = down > bits + 1
        exponent = Mux(tiny, 0, down)[:7]
        whole = (word << Mux(scale < 0, 0, scale)[:4])[:12]
        error = ((size << exponent) - word) << 1
        one = Const(1, 1) << exponent
        if rule == "float":
            nearest = is_half_even(size, word, exponent)
        elif rule == "away":
            nearest = (error > -one) & (error <= one)
        else:
            nearest = Mux(negative, (error >= -one) & (error < one), (error > -one) & (error <= one))
        rounds = Mux(tiny, size == 0, Mux(scale >= 0, size == whole, nearest))
        b.assume(Mux(large, size == 1 << 11, rounds))
    total = Mux(zero, 0, Mux(negative, -size, size)) + zy
    code = b.free("code", signed(9))
    b.assume(is_clamped(code, total, low, high))
    b.claim("code", dut.result == code[:8])
    return b


PROOFS = [
    Proof("vta FloatScale: products", "value to float32; product, exponent, sign", scale_products, pipeline, 2),
    Proof("vta FloatScale: rounding", "product to float32, clipped, half to even", scale_rounds, pipeline, 1),
]
for rule in NUMBERS:
    PROOFS += [
        Proof(f"zynq Requantiser {rule}: factor", "multiplier of a double; ReLU", partial(front, rule), pipeline, 1),
        Proof(f"zynq Requantiser {rule}: sum", "magnitude, first rounding", partial(middle, rule), pipeline, 3),
        Proof(f"zynq Requantiser {rule}: rounding", "product to code", partial(back, rule), pipeline, 8, slow=True),
    ]
