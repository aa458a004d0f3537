"""The use of FPGA multiplier blocks for products. Estimates import this file, so it must not import Amaranth."""

from __future__ import annotations

#: "single": a multiplier block for each product. "packed": a block for two products with a common factor. "logic": no
#: block.
MULTIPLIERS = ("single", "packed", "logic")
#: The widths, in bits, of a block's signed factors in Xilinx's DSP48E1. Later generations have wider blocks.
WIDE = 25
NARROW = 18


def packs(shared: int, other: int) -> bool:
    """Return whether one block can multiply a factor of `shared` bits by two factors of `other` bits."""
    return shared + 2 * other + 1 <= WIDE and shared <= NARROW
