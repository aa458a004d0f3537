"""The post-processing instructions: gemmlowp's fixed point as the author's cfu.v computes it."""

from __future__ import annotations

from tilewright.targets.cfu.jit import callee


@callee
def high_product(product: int) -> int:
    """The rounded high half of a 64-bit product: (product + nudge) / 2**31, truncated."""
    nudged = product + ((1 << 30) if product >= 0 else 1 - (1 << 30))
    return -(-nudged >> 31) if nudged < 0 else nudged >> 31


@callee
def shifted(x: int, exponent: int) -> int:
    """x / 2**exponent to the nearest, ties away from zero; `exponent` unsigned, from 32 on as the RTL gives it."""
    if exponent > 31:
        return -1 if x == -(1 << 31) else 0
    mask = (1 << exponent) - 1
    threshold = (mask >> 1) + (1 if x < 0 else 0)
    return (x >> exponent) + (1 if x & mask > threshold else 0)


@callee
def clamp(x: int, offset: int) -> int:
    """x + offset, wrapped to 32 bits, within int8."""
    total = ((x + offset + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)
    return max(-128, min(127, total))
