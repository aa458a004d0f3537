"""What the operations of the tensor ALU mean, on single values in Python integers.

Sources: hardware/xilinx/src/vta.cc for MIN to MUL; gemmlowp's fixedpoint.h for the rounding of MULH and RSHR, which
are ours, and of REQ. Where upstream's implementations differ, `rules` say whose meaning it is.
"""

from __future__ import annotations

import numpy as np

from tilewright.targets.vta.isa.fields import AluOp
from tilewright.targets.vta.isa.semantics import Semantics

INT32_MIN, INT32_MAX = -(1 << 31), (1 << 31) - 1


def signed(value: int, bits: int) -> int:
    """The low bits of a value as two's complement."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def high_mul(a: int, b: int) -> int:
    """SaturatingRoundingDoublingHighMul: a nudge by the product's sign, then C's division by 2**31."""
    if a == b == INT32_MIN:
        return INT32_MAX
    product = a * b
    nudged = product + ((1 << 30) if product >= 0 else 1 - (1 << 30))
    return nudged >> 31 if nudged >= 0 else -(-nudged >> 31)


def divide_by_pot(x: int, exponent: int) -> int:
    """RoundingDivideByPOT: a shift to the right, rounded half away from zero."""
    mask = (1 << exponent) - 1
    return (x >> exponent) + ((x & mask) > (mask >> 1) + (x < 0))


def shift(a: int, b: int, width: int, negative_field: bool, rules: Semantics) -> int:
    """SHR: by the amount that the low bits of the second operand name; negative amounts shift to the left."""
    if rules.shift == "low_unsigned":
        amount = (-b if negative_field else b) & (width - 1)
        return signed(a << amount, width) if negative_field else a >> amount
    amount = signed(b, width.bit_length() - 1) if rules.shift == "low_signed" else b
    if amount < 0:
        return signed(a << (-amount & (width - 1)), width)
    return a >> (amount & (width - 1))


def operate(op: AluOp, a: int, b: int, width: int, immediate: bool, negative_field: bool, rules: Semantics) -> int:
    """One result of MIN to RSHR in `width` bits.

    `immediate`: b is the immediate operand. `negative_field`: the field of the immediate is negative, used or not.
    """
    if op == AluOp.MIN:
        return min(a, b)
    if op == AluOp.MAX:
        return max(a, b)
    if op == AluOp.ADD:
        return signed(a + b, width)
    if op == AluOp.SHR:
        return shift(a, b, width, negative_field, rules)
    if op == AluOp.MUL:
        return signed(a * b, width) if rules.multiplies else a
    if op == AluOp.MULH:
        return high_mul(a, b << 16 if immediate else b)
    assert op == AluOp.RSHR
    amount = abs(b) % 32
    return signed(a << amount, 32) if b < 0 else divide_by_pot(a, amount)


def requantise(acc: int, bias: int, multiplier: int, scaling: int, bounds: int) -> int:
    """REQ: TFLite's double rounding of acc + bias, which wraps; a result beyond 32 bits saturates.

    `scaling` holds, from the low byte, the shifts to the left (before the product) and to the right, then the zero
    point in 16 bits. `bounds` holds the smallest and the largest result in 16 bits each.
    """
    left, right = scaling & 31, scaling >> 8 & 31
    total = signed(signed(acc + bias, 32) << left, 32)
    return _bounded(divide_by_pot(high_mul(total, multiplier), right), scaling, bounds)


def requantise_float(acc: int, bias: int, multiplier: int, scaling: int, bounds: int) -> int:
    """REQ of an ALU "float": the multiplier's bits are a float32, whose product is rounded half to even."""
    with np.errstate(over="ignore", invalid="ignore"):  # factors of no model
        factor = np.int32(multiplier).view(np.float32)
        product = np.float32(signed(acc + bias, 32)) * factor
        scaled = int(np.rint(np.clip(np.float64(product), INT32_MIN, INT32_MAX))) if np.isfinite(product) else None
    return _bounded(INT32_MIN if scaled is None else scaled, scaling, bounds)


def _bounded(value: int, scaling: int, bounds: int) -> int:
    """Add the zero point and clamp; there are no bounds where the smallest is above the largest."""
    low, high = signed(bounds, 16), signed(bounds >> 16, 16)
    if low > high:
        low, high = INT32_MIN, INT32_MAX
    return max(low, min(high, value + signed(scaling >> 16, 16)))
