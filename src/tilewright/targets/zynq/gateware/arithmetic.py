"""Products outside the compute unit."""

from __future__ import annotations

from amaranth.hdl import Cat, Value

from tilewright.hdl.mac import by_logic


def product(a: Value, b: Value, logic: bool) -> Value:
    """Return the product of two unsigned values; with `logic`, it takes no multiplier blocks."""
    if not logic:
        return a * b
    return by_logic(Cat(a, 0).as_signed(), Cat(b, 0).as_signed()).as_unsigned()[: len(a) + len(b)]
