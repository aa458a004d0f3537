"""The post-processing instructions: gemmlowp's fixed point as the author's cfu.v computes it."""

from __future__ import annotations

from tilewright.array import Array
from tilewright.targets.cfu.config import CHOICES
from tilewright.targets.cfu.jit import callee

from .state import Reg

SINGLE = CHOICES["srdhm"].index("single")
INT_MIN, INT_MAX = -(1 << 31), (1 << 31) - 1


@callee
def set_srdhm(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """Latch a * b; a machine with srdhm=single answers with its high half, a cycle later."""
    regs[Reg.PRODUCT] = a * b
    regs[Reg.OVERFLOW] = a == INT_MIN and b == INT_MIN
    if regs[Reg.SRDHM] == SINGLE:
        get_srdhm(regs, buffers, ram, a, b, cycle)
        regs[Reg.READY] = cycle + 2


@callee
def get_srdhm(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """The rounded doubled high half of the product, saturated."""
    regs[Reg.ANSWER] = INT_MAX if regs[Reg.OVERFLOW] else high_product(regs[Reg.PRODUCT])


@callee
def rdbpot(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """a / 2**b, b unsigned."""
    regs[Reg.ANSWER] = shifted(a, b & 0xFFFFFFFF)


@callee
def off_maxmin(regs: Array, buffers: Array, ram: Array, a: int, b: int, cycle: int) -> None:
    """a + b within int8."""
    regs[Reg.ANSWER] = max(-128, min(127, wrapped(a + b)))


@callee
def high_product(product: int) -> int:
    """The rounded high half of a 64-bit product: (product + nudge) / 2**31, truncated."""
    nudged = product + ((1 << 30) if product >= 0 else 1 - (1 << 30))
    return -(-nudged >> 31) if nudged < 0 else nudged >> 31


@callee
def shifted(x: int, exponent: int) -> int:
    """x / 2**exponent to the nearest, ties away from zero; `exponent` unsigned, from 32 on as the RTL gives it."""
    if exponent > 31:
        return -1 if x == INT_MIN else 0
    mask = (1 << exponent) - 1
    threshold = (mask >> 1) + (1 if x < 0 else 0)
    return (x >> exponent) + (1 if x & mask > threshold else 0)


@callee
def scaled(x: int, multiplier: int, shift: int) -> int:
    """gemmlowp's double rounding of x * multiplier * 2**(shift - 31)."""
    return shifted(high_product(wrapped(x << max(shift, 0)) * multiplier), max(-shift, 0))


@callee
def wrapped(x: int) -> int:
    """x as an int32."""
    return ((x + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)
