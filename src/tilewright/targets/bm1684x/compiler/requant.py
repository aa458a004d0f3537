"""From int32 sums to stored codes: the operations that give the bits of a rounding rule of the graph."""

from __future__ import annotations

import numpy as np

from tilewright.array import Array
from tilewright.graph.rounding import Requant, RequantRule, power_of_two, quantize_multiplier
from tilewright.targets.bm1684x.compiler.layer import Output, Ref
from tilewright.targets.bm1684x.compiler.stored import Stored
from tilewright.targets.bm1684x.compiler.writer import Into, Refused, Writer
from tilewright.targets.bm1684x.isa.command import Constant
from tilewright.targets.bm1684x.values.dtypes import I16, Rounding


def requantise(write: Writer, total: Ref, to: Requant, rule: RequantRule, stored: Stored) -> None:
    """clamp(round(total * real) + zero point) into the output. Raises Refused for a rule that the machine has not."""
    clamps, into = bounds(stored, to.low, to.high)
    if rule == "double":
        q, shift = quantize_multiplier(to.real)
        result = doubled(write, total, q, shift, stored.zero, into)
    elif rule == "pow2":
        result = write.scale(total, into, power_of_two(to.real, "requantisation"), stored.zero, Rounding.HALF_UP)
    elif rule == "float":
        result = real(write, total, to.real32, stored, into)
    else:
        reason = f"the requantisation rule '{rule}' (docs/arithmetic.md) is not supported"
        raise Refused(f"{reason}: no sequence of operations gives it")
    clamp(write, result, clamps, stored)


def doubled(write: Writer, x: Ref, q: Array, shift: Array, offset: int, into: Into) -> Ref:
    """gemmlowp's two roundings: the high product, then a shift that rounds halves away from zero."""
    q, shift = np.atleast_1d(q), np.atleast_1d(shift)
    if (shift > 0).any():
        raise Refused("its sums are scaled up, which int32 may not hold")
    high = write.high_product(x, q)
    return write.scale(high, into, shift, offset, Rounding.HALF_AWAY_FROM_ZERO)


def real(write: Writer, x: Ref, factor: Array, stored: Stored, into: Into) -> Ref:
    """half_even(f32(x) * factor) + zero: the zero point is added to integers, behind the rounding."""
    if not stored.zero:
        return write.scale_real(x, into, np.atleast_1d(factor))
    code = write.scale_real(x, I16, np.atleast_1d(factor))
    zero = Constant.of(stored.zero, I16)
    return write.add("int_add", into, a=code, b=zero, saturate=True)


def bounds(stored: Stored, low: int, high: int) -> tuple[list[tuple[str, int]], Into]:
    """What `clamp` does to keep codes of the graph in `low`..`high`, and what the operation before it gives."""
    low, high = low + stored.add, high + stored.add
    clamps = [("max", low)] if low > stored.dtype.low else []
    clamps += [("min", high)] if high < stored.dtype.high else []
    return clamps, stored.dtype if clamps else Output()


def clamp(write: Writer, value: Ref, clamps: list[tuple[str, int]], stored: Stored) -> None:
    """The bounds that the type itself does not have; the last operation gives the output."""
    for number, (operation, bound) in enumerate(clamps, 1):
        result: Into = Output() if number == len(clamps) else stored.dtype
        value = write.add(operation, result, a=value, b=Constant.of(bound, stored.dtype))
